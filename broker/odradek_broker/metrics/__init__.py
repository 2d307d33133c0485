"""Metrics and health by HTTP: what a node knows of itself, for Prometheus, probes and people.

Loaded only when `odradek.metrics.listener` is set, since it needs packages of the extra `metrics`. Collectors read what
the parts of the node keep anyway (`runtime/counters.py`, the roles, the images) when somebody asks; nothing is pushed.
"""
