"""What a follower makes of an answer that was damaged on its way."""

from __future__ import annotations

from odradek_proto.encoding import encode_batch
from odradek_proto.records import stamped_prefix
from odradek_proto.transport.frames import pack_frame
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.replica_world import ONE, World, run
from tests.playing import plays


def answer_with(data: bytes) -> bytes:
    """What leader 1 sends for orders-0 in epoch 0."""
    header = pb.FetchAnswerHeader()
    header.partitions.add(topic="orders", partition=0, fetch_offset=0, request_leader_epoch=0, size=len(data))
    return pack_frame(header.SerializeToString(), (data,))


@plays(run)
async def test_a_damaged_answer_is_asked_for_again(world: World) -> None:
    """Nothing of it is appended, and the same is fetched once more after a back-off (R-86)."""
    await world.learn(ONE, 0)
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    produced = encode_batch([(0, None, b"a", ())])
    sound = stamped_prefix(0, len(produced) - 12, 0) + produced[16:]
    world.leader(ONE).answers.put_nowait(answer_with(sound[:-1] + b"?"))
    await world.clock.sleep(1_000)
    assert world.log_end() == 0
    assert world.leader(ONE).asked() == [("orders", 0, 0)]
    world.leader(ONE).answers.put_nowait(answer_with(sound))
    await world.clock.sleep(1)
    assert world.log_end() == 1
