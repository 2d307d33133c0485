"""The codecs: there and back, what Kafka's Java client expects to find, damage, bombs, and missing libraries."""

import gzip
import importlib
import struct
import tracemalloc
from contextlib import suppress
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from odradek_proto.compression import (
    Codec,
    CodecUnavailable,
    CorruptCompression,
    DecompressionLimit,
    compress,
    decompress,
)
from odradek_proto.varint import encode_unsigned_varint

REAL = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b'{"order":%d,"state":"paid"}' % number for number in range(9000))
GIB = 1 << 30


@given(st.sampled_from(Codec), st.binary(max_size=3000), st.integers(1, 200))
def test_data_come_back(codec: Codec, data: bytes, times: int) -> None:
    """Whatever is compressed is decompressed to the same under a limit of just its size."""
    data *= times
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_above_the_limit_is_refused(codec: Codec) -> None:
    """The limit is exact."""
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionLimit):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 9), (Codec.ZSTD, 19)])
def test_levels_are_passed_on(codec: Codec, level: int) -> None:
    """Another level makes other bytes of the same data."""
    text = TEXT[:50_000]  # the slowest level takes half a second for all of it
    packed = compress(codec, text, level)
    assert packed != compress(codec, text)
    assert decompress(codec, packed, len(text)) == text


def test_snappy_is_framed_as_the_java_client_does_it() -> None:
    """Magic, two versions, then blocks of 32 KiB, each behind its length; another library can read each block."""
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    position, blocks = 16, []
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert b"".join(blocks) == TEXT
    assert {len(block) for block in blocks[:-1]} == {32 * 1024}


def test_raw_snappy_is_read() -> None:
    """Some clients write snappy without the frame, and Kafka reads it."""
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


def test_streams_one_behind_the_other_are_read() -> None:
    """gzip members, zstd frames and snappy streams may follow each other, as the formats say."""
    for codec in (Codec.GZIP, Codec.ZSTD, Codec.SNAPPY):
        assert decompress(codec, compress(codec, b"one") + compress(codec, b"two"), 6) == b"onetwo"


def test_lz4_frames_are_as_the_java_client_needs_them() -> None:
    """Independent blocks, because it refuses linked ones, and no content size, as it writes none."""
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert info["block_linked"] is False
    assert info["content_size"] == 0
    assert info["block_size"] == 64 * 1024


def test_other_libraries_and_shapes_are_read() -> None:
    """Linked LZ4 blocks, content sizes, checksums, zstd without a content size: what other clients may send."""
    linked = lz4.frame.compress(TEXT, block_linked=True, store_size=True, content_checksum=True, block_checksum=True)
    assert decompress(Codec.LZ4, linked, len(TEXT)) == TEXT
    streaming = zstandard.ZstdCompressor(level=1, write_content_size=False, write_checksum=True).compressobj()
    assert decompress(Codec.ZSTD, streaming.compress(TEXT) + streaming.flush(), len(TEXT)) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT), len(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "written"),
    [
        (Codec.GZIP, "1f8b08000000000000ffcb4eadb42d4bcc294db5cea62b0b0040e527b278000000"),
        (Codec.SNAPPY, "82534e415050590000000001000000010000001278246b65793d76616c75653bfe0a00b60a00"),
        (
            Codec.LZ4,
            "04224d1860408214000000af6b65793d76616c75653b0a005650616c75653b00000000",
        ),
        (Codec.ZSTD, "28b52ffd00588d0000506b65793d76616c75653b0100ab694102"),
        (Codec.ZSTD, "28b52ffd0088950000586b65793d76616c75653b6b0100aa69f102"),  # level 22, with its large window
    ],
)
def test_what_the_java_client_writes_is_read(codec: Codec, written: str) -> None:
    """Bytes written by the libraries of Kafka's Java client: java.util.zip, snappy-java, lz4-java and zstd-jni."""
    assert decompress(codec, bytes.fromhex(written), 120) == b"key=value;" * 12


@pytest.mark.parametrize("codec", REAL)
def test_cut_data_are_corrupt(codec: Codec) -> None:
    """A prefix gives an error or, with snappy and zstd, less than the whole; never other data."""
    packed = compress(codec, TEXT)
    for kept in (*range(40), len(packed) // 2, len(packed) - 1):
        try:
            out = decompress(codec, packed[:kept], len(TEXT))
        except CorruptCompression:
            continue
        assert codec in (Codec.SNAPPY, Codec.ZSTD)
        assert TEXT.startswith(out)
        assert len(out) < len(TEXT)


@given(st.sampled_from(REAL), st.data())
def test_damaged_data_give_one_kind_of_error(codec: Codec, data: Any) -> None:
    """Flipped and inserted bytes are CorruptCompression, or happen to decompress within the limit; nothing else."""
    packed = bytearray(compress(codec, TEXT[:2000]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptCompression):
        assert len(decompress(codec, bytes(packed), 1 << 20)) <= 1 << 20


def bomb(codec: Codec) -> bytes:
    """One gibibyte of zeros, put together from small pieces that repeat."""
    if codec is Codec.LZ4:
        frame = compress(codec, bytes(64 * 1024))  # header of 7 bytes, one block, end mark of 4 bytes
        return frame[:7] + frame[7:-4] * (GIB >> 16) + frame[-4:]
    if codec is Codec.SNAPPY:
        stream = compress(codec, bytes(32 * 1024))
        return stream[:16] + stream[16:] * (GIB >> 15)
    return compress(codec, bytes(16 << 20)) * (GIB >> 24)


@pytest.mark.parametrize("codec", REAL)
def test_a_gibibyte_of_zeros_is_refused_early(codec: Codec) -> None:
    """A limit of one mebibyte costs about as much memory, and nothing behind it is looked at: it is damaged there."""
    packed = bomb(codec)
    assert len(packed) < GIB / 10
    packed = packed[: len(packed) // 2] + b"\xff" * 1024
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimit):
            decompress(codec, packed, 1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20


@pytest.mark.parametrize("claimed", [1 << 20, GIB, 2**32 - 1])
def test_a_claimed_size_of_snappy_is_not_believed(claimed: int) -> None:
    """Raw snappy starts with the size of its result: ten bytes cannot become a gibibyte, and none is reserved."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptCompression, match="claims"):
            decompress(Codec.SNAPPY, encode_unsigned_varint(claimed) + b"\x00" * 8, 4 * GIB)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_missing_library_names_the_extra(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has not installed the extra is told its name, when writing and when reading."""

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(CodecUnavailable, match=r"odradek\[compression\]"):
        compress(codec, b"x")
    with pytest.raises(CodecUnavailable, match=codec.name.lower()):
        decompress(codec, b"x", 10)
