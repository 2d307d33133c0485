"""Lessons: the famous failures of the protocol before Kafka 0.11, step by step, the old protocol beside today's.

`odradek demo lost-write` and its sisters play them. What decides in a lesson is the product: `LeaderPartition`,
`FollowerPartition`, `ReplicaPolicy` above the real storage on a simulated disk (`replica.py`); only the network, the
controller and the clients are puppets that do what a story says (`network.py`, `world.py`). A story (`lost_write.py`,
...) is told once and happens in two worlds; `lesson.py` records what they look like after each step, `drawing.py`
draws it, `player.py` turns the pages. At the end `verdict.py` hands both worlds' log directories to the auditor.
"""
