"""The same three clients without asyncio: `from odradek.sync import Producer, Consumer, Admin`.

Methods have the names, the arguments and the types of the asynchronous ones, from which they are derived.
"""

from odradek_proto.transport.background import BackgroundLoop, background_loop

from odradek.sync.clients import Admin, Consumer
from odradek.sync.producer import Delivery, Producer

__all__ = ["Admin", "BackgroundLoop", "Consumer", "Delivery", "Producer", "background_loop"]
