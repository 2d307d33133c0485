"""The checks of a group coordinator (K-64) fire on the smallest violation, and not on a near miss."""

from __future__ import annotations

import random

import pytest
from odradek_broker.core.groups.classic import ClassicGroup
from odradek_broker.core.groups.consumer_state import ReplayedGroup
from odradek_broker.core.groups.messages import (
    ConsumerGroupHeartbeat,
    Effect,
    GroupReply,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeavingMember,
    MemberProtocol,
    OffsetCommit,
    OffsetToCommit,
    Request,
    SyncGroup,
    WriteRecords,
)
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_broker.core.groups.waits import GroupWait, never
from odradek_broker.runtime.groups.coordinator import GroupCoordinator
from odradek_chaos.worlds.simulated.checks.coordinators import (
    LONGEST_LOOK_MS,
    LOST_MEMBER,
    MEMORY,
    OVER,
    SLACK_MS,
    WAIT,
    CoordinatorCheck,
)
from odradek_chaos.worlds.simulated.observe.coordinators import ONE_COORDINATOR
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_proto.decoding import Record
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from tests.groups.consumers import Topics
from tests.groups.group_world import SETTINGS

SESSION_MS, REBALANCE_MS, COMMIT_MS = 10_000, 20_000, 5_000
GENERATION = 1


class Stage:
    """One shard whose writes are committed at once, a group `g` of one member, and the check that sees it all."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.now_ms = 0
        ids = random.Random(1)
        self.shard = GroupCoordinatorShard(SETTINGS, Topics(), lambda: str(ids.randrange(1 << 32)))
        self.check = CoordinatorCheck(
            self.shard, SETTINGS, COMMIT_MS, lambda check, sentence: self.found.append(check), now_ms=0
        )
        self.answers: list[GroupReply] = []
        self.member_id = self.join().member_id
        self.ask(SyncGroup("g", GENERATION, self.member_id, assignments={self.member_id: b"0"}))

    def join(self, member_id: str = "") -> JoinGroupAnswer:
        protocols = (MemberProtocol("range", b""),)
        request = JoinGroup(
            "g", member_id, None, "x", protocols, SESSION_MS, REBALANCE_MS, requires_known_member_id=False
        )
        self.ask(request)
        self.pass_time(SETTINGS.initial_rebalance_delay_ms)
        answer = self.answers[-1].answer
        assert isinstance(answer, JoinGroupAnswer)
        return answer

    def ask(self, request: Request) -> None:
        token = object()
        self.check.asked(request, token, self.now_ms)
        self._carry_out(self.shard.handle(request, token, self.now_ms, self.now_ms), request)

    def pass_time(self, ms: int, steps: bool = True) -> None:
        self.now_ms += ms
        if steps:
            self._carry_out(self.shard.on_time(self.now_ms, self.now_ms))

    def _carry_out(self, effects: list[Effect], request: Request | None = None) -> None:
        self.check.stepped(effects, self.now_ms, request)
        for effect in effects:
            if isinstance(effect, WriteRecords):
                self.check.replay(Record(0, 0, key, value, ()) for key, value in effect.records)
                self._carry_out(self.shard.on_written(effect.write_id, self.now_ms))
            else:
                self.answers.append(effect)
        self.check.compare()


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    assert stage.found == []
    return stage


def test_memory_that_its_log_does_not_have(stage: Stage) -> None:
    stage.shard.groups["g"].members[stage.member_id].assignment = b"1"
    stage.check.compare()
    assert stage.found == [MEMORY]


def test_a_group_that_its_log_does_not_have(stage: Stage) -> None:
    stage.shard.groups["h"] = stage.shard.groups["g"]
    stage.check.compare()
    assert stage.found == [MEMORY]


def test_a_member_that_leaves_is_not_lost(stage: Stage) -> None:
    stage.ask(LeaveGroup("g", (LeavingMember(stage.member_id),)))
    assert stage.found == []


@pytest.mark.parametrize(("silent_ms", "found"), [(SESSION_MS - 1, [LOST_MEMBER]), (SESSION_MS, [])])
def test_a_member_that_is_removed_before_its_session_is_over_is_lost(
    stage: Stage, silent_ms: int, found: list[str]
) -> None:
    stage.ask(Heartbeat("g", GENERATION, stage.member_id))
    stage.now_ms += silent_ms
    del stage.shard.groups["g"].members[stage.member_id]
    stage.check.stepped((), stage.now_ms)
    assert stage.found == found


def test_a_static_member_that_is_away_for_a_while_is_removed_with_its_session(stage: Stage) -> None:
    """It says so with the epoch -2, by which no session begins anew (K-59)."""
    joined = ConsumerGroupHeartbeat("k", "m", 0, "static", None, REBALANCE_MS, ("t",), owned={})
    stage.ask(joined)
    stage.pass_time(SETTINGS.consumer_session_timeout_ms - 1)
    stage.ask(ConsumerGroupHeartbeat("k", "m", -2, "static"))
    assert stage.answers[-1].answer.error is ErrorCode.NONE
    stage.ask(Heartbeat("g", GENERATION, stage.member_id))
    stage.pass_time(1)
    assert "m" not in (group.members if (group := stage.shard.consumers.get("k")) is not None else ())
    assert stage.found == []


def test_a_member_that_commits_and_does_not_join_again_is_removed_with_the_rebalance(stage: Stage) -> None:
    """Commits keep its session, and yet the others wait for it only so long (K-50)."""
    protocols = (MemberProtocol("range", b""),)
    stage.ask(JoinGroup("g", "", None, "x", protocols, SESSION_MS, REBALANCE_MS, requires_known_member_id=False))
    commit = OffsetCommit("g", GENERATION, stage.member_id, None, (OffsetToCommit(TopicPartition("t", 0), 1),))
    for _ in range(REBALANCE_MS // 100):
        stage.pass_time(99)
        stage.ask(commit)
        stage.pass_time(1)
    assert stage.member_id not in stage.shard.groups["g"].members
    assert stage.found == []


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_member_that_does_not_sync_is_removed_or_found(monkeypatch: pytest.MonkeyPatch, forgotten: bool) -> None:
    """Heartbeats do not help it (K-49)."""
    if forgotten:
        monkeypatch.setattr(ClassicGroup, "_on_sync_phase_over", lambda group, outcome: None)
    stage = Stage()
    joined = stage.join(stage.member_id)
    for _ in range((REBALANCE_MS + SLACK_MS) // LONGEST_LOOK_MS + 1):
        stage.pass_time(LONGEST_LOOK_MS)
        stage.ask(Heartbeat("g", joined.generation_id, stage.member_id))
        stage.check.passed(LONGEST_LOOK_MS, writes=False)
    assert (stage.member_id in stage.shard.groups["g"].members) is forgotten
    assert stage.found == ([WAIT] if forgotten else [])


def test_a_commit_of_an_older_epoch_that_is_taken_is_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a member of KIP-848 (K-60): refused as it should be, and then taken."""
    stage.ask(ConsumerGroupHeartbeat("k", "m", 0, None, None, REBALANCE_MS, ("t",), owned={}))
    group = stage.shard.consumers.get("k")
    assert group is not None
    epoch = group.members["m"].current.epoch
    commits = [
        OffsetCommit("k", each, "m", None, (OffsetToCommit(TopicPartition("t", 0), 1),)) for each in (epoch, epoch - 1)
    ]
    for commit in commits:
        stage.ask(commit)
    assert stage.found == []
    monkeypatch.setattr(ReplayedGroup, "validate_commit", lambda group, member_id, instance_id, epoch: ErrorCode.NONE)
    for commit in commits:
        stage.ask(commit)
    assert stage.found == [OVER]


def test_a_process_whose_place_is_taken_and_that_is_not_told_so_is_found(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would join anew, and take the place back (K-51)."""
    protocols = (MemberProtocol("range", b""),)
    join = JoinGroup("h", "", "i", "x", protocols, SESSION_MS, REBALANCE_MS, requires_known_member_id=False)
    stage.ask(join)
    stage.pass_time(SETTINGS.initial_rebalance_delay_ms)
    first = stage.answers[-1].answer
    assert isinstance(first, JoinGroupAnswer)
    stage.ask(join)
    late = Heartbeat("h", first.generation_id, first.member_id, "i")
    stage.ask(late)
    assert (stage.answers[-1].answer.error, stage.found) == (ErrorCode.FENCED_INSTANCE_ID, [])
    monkeypatch.setattr(ClassicGroup, "_validate", lambda group, member_id, instance_id: ErrorCode.UNKNOWN_MEMBER_ID)
    stage.ask(late)
    assert stage.found == [OVER]


@pytest.mark.parametrize(("late_ms", "found"), [(0, []), (LONGEST_LOOK_MS, [WAIT])])
def test_a_member_that_stays_behind_its_session_is_found(stage: Stage, late_ms: int, found: list[str]) -> None:
    for _ in range((SESSION_MS + SLACK_MS + late_ms) // LONGEST_LOOK_MS):
        stage.check.passed(60_000, writes=False)  # a frozen process makes of it no more than a look
    assert stage.found == found


def test_a_static_member_that_does_not_join_again_has_another_session_with_the_next_generation(stage: Stage) -> None:
    """As in Kafka: the join phase ends without it, and then it is to sync (K-47)."""
    facts = "x", (MemberProtocol("range", b""),), SESSION_MS, SESSION_MS - 1_000
    stage.ask(JoinGroup("h", "", "i", *facts, requires_known_member_id=False))
    stage.pass_time(SETTINGS.initial_rebalance_delay_ms)
    joined = stage.answers[-1].answer
    assert isinstance(joined, JoinGroupAnswer)
    stage.ask(SyncGroup("h", joined.generation_id, joined.member_id, "i", assignments={}))
    stage.ask(JoinGroup("h", "", None, *facts, requires_known_member_id=False))
    for _ in range((SESSION_MS + 2 * SLACK_MS) // LONGEST_LOOK_MS):
        stage.ask(Heartbeat("g", GENERATION, stage.member_id))
        stage.pass_time(LONGEST_LOOK_MS)
        stage.check.passed(LONGEST_LOOK_MS, writes=False)
    group = stage.shard.groups["h"]
    assert (group.generation_id, set(group.static), stage.found) == (joined.generation_id + 1, {"i"}, [])


@pytest.mark.parametrize(
    ("writes", "most_ms"), [(False, REBALANCE_MS + SLACK_MS), (True, REBALANCE_MS + SLACK_MS + COMMIT_MS)]
)
def test_a_call_that_is_not_answered_is_found(stage: Stage, writes: bool, most_ms: int) -> None:
    """A sync of a member that nobody answers; it waits, so its session does not end."""
    stage.check.asked(SyncGroup("g", GENERATION, stage.member_id), object(), stage.now_ms)
    stage.shard.groups["g"].members[stage.member_id].sync = object()
    stage.check.stepped((), stage.now_ms)
    for _ in range(most_ms // LONGEST_LOOK_MS):
        stage.check.passed(LONGEST_LOOK_MS, writes=writes)
    assert stage.found == []
    stage.check.passed(LONGEST_LOOK_MS, writes=writes)
    assert stage.found == [WAIT]


def test_members_that_were_loaded_without_a_session_are_found(stage: Stage) -> None:
    """K-42: the sooner of two sessions counts, so a shard that has a member's timer is not found."""
    for due_ms, found in ((SESSION_MS, []), (SESSION_MS + 1, [WAIT])):
        shard = GroupCoordinatorShard(SETTINGS, Topics(), str)
        shard.groups = stage.shard.groups
        shard.waits.register(GroupWait(deadline_ms=due_ms, is_over=never, then=lambda _: None))
        CoordinatorCheck(shard, SETTINGS, COMMIT_MS, lambda check, _: stage.found.append(check), now_ms=0)
        assert stage.found == found


def test_a_second_answer_is_found(stage: Stage) -> None:
    stage.check.stepped(stage.answers[-1:], stage.now_ms)
    assert stage.found == [WAIT]


def is_found_by_a_seed(check: str) -> bool:
    """Seeds in which brokers cease to lead and live on."""
    results = (run_seed(seed, Options(members=3, faults_ms=2_500)) for seed in (11, 12, 9, 8))
    return any(check in {finding.check for finding in result.findings} for result in results)


def test_a_seed_finds_memory_that_no_record_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks see the coordinators of a run: one with another leader of its groups than its log."""
    began = GroupCoordinator.on_metadata

    def on_metadata(self: GroupCoordinator, *arguments: object) -> None:
        began(self, *arguments)  # type: ignore[arg-type]  # whatever it is given
        for shard in self.shards():
            for group in shard.groups.values():
                group.leader = "nobody"

    monkeypatch.setattr(GroupCoordinator, "on_metadata", on_metadata)
    assert is_found_by_a_seed(MEMORY)


def test_a_seed_finds_a_broker_that_goes_on_as_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the groups in memory, and another broker leads their partition."""
    monkeypatch.setattr(GroupCoordinator, "ceased", lambda coordinator, tp: None)
    assert is_found_by_a_seed(ONE_COORDINATOR)
