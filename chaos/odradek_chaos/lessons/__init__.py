"""Lessons: how replication works, and how the protocol before Kafka 0.11 failed, step by step.

`odradek demo lost-write` and the others play them. A lesson is a table of steps (`stories/`): a title, what happens,
what to see in it, and the commands of the stage (`odradek_chaos.stage`) that let it happen, in one world or in two that
differ in one thing. So all that decides is the product. `lesson.py` plays the steps, `narration.py` puts what was said
into words, `views.py` is what a world looks like, `drawing.py` and `pages.py` draw it, `player.py` turns the pages. At
the end `verdict.py` hands the worlds' log directories to the auditor.
"""
