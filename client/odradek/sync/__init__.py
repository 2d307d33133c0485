"""The same three clients without asyncio: `from odradek.sync import Producer, Consumer, Admin`.

Methods have the names and the arguments of the asynchronous ones; a test compares them.
"""

from odradek.sync.admin import Admin
from odradek.sync.background import BackgroundLoop, background_loop
from odradek.sync.consumer import Consumer
from odradek.sync.producer import Delivery, Producer

__all__ = ["Admin", "BackgroundLoop", "Consumer", "Delivery", "Producer", "background_loop"]
