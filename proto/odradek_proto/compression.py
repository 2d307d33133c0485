"""The five compression codecs of record batches, each bounded when it reads.

Rules of this module. Nobody's bytes decide how much memory we take: `decompress` works in pieces and stops at its
limit. What is written can be read by Kafka's Java client: snappy is framed as xerial does it (magic `82 S N A P P Y
00`, two int32 versions, then blocks of an int32 length and raw snappy), LZ4 frames have independent blocks. gzip is
in the standard library; the others need the extra `compression`, and are imported when they are first used.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptCompression(ValueError):
    """The bytes are not what the codec says they are."""


class DecompressionLimit(CorruptCompression):
    """The data would grow beyond the limit that the caller gave."""

    def __init__(self, codec: Codec, limit: int) -> None:
        super().__init__(f"{codec.name.lower()} data decompress to more than {limit} bytes")
        self.limit = limit


class CodecUnavailable(RuntimeError):
    """The library for a codec is not installed."""

    def __init__(self, codec: Codec, library: str) -> None:
        self.codec = codec
        self.reason = f"{codec.name.lower()} needs {library}"
        self.remedy = "pip install 'odradek[compression]'"  # pip takes the odradek that is installed
        super().__init__(f"{self.reason}: {self.remedy}")


FIRST_PIECE: Final = 64 * 1024  # how much is decompressed at first; later pieces double
LARGEST_PIECE: Final = 4 * 1024 * 1024
INPUT_PIECE: Final = 64 * 1024  # what is fed at once: gzip and lz4 keep copies of what they were fed and have not used
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK: Final = 32 * 1024  # block size of Kafka's Java client
SNAPPY_LARGEST_GROWTH: Final = 64  # three bytes of snappy stand for at most 64
ZSTD_LARGEST_WINDOW: Final = 1 << 27  # what the zstd command and Kafka's library accept
GZIP_WBITS: Final = 31  # a gzip header and the largest window

_INT32 = struct.Struct(">i")


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """Compress `data`; `level` as the codec counts it, None for its usual one. Raises `CodecUnavailable`."""
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: bytes, limit: int) -> bytes:
    """Undo `compress`, or what any Kafka client did, up to `limit` bytes.

    Raises `DecompressionLimit` when more would come out, having allocated little more than `limit`;
    `CorruptCompression` for wrong bytes; `CodecUnavailable`. With snappy and zstd, bytes that are cut at the end may
    show as less data only.
    """
    return _DECOMPRESSORS[codec](data, limit)


class _Bounded:
    """Collects what a decompressor gives out, and says how much it may give out next."""

    def __init__(self, codec: Codec, limit: int) -> None:
        self._codec = codec
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._piece = FIRST_PIECE

    def room(self) -> int:
        """The size of the next piece: one byte above the limit at most, so that going over it is noticed."""
        return min(self._piece, self._limit + 1 - self._size)

    def check(self, size: int) -> None:
        """Raise `DecompressionLimit` when `size` bytes more would be too many."""
        if self._size + size > self._limit:
            raise DecompressionLimit(self._codec, self._limit)

    def add(self, piece: bytes) -> None:
        self.check(len(piece))
        self._size += len(piece)
        self._pieces.append(piece)
        self._piece = min(2 * self._piece, LARGEST_PIECE)

    def result(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _copy(data: bytes, level: int | None) -> bytes:
    return data


def _copy_bounded(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise DecompressionLimit(Codec.NONE, limit)
    return data


def _gzip(data: bytes, level: int | None) -> bytes:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, GZIP_WBITS)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: bytes, limit: int) -> bytes:
    out = _Bounded(Codec.GZIP, limit)
    view = memoryview(data)
    position = 0
    member = zlib.decompressobj(GZIP_WBITS)
    try:
        while not member.eof or position < len(data):
            if member.eof:  # gzip allows several members, one behind the other
                member = zlib.decompressobj(GZIP_WBITS)
            fed = view[position : position + INPUT_PIECE]
            piece = member.decompress(fed, out.room())
            position += len(fed) - len(member.unconsumed_tail) - len(member.unused_data)
            if not piece and position == len(data) and not member.eof:
                raise CorruptCompression("gzip data end too early")
            out.add(piece)
    except zlib.error as error:
        raise CorruptCompression(f"gzip data are corrupt: {error}") from error
    return out.result()


def _library(codec: Codec, name: str) -> Any:
    """Import the library of a codec when it is first needed."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CodecUnavailable(codec, name.partition(".")[0]) from error


def _snappy(data: bytes, level: int | None) -> bytes:
    snappy = _library(Codec.SNAPPY, "cramjam").snappy
    pieces = [XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(data), XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK]))
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _unsnappy(data: bytes, limit: int) -> bytes:
    snappy = _library(Codec.SNAPPY, "cramjam").snappy
    out = _Bounded(Codec.SNAPPY, limit)
    if not data.startswith(XERIAL_MAGIC):  # raw snappy: Kafka reads it, and some clients write it
        out.add(_unsnappy_block(snappy, data, out))
        return out.result()
    position = 0
    while position < len(data):
        if data.startswith(XERIAL_MAGIC, position):  # streams may stand one behind the other
            position += len(XERIAL_HEADER)
            continue
        end = position + 4
        length = int.from_bytes(data[position:end], "big")
        if end + length > len(data):
            raise CorruptCompression(f"a snappy block at byte {position} ends behind the data")
        out.add(_unsnappy_block(snappy, data[end : end + length], out))
        position = end + length
    return out.result()


def _unsnappy_block(snappy: Any, block: bytes, out: _Bounded) -> bytes:
    """Decompress raw snappy. Its first number claims the size of the result, and is judged before it is believed."""
    from odradek_proto.varint import decode_unsigned_varint

    try:
        claimed, _ = decode_unsigned_varint(block, 0)
    except (IndexError, ValueError) as error:
        raise CorruptCompression("a snappy block has no size") from error
    if claimed > SNAPPY_LARGEST_GROWTH * len(block):
        raise CorruptCompression(f"a snappy block of {len(block)} bytes claims to hold {claimed}")
    out.check(claimed)
    try:
        return bytes(snappy.decompress_raw(block))
    except Exception as error:  # cramjam's own class, which is not a ValueError
        raise CorruptCompression(f"snappy data are corrupt: {error}") from error


def _lz4(data: bytes, level: int | None) -> bytes:
    """Independent blocks: Kafka's Java client refuses linked ones. No content size, as it writes none."""
    frame = _library(Codec.LZ4, "lz4.frame")
    compressed: bytes = frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _unlz4(data: bytes, limit: int) -> bytes:
    frame = _library(Codec.LZ4, "lz4.frame")
    out = _Bounded(Codec.LZ4, limit)
    decompressor = frame.LZ4FrameDecompressor()
    view = memoryview(data)
    position = 0
    try:
        while not decompressor.eof:
            fed = view[position : position + INPUT_PIECE] if decompressor.needs_input else view[:0]
            position += len(fed)
            piece = decompressor.decompress(fed, out.room())
            if not piece and not fed and not decompressor.eof:
                raise CorruptCompression("lz4 data end too early")
            out.add(piece)
    except (RuntimeError, EOFError) as error:
        raise CorruptCompression(f"lz4 data are corrupt: {error}") from error
    return out.result()


def _zstd(data: bytes, level: int | None) -> bytes:
    zstandard = _library(Codec.ZSTD, "zstandard")
    compressed: bytes = zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    return compressed


def _unzstd(data: bytes, limit: int) -> bytes:
    zstandard = _library(Codec.ZSTD, "zstandard")
    out = _Bounded(Codec.ZSTD, limit)
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_LARGEST_WINDOW)
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while piece := reader.read(out.room()):
                out.add(piece)
    except zstandard.ZstdError as error:
        raise CorruptCompression(f"zstd data are corrupt: {error}") from error
    return out.result()


_COMPRESSORS: Final[dict[Codec, Callable[[bytes, int | None], bytes]]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESSORS: Final[dict[Codec, Callable[[bytes, int], bytes]]] = {
    Codec.NONE: _copy_bounded,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
