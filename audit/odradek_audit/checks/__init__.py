"""The checks: pure functions over decoded batches of one partition's replicas. docs/checks.md has a section on each.

Each reports `catalogue` entries into a sink; `engine.partition` runs them all, for both engines and the simulated
world, so that they cannot disagree.
"""
