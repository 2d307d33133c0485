"""From bytes to frames: an int32 size, then so many bytes (K-7).

Memory grows with what has arrived, not with what is claimed. Bytes arrive in a buffer that all connections of a
listener share, and are copied out of it once. A frame larger than 64 KiB gets a buffer of its own as soon as 64 KiB
of it are there, and the rest is read into that: its record batches are never copied again.
"""

from __future__ import annotations

import struct
from mmap import mmap

from odradek_broker.kafka.messages.primitives import Malformed

ARRIVAL_BYTES = 256 * 1024  # of the shared buffer: the most that one read takes
OWN_BUFFER_BYTES = 64 * 1024
HUGE_BYTES = 1024 * 1024  # a buffer whose memory is not taken before its bytes have arrived
SMALLEST_FRAME = 8  # key, version, correlation id
_SIZE = struct.Struct(">i")
_KEY = struct.Struct(">h")


_OTHERS = {b"PRI ": "HTTP/2", b"GET ": "HTTP", b"POST": "HTTP", b"\x16\x03": "TLS"}


class OtherProtocol(Malformed):
    """What a client of another protocol begins with."""


class FrameReader:
    """The frames of one connection. `arrival` is shared: nothing looks into it after `received` has returned."""

    __slots__ = ("_arrival", "_chunk", "_got", "_large", "_partial", "_position", "granted", "largest", "wanted")

    def __init__(self, arrival: memoryview, largest: int) -> None:
        self._arrival = arrival
        self.largest = largest  # frame that is taken, in bytes
        self._chunk = memoryview(b"")  # has arrived, and is taken frame by frame from `_position` on
        self._position = 0
        self._partial = bytearray()  # the beginning of a frame
        self._large: memoryview | None = None  # a frame in its own buffer, of which `_got` bytes are there
        self._got = 0
        self.wanted = 0  # the size of a large frame that waits for `grant`
        self.granted = False  # whether the frame that `next` gave last is one that was waited for

    @property
    def under_way(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._large is not None or bool(self._partial)

    @property
    def missing(self) -> int:
        """How many bytes complete the frame that is under way, as far as its size is known."""
        if self._large is not None:
            return len(self._large) - self._got
        if len(self._partial) < _SIZE.size:
            return 0
        (size,) = _SIZE.unpack_from(self._partial)
        return max(0, min(int(size), OWN_BUFFER_BYTES - _SIZE.size) + _SIZE.size - len(self._partial))

    @property
    def reading_large(self) -> bool:
        """Whether a frame is read into a buffer of its own."""
        return self._large is not None

    def wanted_key(self) -> int:
        """The API key of the frame that is `wanted`."""
        (key,) = _KEY.unpack_from(self._partial, _SIZE.size)
        return int(key)

    def room(self) -> memoryview:
        """Where the next bytes are to be put."""
        return self._arrival if self._large is None else self._large[self._got :]

    def received(self, count: int) -> None:
        """So many bytes were put into the room."""
        if self._large is not None:
            self._got += count
        elif self._partial:
            self._partial += self._arrival[:count]
        elif self._position == len(self._chunk):
            self._chunk, self._position = memoryview(bytes(self._arrival[:count])), 0
        else:  # frames were left lying, since enough were being worked on
            self._chunk = memoryview(bytes(self._chunk[self._position :]) + self._arrival[:count])
            self._position = 0

    def next(self) -> memoryview | None:
        """The next complete frame, without its size. Raises `Malformed` for a size that cannot be."""
        if self._large is not None:
            if self._got < len(self._large):
                return None
            frame, self._large, self.granted = self._large, None, True
            return frame
        self.granted = False
        if self._partial:
            return self._complete()
        chunk, start = self._chunk, self._position
        left = len(chunk) - start
        if left >= 4:
            size = self._size_at(chunk, start)
            if left - 4 >= size:
                self._position = start + 4 + size
                return chunk[start + 4 : start + 4 + size]
        if left:
            self._partial += chunk[start:]
            self._chunk, self._position = memoryview(b""), 0
            return self._complete()
        return None

    def _complete(self) -> memoryview | None:
        """The frame that `_partial` begins with, if all of it is there by now."""
        partial = self._partial
        if len(partial) < 4:
            return None
        size = self._size_at(partial, 0)
        if len(partial) - 4 >= size:
            arrived = memoryview(partial)
            self._partial = bytearray()
            self._chunk, self._position = arrived, 4 + size
            return arrived[4 : 4 + size]
        if size > OWN_BUFFER_BYTES <= len(partial):
            self.wanted = size
        return None

    def grant(self) -> None:
        """There is room for the large frame that is `wanted`."""
        # Pages of the system's own are there once something is written to them.
        large = memoryview(mmap(-1, self.wanted) if self.wanted > HUGE_BYTES else bytearray(self.wanted))
        self._got = len(self._partial) - 4
        large[: self._got] = memoryview(self._partial)[4:]
        self._large, self._partial, self.wanted = large, bytearray(), 0

    def _size_at(self, buffer: memoryview | bytearray, position: int) -> int:
        (size,) = _SIZE.unpack_from(buffer, position)
        if not SMALLEST_FRAME <= size <= self.largest:
            begins = bytes(buffer[position : position + _SIZE.size])
            for known, protocol in _OTHERS.items():
                if begins.startswith(known):
                    raise OtherProtocol(protocol)
            raise Malformed(f"a frame of {size} bytes")
        return int(size)
