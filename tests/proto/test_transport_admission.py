"""What a gRPC server takes on: streams by connection, and responses that nobody reads."""

from __future__ import annotations

from odradek_proto.transport.grpc_admission import STREAMS_OF_EVERYBODY, StreamAdmission, UnreadResponses


def test_one_connection_cannot_take_all_streams_from_the_others() -> None:
    """A full server refuses whoever has many streams and still takes the first ones of everybody else."""
    admission = StreamAdmission(10)
    assert all(admission.admit("greedy") for _ in range(10))
    assert not admission.admit("greedy")
    assert all(admission.admit("honest") for _ in range(STREAMS_OF_EVERYBODY))
    assert not admission.admit("honest")


def test_a_stream_that_ended_makes_room() -> None:
    """Closing a stream gives its place back."""
    admission = StreamAdmission(STREAMS_OF_EVERYBODY)
    for _ in range(STREAMS_OF_EVERYBODY):
        assert admission.admit("one")
    assert not admission.admit("one")
    admission.release("one")
    assert admission.admit("one")


def test_large_responses_that_nobody_reads_are_bounded() -> None:
    """Beyond the bound a large response is refused, a small one never; the first passes whatever its size."""
    unread = UnreadResponses(100, counted_from_bytes=10)
    assert unread.admit(150) == 150
    assert unread.admit(10) is None
    assert unread.admit(9) == 0
    unread.release(150)
    assert unread.admit(100) == 100
