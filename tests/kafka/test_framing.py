"""Bytes become frames, however they are cut up, in memory that grows with what has arrived."""

from __future__ import annotations

import random

import pytest
from odradek_broker.kafka.framing import ARRIVAL_BYTES, OWN_BUFFER_BYTES, FrameReader
from odradek_broker.kafka.messages.primitives import Malformed

from tests.kafka.raw import framed

LARGEST = 1 << 20


def reader() -> FrameReader:
    return FrameReader(memoryview(bytearray(ARRIVAL_BYTES)), LARGEST)


def give(frames: FrameReader, piece: bytes) -> list[bytes]:
    """Let bytes arrive as a socket does; returns the frames that they complete."""
    found: list[bytes] = []
    while piece:
        room = frames.room()
        count = min(len(room), len(piece))
        room[:count] = piece[:count]
        piece = piece[count:]
        frames.received(count)
        while (frame := frames.next()) is not None or frames.wanted:
            if frame is None:
                frames.grant()
            else:
                found.append(bytes(frame))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_the_same_however_they_arrive(seed: int) -> None:
    """Small and large ones, in pieces from a byte to more than a read takes."""
    rng = random.Random(seed)
    bodies = [rng.randbytes(rng.choice((8, 50, 4_000, 65_532, 65_536, 65_537, 300_000))) for _ in range(12)]
    stream = b"".join(map(framed, bodies))
    frames, found = reader(), []
    while stream:
        size = rng.choice((1, 3, 100, 5_000, 64 * 1024, 400_000))
        found += give(frames, stream[:size])
        stream = stream[size:]
        to_come = len(stream) - sum(4 + len(body) for body in bodies[len(found) + 1 :])
        assert frames.missing <= to_come, "who waits for more than comes waits for ever"
    assert found == bodies
    assert not frames.under_way


def test_it_says_how_much_of_a_frame_is_missing() -> None:
    """As far as that is known: the size has come; a large frame waits for room after 64 KiB."""
    frames, stream, missing = reader(), framed(bytes(OWN_BUFFER_BYTES + 996)), []
    for size in (2, 98, OWN_BUFFER_BYTES - 200, 100, 500, 500):
        give(frames, stream[:size])
        stream = stream[size:]
        missing.append(frames.missing)
    assert missing == [0, OWN_BUFFER_BYTES - 100, 100, 1_000, 500, 0]


@pytest.mark.parametrize("size", [-1, 0, 7, LARGEST + 1, 1_213_486_160])
def test_a_size_that_cannot_be_is_refused_before_anything_is_kept(size: int) -> None:
    """The last one is what HTTP would say (K-7)."""
    with pytest.raises(Malformed, match="a frame of"):
        give(reader(), (size & 0xFFFFFFFF).to_bytes(4))


def test_room_for_a_large_frame_is_asked_for_when_64_kib_have_arrived() -> None:
    """A claim alone costs nothing."""
    frames = reader()
    arrived = framed(bytes(LARGEST))[: OWN_BUFFER_BYTES - 1]
    frames.room()[: len(arrived)] = arrived
    frames.received(len(arrived))
    assert frames.next() is None
    assert not frames.wanted
    frames.room()[0] = 0
    frames.received(1)
    assert frames.next() is None
    assert frames.wanted == LARGEST
    frames.grant()
    assert len(frames.room()) == LARGEST - (OWN_BUFFER_BYTES - 4)


def test_what_is_left_lying_is_not_overwritten_by_what_arrives() -> None:
    """The buffer in which bytes arrive is shared with other connections."""
    arrival = memoryview(bytearray(ARRIVAL_BYTES))
    frames = FrameReader(arrival, LARGEST)
    bodies = [bytes([number]) * 20 for number in range(4)]
    pieces = [b"".join(map(framed, bodies[:2])), b"".join(map(framed, bodies[2:]))]
    for piece in pieces:
        arrival[: len(piece)] = piece
        frames.received(len(piece))
        arrival[:] = bytes([255]) * ARRIVAL_BYTES
    assert [bytes(frames.next() or b"") for _ in bodies] == bodies
