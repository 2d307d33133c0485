"""What a follower makes of an answer that was damaged on its way."""

from __future__ import annotations

from tests.broker.replica_world import ONE, World, answered, run, stored
from tests.playing import plays


@plays(run)
async def test_a_damaged_answer_is_asked_for_again(world: World) -> None:
    """Nothing of it is appended, and the same is fetched once more after a back-off (R-86)."""
    await world.learn(ONE, 0)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    sound = stored(0)
    await answered(world, ONE, sound[:-1] + b"?", epoch=0)
    await world.clock.sleep(1_000)
    assert world.log_end() == 0
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    await answered(world, ONE, sound, epoch=0)
    assert world.log_end() == 1
