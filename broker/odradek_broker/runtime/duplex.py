"""Both directions of a stream: one task receives, one sends. A failure of either is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from odradek_proto.transport.ports import NetworkError, Stream


async def run_duplex(
    stream: Stream, receive: Coroutine[object, object, None], send: Coroutine[object, object, None]
) -> None:
    """Run both directions until `receive` ends; when `send` ends first, the stream is closed, which ends `receive`.

    The end of a stream is how a conversation ends, whoever noticed it. Any other error of either side is raised.
    """
    sender = asyncio.ensure_future(send)
    sender.add_done_callback(lambda _: stream.close())
    try:
        await receive
    except NetworkError:
        pass
    finally:
        sender.cancel()
        await asyncio.wait([sender])
    if not sender.cancelled():
        error = sender.exception()
        if error is not None and not isinstance(error, NetworkError):
            raise error
