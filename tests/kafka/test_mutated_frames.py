"""Frames of real clients with bytes changed, cut out and put in: nothing breaks, hangs or grows."""

from __future__ import annotations

import json
import random
import resource
from pathlib import Path

import pytest
from odradek_broker.testing import Cluster

from tests.kafka.raw import API_VERSIONS, Raw, framed, header

FRAMES = [
    bytes.fromhex(frame["frame"])
    for line in (Path(__file__).parent.parent / "golden/kafka-wire/frames.jsonl").read_text().splitlines()
    if (frame := json.loads(line))["what"] == "request"
]
LENGTHS = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\x0f\xff\xff")
MUTANTS_OF_A_FRAME = 12
GROWTH_KIB = 64 * 1024  # of this process, in which the brokers run


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """The API and its version stay, so that the body is looked at."""
    head, body = frame[:8], bytearray(frame[8:])
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(body) + 1)
        match rng.randrange(5):
            case 0 if body:
                body[place % len(body)] ^= 1 << rng.randrange(8)
            case 1:
                body[place : place + rng.randrange(9)] = b""
            case 2:
                body[place:place] = rng.randbytes(rng.randrange(9))
            case 3:
                body[place : place + 4] = rng.choice(
                    (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\x0f\xff\xff")
                )
            case _:
                del body[place:]
    return head + bytes(body)


def converse(address: str, frame: bytes) -> None:
    """Send one frame, and wait for the end: an answer first, or none."""
    with Raw(address) as raw:
        raw.send(framed(frame))
        raw.say_no_more()
        while raw.receive() is not None:
            pass


@pytest.mark.odradek(brokers=1, settings={"auto.create.topics.enable": "false"})
@pytest.mark.parametrize("seed", range(2))
def test_mutated_frames_end_in_an_answer_or_a_closed_connection(odradek_cluster: Cluster, seed: int) -> None:
    """Of every API and version that real clients send; the broker serves on, and keeps nothing of it."""
    address = odradek_cluster.kafka_bootstrap
    rng = random.Random(seed)
    for frame in FRAMES:
        converse(address, mutated(frame, rng))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(MUTANTS_OF_A_FRAME):
        for frame in FRAMES:
            converse(address, mutated(frame, rng))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KIB
    assert odradek_cluster.running == [1]
    with Raw(address) as raw:
        assert raw.ask(header(API_VERSIONS, 0, 1)) is not None
