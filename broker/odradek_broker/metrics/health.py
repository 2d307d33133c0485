"""Whether a node lives and is ready, and if not, why: in sentences.

Live: its loop ticks, and nothing has stopped it. Ready: its logs are recovered, it is registered and not fenced; a mere
controller is ready when it knows the leader of the quorum. What is not ready must not be restarted for it.
"""

from __future__ import annotations

from odradek_broker.metrics.observed import ObservedBroker, ObservedNode


def why_dead(node: ObservedNode) -> list[str]:
    """Reasons why this node will not come back by itself; none for a live one."""
    if node.failed.done() and not node.failed.cancelled():
        return [f"the node failed: {node.failed.exception()}"]
    return []


def why_not_ready(node: ObservedNode) -> list[str]:
    """Reasons why this node should not be asked yet, or not any more; none for a ready one."""
    reasons = why_dead(node)
    if node.stopping:
        reasons.append("the node is stopping")
    if node.quorum is not None and node.quorum.no_room:
        reasons.append("the disk has no room for the metadata log: the node takes no part in the quorum")
    if node.broker is not None:
        reasons += _broker(node.broker)
    elif node.quorum is None or node.quorum.leader_id < 0:
        reasons.append("the controller knows no leader of the quorum")
    return reasons


def _broker(broker: ObservedBroker) -> list[str]:
    reasons = []
    if not broker.recovered:
        reasons.append("the logs are being recovered")
    if broker.session.broker_epoch < 0:
        reasons.append("the broker is not registered with a controller")
    elif broker.session.fenced:
        reasons.append("the broker is fenced")
    return reasons
