"""One core by itself, for tests that put words into the mouths of the others."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

from odradek_broker.core.partition.epochs import EpochCache, EpochEntry
from odradek_broker.core.partition.messages import ReplicaLog
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import (
    AnswerFetches,
    Effect,
    Fetch,
    QuorumConfig,
    QuorumFetchAnswer,
    QuorumReply,
    QuorumState,
    ReplyRecords,
    SendRequest,
    Vote,
    VoteAnswer,
)
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

METADATA = TopicPartition("__cluster_metadata", 0)
E = TypeVar("E")
NOW = 10_000
NEVER_EARLY = 1_000_000  # an empty fetch waits as long as this


def core_with(
    state: QuorumState | None = None,
    *,
    node_id: int = 1,
    voters: int = 3,
    epochs: Sequence[tuple[int, int]] = (),
    log_end_offset: int = 0,
    high_watermark: int = 0,
) -> QuorumCore:
    """A core that has not started. `epochs` are (epoch, start offset) of its log, all of it flushed."""
    cache = EpochCache(EpochEntry(*entry) for entry in epochs)
    log = ReplicaLog(METADATA, bytes(16), 0, log_end_offset, high_watermark, cache, ProducerStates(), log_end_offset)
    config = QuorumConfig(node_id, tuple(range(1, voters + 1)))
    return QuorumCore(config, log, state or QuorumState(), random.Random(7))


def leader_with(
    *, voters: int = 3, epochs: Sequence[tuple[int, int]] = (), log_end_offset: int = 0, epoch: int = 4
) -> QuorumCore:
    """Node 1, just elected in `epoch`; nothing of its epoch is flushed yet."""
    state = QuorumState(epoch, voted_id=1)
    core = core_with(state, voters=voters, epochs=epochs, log_end_offset=log_end_offset)
    asked = of(core.start(NOW), SendRequest)
    for send in asked[: voters // 2]:
        core.on_answer(send, VoteAnswer(ErrorCode.NONE, -1, epoch, granted=True), NOW)
    assert core.leader_id == 1, core.role
    return core


def of(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def vote(core: QuorumCore, epoch: int, candidate: int, *, last: tuple[int, int], pre: bool = False) -> VoteAnswer:
    """The answer to a vote; `last` is (last epoch, log end offset) of the candidate."""
    effects = core.on_request(Vote(epoch, candidate, last[0], last[1], pre), "vote", NOW)
    answer = of(effects, QuorumReply)[-1].answer
    assert isinstance(answer, VoteAnswer)
    return answer


def fetch(
    core: QuorumCore,
    replica: int,
    offset: int,
    last_epoch: int,
    *,
    known: int = NEVER_EARLY,
    epoch: int | None = None,
    wait_ms: int = 500,
    now_ms: int = NOW,
) -> list[Effect]:
    """What follows from a fetch, until the next turn. `known` is the high watermark that the sender knows."""
    asked = Fetch(replica, core.state.epoch if epoch is None else epoch, offset, last_epoch, known, wait_ms, 1 << 20)
    return a_turn_later(core, core.on_request(asked, f"fetch of {replica} at {offset}, {now_ms}", now_ms), now_ms)


def a_turn_later(core: QuorumCore, effects: list[Effect], now_ms: int = NOW) -> list[Effect]:
    """With what follows in the next turn, if fetches are to be answered then."""
    return effects + core.answer_fetches(now_ms) if of(effects, AnswerFetches) else effects


def fetched(effects: Iterable[Effect]) -> QuorumFetchAnswer | None:
    """The answer to a fetch, None while it waits."""
    for effect in effects:
        if isinstance(effect, QuorumReply | ReplyRecords) and isinstance(effect.answer, QuorumFetchAnswer):
            return effect.answer
    return None


def answered(effects: Iterable[Effect]) -> QuorumFetchAnswer:
    """The answer to a fetch, which is not to wait."""
    answer = fetched(effects)
    assert answer is not None
    return answer


def leading(core: QuorumCore) -> Leader:
    """What a core is that leads."""
    assert isinstance(core.role, Leader)
    return core.role
