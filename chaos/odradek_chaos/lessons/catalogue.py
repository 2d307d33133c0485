"""All lessons, in the order in which they are best seen."""

from odradek_chaos.lessons import divergence, fast_leader_change, lost_write, offsets_go_backwards
from odradek_chaos.lessons.lesson import Lesson

LESSONS: dict[str, Lesson] = {
    module.LESSON.name: module.LESSON for module in (lost_write, divergence, offsets_go_backwards, fast_leader_change)
}
