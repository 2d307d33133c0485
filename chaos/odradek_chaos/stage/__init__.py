"""The stage: one partition on a few brokers in memory, moved by commands, for transcripts, lessons and unit tests.

What decides is the broker's own: its replica with its role, its log on a simulated disk, its purgatory, the answers of
its requests, and the controller's decisions. Clock, network, clients and the moment at which the controller acts obey
the commands (`stage.py` lists them). A command returns what was said (`said.py`): values, which a transcript prints in
its dialect and a lesson in sentences.
"""
