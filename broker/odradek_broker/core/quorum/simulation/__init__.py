"""A quorum of cores in one process: time that jumps, a network that loses, disks that forget what was not flushed.

It has no sockets, no files and no tasks, so thousands of elections take seconds; tests and transcripts step it. What
a whole node does under the same faults is the business of the simulated world.
"""
