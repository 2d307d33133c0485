"""Hot messages written by hand are the ones that protobuf would write and read."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from odradek_proto.transport.frames import FrameError, encode_varint, pack_frame, split_frame


def _message_classes() -> tuple[Any, Any]:
    """`Header { uint64 a = 1; bytes b = 2; }` and `Hot { Header header = 1; bytes batches = 2; }`."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="hot.proto", package="hot", syntax="proto3")
    header = file.message_type.add(name="Header")
    header.field.add(name="a", number=1, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    header.field.add(name="b", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    hot = file.message_type.add(name="Hot")
    hot.field.add(name="header", number=1, type=field.TYPE_MESSAGE, type_name=".hot.Header", label=field.LABEL_OPTIONAL)
    hot.field.add(name="batches", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"hot.{name}")) for name in ("Header", "Hot")]
    return classes[0], classes[1]


Header, Hot = _message_classes()

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
payloads = st.binary(max_size=400)


@st.composite
def fields(draw: st.DrawFn) -> bytes:
    """One field of some message: ours, or an unknown one of any wire type."""
    kind = draw(st.sampled_from(["header", "batches", "varint", "fixed32", "fixed64", "bytes", "group"]))
    if kind == "header":
        body: bytes = Header(a=draw(numbers), b=draw(payloads)).SerializeToString()
        return b"\x0a" + encode_varint(len(body)) + body
    if kind == "batches":
        body = draw(payloads)
        return b"\x12" + encode_varint(len(body)) + body
    number = draw(st.integers(3, 2**29 - 1)) << 3
    if kind == "varint":
        return encode_varint(number) + encode_varint(draw(numbers))
    if kind == "fixed32":
        return encode_varint(number | 5) + draw(st.binary(min_size=4, max_size=4))
    if kind == "fixed64":
        return encode_varint(number | 1) + draw(st.binary(min_size=8, max_size=8))
    body = draw(payloads)
    if kind == "bytes":
        return encode_varint(number | 2) + encode_varint(len(body)) + body
    inner = encode_varint(8) + encode_varint(draw(numbers))
    return encode_varint(number | 3) + inner + encode_varint(number | 4)


@given(a=numbers, b=payloads, parts=st.lists(payloads, max_size=5))
@example(a=0, b=b"", parts=[])
@example(a=1, b=b"x", parts=[b"", b""])
@example(a=2**64 - 1, b=bytes(127), parts=[bytes(70_000), b"y" * 128])
def test_packed_frame_is_what_protobuf_writes(a: int, b: bytes, parts: list[bytes]) -> None:
    """Byte for byte, whatever kinds of buffers the payload comes in."""
    header = Header(a=a, b=b)
    expected = Hot(header=header, batches=b"".join(parts)).SerializeToString()
    kinds = (bytes, bytearray, memoryview)
    buffers = [kinds[index % 3](part) for index, part in enumerate(parts)]
    packed = pack_frame(header.SerializeToString(), buffers)
    assert packed == expected
    split_header, split_batches = split_frame(packed)
    assert (split_header, bytes(split_batches)) == (header.SerializeToString(), b"".join(parts))


def test_split_does_not_copy_the_payload() -> None:
    """The batches are a view into the message itself."""
    packed = pack_frame(b"", [bytes(100_000)])
    _, batches = split_frame(packed)
    assert batches.obj is packed


@given(parts=st.lists(fields(), max_size=8))
def test_any_legal_encoding_is_read_as_protobuf_reads_it(parts: list[bytes]) -> None:
    """Fields in any order, repeated, and unknown ones between them."""
    data = b"".join(parts)
    message = Hot.FromString(data)
    header, batches = split_frame(data)
    assert Header.FromString(header) == message.header
    assert bytes(batches) == message.batches


@given(data=st.one_of(st.binary(max_size=60), st.lists(fields(), max_size=3).map(b"".join)), cut=st.integers(0, 60))
@example(data=b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", cut=60)
@example(data=b"\x12\xff\xff\xff\xff\x0f", cut=60)
@example(data=b"\x12\x80", cut=60)
@example(data=b"\x08\x96\x01", cut=60)
@example(data=b"\x1b" * 50, cut=60)
@example(data=b"\x1b\x24", cut=60)
@example(data=b"\x07", cut=60)
@example(data=b"\x00", cut=60)
def test_malformed_frames_are_refused_where_protobuf_refuses(data: bytes, cut: int) -> None:
    """Arbitrary bytes: the same payload as protobuf's, or `FrameError` when the frame itself is broken."""
    data = data[:cut]
    try:
        header, batches = split_frame(data)
    except FrameError:
        with pytest.raises(DecodeError):
            Hot.FromString(data)
        return
    try:
        parsed = Header.FromString(header)
    except DecodeError:
        return  # the frame is sound and its header is not: whoever parses the header finds out
    message = Hot.FromString(data)
    assert (parsed, bytes(batches)) == (message.header, message.batches)
