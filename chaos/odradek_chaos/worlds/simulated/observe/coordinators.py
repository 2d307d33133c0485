"""Shows the group coordinators of brokers to their checks: every call and step of a shard, and what its log says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_broker.runtime.groups.coordinator import GroupCoordinator
from odradek_broker.runtime.groups.partition import CoordinatorPartition
from odradek_proto.records import CorruptBatch

from odradek_chaos.worlds.simulated.checks.committed_groups import OFFSETS, records_after
from odradek_chaos.worlds.simulated.checks.coordinators import CoordinatorCheck
from odradek_chaos.worlds.simulated.world.world import World

LOOK_EVERY_MS = 10
ONE_COORDINATOR = "group-one-coordinator"
STEPS = {"on_written": 1, "on_time": 0, "on_topics_changed": 1}  # and where each is given its time


class CoordinatorWatch:
    """Of one incarnation of a broker, which leads partitions of the offsets topic now and then."""

    def __init__(self, world: World, broker_id: int) -> None:
        self._world = world
        self._broker_id = broker_id
        self._checks: dict[int, CoordinatorCheck] = {}  # by partition, of shards that are loaded
        self._looked_ms = 0

    def after_step(self, coordinator: GroupCoordinator) -> None:
        now_ms = coordinator.services.clock.now_ms()  # of the broker, which may run slow
        passed_ms = now_ms - self._looked_ms
        if passed_ms >= LOOK_EVERY_MS:
            self._looked_ms = now_ms
        for number, partition in coordinator.partitions.items():
            if (shard := partition.shard) is None:
                continue
            check = self._checks.get(number)
            if check is None or check.shard is not shard:
                check = self._checks[number] = self._begin(coordinator, number, shard)
            elif passed_ms >= LOOK_EVERY_MS and partition.takes_writes():
                check.passed(passed_ms, writes=partition.has_uncommitted)
            self._compare(number, partition, check)
            self._judge_leadership(f"{OFFSETS}-{number}", partition.leader_epoch)

    def _judge_leadership(self, name: str, leader_epoch: int | None) -> None:
        """Who can answer for the groups of a partition leads it, and in each leader epoch it is one broker."""
        if leader_epoch is None:
            self._report(name, ONE_COORDINATOR, f"broker {self._broker_id} coordinates its groups and does not lead it")
            return
        first = self._world.state.coordinators.setdefault((name, leader_epoch), self._broker_id)
        if first != self._broker_id:
            both = f"brokers {first} and {self._broker_id} coordinate its groups"
            self._report(name, ONE_COORDINATOR, f"{both} in leader epoch {leader_epoch}")

    def _begin(self, coordinator: GroupCoordinator, number: int, shard: GroupCoordinatorShard) -> CoordinatorCheck:
        services, name = coordinator.services, f"{OFFSETS}-{number}"
        report = partial(self._report, name)
        check = CoordinatorCheck(
            shard, services.settings, services.commit_timeout_ms, report, now_ms=services.clock.now_ms()
        )
        _tap(shard, check)
        return check

    def _report(self, partition: str, check: str, sentence: str) -> None:
        self._world.findings.report(check, sentence, self._broker_id, partition)

    def _compare(self, number: int, partition: CoordinatorPartition, check: CoordinatorCheck) -> None:
        """When something was appended, and after loading. Of damaged copies nothing can be said."""
        end, state, name = partition.log_end_offset, self._world.state, f"{OFFSETS}-{number}"
        if end == check.replayed_to or any(damaged == name for _, damaged in state.damaged):
            return
        view = state.history(name).views.get(self._broker_id)
        if view is None or (end and view.end_offset != end):
            return
        try:
            for _, records in records_after(view, check.replayed_to, end):
                check.replay(records)
        except CorruptBatch:
            return
        check.replayed_to = end
        check.compare()


def _tap(shard: GroupCoordinatorShard, check: CoordinatorCheck) -> None:
    """Nothing is changed: what a shard is given and returns is shown to its check."""
    handle, cancel = shard.handle, shard.cancel

    def handled(request: Any, token: object, now_ms: int, wall_ms: int) -> Any:
        check.asked(request, token, now_ms)
        effects = handle(request, token, now_ms, wall_ms)
        check.stepped(effects, now_ms, request)
        return effects

    def cancelled(token: object) -> None:
        check.cancelled(token)
        cancel(token)

    def stepped(step: Callable[..., Any], time_at: int, *arguments: Any) -> Any:
        effects = step(*arguments)
        check.stepped(effects, arguments[time_at])
        return effects

    taps = {name: partial(stepped, getattr(shard, name), time_at) for name, time_at in STEPS.items()}
    for name, tap in {**taps, "handle": handled, "cancel": cancelled}.items():
        setattr(shard, name, tap)
