"""What a caller is told of a handler that raised, and what the log says of it: the same in every world.

A refusal on purpose and bytes that are no message are no failures of ours: one line, no stack trace.
"""

from __future__ import annotations

import logging

from google.protobuf.message import DecodeError

from odradek_proto.transport.frames import FrameError
from odradek_proto.transport.ports import CallContext, CallRejected

logger = logging.getLogger("odradek.network")


def refusal_of(method: str, call: CallContext, error: Exception) -> CallRejected:
    """The status for the caller; what happened is in the log by then."""
    if isinstance(error, CallRejected):
        refusal = error
    elif isinstance(error, DecodeError | FrameError):
        refusal = CallRejected(f"no {method.rpartition('/')[2]} message: {error}", status="INVALID_ARGUMENT")
    else:
        logger.error("%s from %s: handler failed", method, call.peer, exc_info=error)
        return CallRejected(f"internal error: {type(error).__name__}", status="INTERNAL")
    logger.info("%s from %s refused: %s: %s", method, call.peer, refusal.status, refusal)
    return refusal
