"""Goes through all partitions of a running cluster, one after the other, and makes the report.

Read-only: every request is one that a consumer sends. A replica that cannot be asked is a note, and the audit is
inconclusive; one partition's trouble ends no other partition's comparison. What lay above the high watermarks is looked
after at the end, for all partitions at once. A broker that cannot be asked is left out, and told of once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_audit.catalogue import DELIVERED_LOST
from odradek_audit.engine.conclusion import explained
from odradek_audit.findings import FindingSink, Note
from odradek_audit.inputs.facts import BLOCK_OFFSETS
from odradek_audit.inputs.layout import COMPACTED_TOPICS
from odradek_audit.live import wire
from odradek_audit.live.compacted import compare_compacted
from odradek_audit.live.digests import Digests, RememberedRange
from odradek_audit.live.partition import (
    WAIT_MS,
    PartitionComparison,
    ReplicaStream,
    ReplicaUnreadable,
    compare,
    judge_epochs,
    judge_memory,
)
from odradek_audit.live.security import IN_THE_CLEAR, LiveSecurity
from odradek_audit.live.tails import Tail, look_again, some
from odradek_audit.report import Report
from odradek_audit.report.model import LIVE
from odradek_audit.results import PartitionSummary, ReplicaSummary

TIMEOUT_S = 30.0
FIRST_TIMEOUT_S = 10.0
"""Of the request that says who is in the cluster: it reads nothing from a disk, and any broker answers it."""
ATTEMPTS = 3
"""Of a partition whose leader changes while it is compared."""
LAG_S = 30.0
"""`replica.lag.time.max.ms`, Kafka's default: a replica in sync has by then all that its leader had."""
LOOK_EVERY_S = 0.2
DELETED = "deleted"


@dataclass(frozen=True)
class LiveRequest:
    """What is asked of a live audit. `quota` is bytes a second from all brokers together, 0 for no limit."""

    bootstrap: Sequence[tuple[str, int]]
    topics: Sequence[str] | None = None
    quota: float = 0.0
    from_start: bool = False
    security: LiveSecurity = IN_THE_CLEAR


@dataclass(frozen=True)
class LiveProgress:
    """Partitions done of all, bytes that came, and the partition at hand."""

    done: int
    total: int
    received: int
    partition: str


class BrokerFailed(wire.WireError):
    """One broker, by its id, does not run, does not answer, or answers nonsense."""

    def __init__(self, broker: int, message: str) -> None:
        super().__init__(message)
        self.replica = str(broker)


@dataclass
class LeftOut:
    """Why a broker could not be asked first, and names of the partitions that were compared without it, and of those
    that were not compared at all since it leads them."""

    reason: str
    without: list[str] = field(default_factory=list)
    led: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        told = (("not compared on it", self.without), ("not compared at all", self.led))
        return "; ".join((self.reason, *(f"{what}: {some(names)}" for what, names in told if names)))


class QuotaThrottle:
    """Holds back whoever receives more than a quota, by the second."""

    def __init__(self, quota: float) -> None:
        self.quota = quota
        self.received = 0
        self.started = time.monotonic()

    def add(self, size: int) -> None:
        self.received += size
        if self.quota:
            ahead_s = self.received / self.quota - (time.monotonic() - self.started)
            if ahead_s > 0:
                time.sleep(ahead_s)


@dataclass
class BrokerConnections:
    """Connections to the brokers, made when they are first used."""

    bootstrap: Sequence[tuple[str, int]]
    throttle: QuotaThrottle
    security: LiveSecurity = IN_THE_CLEAR
    brokers: dict[int, wire.BrokerAddress] = field(default_factory=dict)
    open: dict[int, wire.Connection] = field(default_factory=dict)
    waits: Callable[[str], None] = lambda who: None
    silent: dict[wire.BrokerAddress, wire.WireError] = field(default_factory=dict)
    """Who has timed out, and so is asked no more: each time would cost as long again."""
    heard: set[int] = field(default_factory=set)
    """Brokers that have answered."""
    left_out: dict[tuple[int, str], LeftOut] = field(default_factory=dict)
    """By broker, and by what it answers if it answers."""
    deleted: set[str] = field(default_factory=set)
    """Topics that were there when the audit began."""

    def metadata(self, topics: Sequence[str] | None) -> wire.ClusterMetadata:
        """As the first broker that answers knows it, who answered last before the others. Raises `WireError`."""
        failed: list[wire.WireError] = []
        known = [wire.BrokerAddress(*each) for each in self.bootstrap]
        timeout_s = TIMEOUT_S if self.brokers else FIRST_TIMEOUT_S
        for address in dict.fromkeys([*known, *self.brokers.values()]):
            if address in self.silent:
                failed.append(self.silent[address])
                continue
            try:
                connection = self._dialled(address, f"{address.host}:{address.port}", timeout_s)
                try:
                    found = wire.metadata(connection, topics)
                finally:
                    connection.close()
            except wire.WireError as error:
                failed.append(error)
                if error.timed_out:
                    self.silent[address] = error
                continue
            self.bootstrap = [address, *(each for each in known if each != address)]
            self.brokers.update(found.brokers)
            return found
        said = "; ".join(dict.fromkeys(map(str, failed)))
        unreachable = [error for error in failed if isinstance(error, wire.WireUnreachable)]
        raise wire.WireUnreachable(said, unreachable[0].hint) if unreachable else wire.WireError(said)

    def ask(self, broker: int, ask: Callable[[wire.Connection], wire.T]) -> wire.T:
        """Raises `BrokerFailed`."""
        address = self.brokers.get(broker)
        try:
            if address is None:
                raise wire.WireError("is not in the cluster's metadata: it does not run")
            if address in self.silent:
                raise self.silent[address]
            if broker not in self.open:
                who = f"broker {broker} ({address.host}:{address.port})"
                self.open[broker] = self._dialled(address, who, TIMEOUT_S)
                self.open[broker].has_answered |= broker in self.heard
            answer = ask(self.open[broker])
        except wire.WireError as error:
            self.drop(broker)
            if error.timed_out and address is not None:
                self.silent[address] = error
            said = f": {error}" if address is not None else f" {error}"
            if isinstance(error, wire.WireHungUp):
                said = " hung up during the audit: it may have been stopped"
            raise BrokerFailed(broker, f"broker {broker}{said}") from error
        self.heard.add(broker)
        return answer

    def leave_out(self, failed: BrokerFailed | ReplicaUnreadable, partition: str, *, leads: bool) -> None:
        """For the report: its partitions are told of in one line."""
        answer = str(failed) if isinstance(failed, ReplicaUnreadable) else ""
        left = self.left_out.setdefault((int(failed.replica), answer), LeftOut(str(failed)))
        (left.led if leads else left.without).append(partition)

    def _dialled(self, address: wire.BrokerAddress, who: str, timeout_s: float) -> wire.Connection:
        return wire.Connection(*address, timeout_s, self.throttle.add, self.security, lambda: self.waits(who))

    def drop(self, broker: int) -> None:
        """After a failure the next answer on a connection could be that to an earlier request."""
        if broker in self.open:
            self.open.pop(broker).close()

    def close(self) -> None:
        for broker in list(self.open):
            self.drop(broker)


@dataclass
class BrokersCopy:
    """A replica of a partition, by its broker."""

    cluster: BrokerConnections
    broker: int
    topic: str
    partition: int
    _wait_ms: int = 0  # the first fetch says what there is: most partitions of a cluster may be empty

    def fetch(self, offset: int, max_bytes: int) -> tuple[int, int, int, bytes]:
        wait_ms, self._wait_ms = self._wait_ms, WAIT_MS
        found = self._ask(lambda each: wire.fetch(each, self.topic, self.partition, offset, max_bytes, wait_ms))
        return found.error, found.high_watermark, found.log_start, found.records

    def high_watermark(self, offset: int) -> tuple[int, int]:
        found = self._ask(lambda each: wire.fetch(each, self.topic, self.partition, offset, 1, 0))
        return found.error, found.high_watermark

    def earliest(self) -> tuple[int, int]:
        return self._ask(lambda connection: wire.log_bound(connection, self.topic, self.partition, wire.EARLIEST))

    def latest(self) -> tuple[int, int]:
        return self._ask(lambda connection: wire.log_bound(connection, self.topic, self.partition, wire.LATEST))

    def epoch_end(self, epoch: int) -> tuple[int, int, int]:
        return self._ask(lambda connection: wire.epoch_end(connection, self.topic, self.partition, epoch))

    def _ask(self, ask: Callable[[wire.Connection], wire.T]) -> wire.T:
        return self.cluster.ask(self.broker, ask)


def audit_cluster(
    request: LiveRequest,
    open_digests: Callable[[str], Digests | None],
    progress: Callable[[LiveProgress], None] | None = None,
    beforehand: Callable[[int | None], None] = lambda size: None,
    waits: Callable[[str], None] = lambda who: None,
) -> tuple[Report, Digests | None]:
    """Compare all replicas. `open_digests` is given the cluster's id, `beforehand` the bytes of all logs (None:
    brokers do not say), `waits` the name of a broker that has not answered for some seconds. Raises `WireError` when no
    broker answers."""
    started = time.monotonic()
    throttle = QuotaThrottle(request.quota)
    cluster = BrokerConnections(request.bootstrap, throttle, request.security, waits=waits)
    try:
        known = cluster.metadata(request.topics)
        digests = open_digests(known.cluster_id)
        report = Report(LIVE, {str(node): f"{each.host}:{each.port}" for node, each in sorted(known.brokers.items())})
        for topic, error in sorted(known.errors.items()):
            report.inconclusive.append(f"the topic {topic} cannot be described: {ErrorCode.from_number(error).name}")
        compacted = _compacted(cluster, known, report)
        sizes = _sizes(cluster, known)
        beforehand(None if sizes is None else sum(sum(each.values()) for each in sizes.values()))
        tails: dict[TopicPartition, Tail] = {}
        for done, state in enumerate(known.partitions):
            name = f"{state.topic}-{state.partition}"
            if progress is not None:
                progress(LiveProgress(done, len(known.partitions), throttle.received, name))
            before = digests.partitions.get(name) if digests is not None else None
            of_logs = (sizes or {}).get((state.topic, state.partition), {})
            audited = _Audited(cluster, state, before, request.from_start, state.topic in compacted, of_logs)
            after = audited.into(report)
            if digests is not None and after is not None:
                digests.partitions[name] = after
            if audited.tail is not None:
                tails[audited.tail.place] = audited.tail

        def waits_for(tail: Tail) -> None:
            if progress is not None:
                progress(LiveProgress(len(known.partitions), len(known.partitions), throttle.received, str(tail.place)))

        ends = time.monotonic() + LAG_S
        try:
            forget = partial(_forget_gone, cluster)
            look_again(tails, lambda: time.monotonic() >= ends, lambda: time.sleep(LOOK_EVERY_S), waits_for, forget)
        except KeyboardInterrupt:
            report.inconclusive.append("interrupted before all high watermarks had been looked at again")
        _forget_gone(cluster, tails)
        for tail in tails.values():
            sink = FindingSink(tail.place.topic, tail.place.partition)
            tail.into(sink)
            report.notes += sink.notes
            report.inconclusive.append(sink.notes[-1].sentence)
        report.inconclusive += [left.sentence() for _, left in sorted(cluster.left_out.items())]
        for topic in sorted(cluster.deleted):
            said = f"the topic {topic} was deleted during the audit: what was not compared by then does not count"
            report.notes.append(Note(DELETED, topic, -1, "", said))
    finally:
        cluster.close()
    if not report.partitions:
        report.inconclusive.append("no partition was compared")
    report.seconds = time.monotonic() - started
    return report, digests


def _forget_gone(cluster: BrokerConnections, tails: dict[TopicPartition, Tail]) -> None:
    """Partitions that were deleted, and replicas that were moved away, since they were compared."""
    if not tails:
        return
    try:
        known = cluster.metadata(sorted({place.topic for place in tails}))
    except wire.WireError:
        return
    assigned = {TopicPartition(each.topic, each.partition): {*map(str, each.replicas)} for each in known.partitions}
    gone = {topic for topic, error in known.errors.items() if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    cluster.deleted |= gone
    for place, tail in list(tails.items()):
        if place.topic in known.errors.keys() - gone:
            continue
        if not tail.keep(assigned.get(place, ())):
            del tails[place]


def _sizes(cluster: BrokerConnections, known: wire.ClusterMetadata) -> dict[tuple[str, int], dict[int, int]] | None:
    """Bytes of the logs that will be compared, by partition and broker, if every broker says."""
    found: dict[tuple[str, int], dict[int, int]] = {(state.topic, state.partition): {} for state in known.partitions}
    for broker in sorted({replica for state in known.partitions for replica in state.replicas}):
        try:
            sizes = cluster.ask(broker, wire.log_sizes)
        except BrokerFailed:
            return None
        if sizes is None:
            return None
        for place in found.keys() & sizes.keys():
            found[place][broker] = sizes[place]
    return found


def _compacted(cluster: BrokerConnections, known: wire.ClusterMetadata, report: Report) -> set[str]:
    """Topics whose replicas clean on their own."""
    topics = sorted({state.topic for state in known.partitions})
    found = COMPACTED_TOPICS & set(topics)
    policies: dict[str, str] = {}
    failed: list[BrokerFailed] = []
    for broker in sorted(known.brokers) if topics else ():
        try:
            policies = cluster.ask(broker, lambda connection: wire.cleanup_policies(connection, topics))
            break
        except BrokerFailed as error:
            failed.append(error)
    else:
        if failed:
            report.inconclusive.append(f"nobody says which topics are compacted: {failed[0]}")
    unsaid = [topic for topic in topics if topic not in policies and topic not in found]
    if unsaid:
        report.inconclusive.append(
            f"the settings of {', '.join(unsaid[:5])}{' and others' if len(unsaid) > 5 else ''} may not be read "
            "(DescribeConfigs): they are taken for not compacted"
        )
    return {*found, *(topic for topic, policy in policies.items() if "compact" in policy)}


@dataclass
class _Audited:
    """One partition on its way into the report."""

    cluster: BrokerConnections
    state: wire.PartitionState
    before: RememberedRange | None
    from_start: bool
    compacted: bool
    sizes: dict[int, int]
    """Bytes of its logs by broker, when the audit began; none where somebody does not say."""
    tail: Tail | None = None
    """What some replica does not know to be committed, and so was not compared on all."""
    missed: dict[str, BrokerFailed | ReplicaUnreadable] = field(default_factory=dict)
    """Followers that it was compared without."""

    @property
    def name(self) -> str:
        return f"{self.state.topic}-{self.state.partition}"

    def into(self, report: Report) -> RememberedRange | None:
        """Compare, add what was found, and give what is to be remembered; None where nothing was compared."""
        if self.before is not None and self._is_as_it_was(self.before):
            report.partitions.append(self._nothing_new(self.before))
            end = self.before.end
            self.tail = self._tail(end, end, dict.fromkeys(map(str, self.state.replicas), 0), end)
            return self.before
        for attempt in range(ATTEMPTS):
            sink = FindingSink(self.state.topic, self.state.partition)
            compared, leader, failure = None, None, None
            try:
                compared, leader = self._compare_with_who_answers(sink)
                now = self._state_now()
            except OSError as error:
                compared, failure, now = None, error, self._moved()
            if now is None:
                self.cluster.deleted.add(self.state.topic)
                report.findings += explained(sink.findings)
                return None
            changed = now.leader_epoch != self.state.leader_epoch
            if changed and (sink.findings or failure or self.missed) and attempt + 1 < ATTEMPTS:
                self.state = now  # what was found may be a truncation that was under way
                continue
            break
        if isinstance(failure, BrokerFailed | ReplicaUnreadable):
            self.cluster.leave_out(failure, self.name, leads=True)
        elif failure is not None:
            sink.note("not-compared", "", f"not compared: {failure}")
            report.inconclusive.append(sink.notes[-1].sentence)
        for failed in self.missed.values():
            self.cluster.leave_out(failed, self.name, leads=False)
        report.findings += explained(sink.findings)
        report.notes += sink.notes
        if compared is None or leader is None:
            return None
        report.partitions.append(self._summary(compared, leader))
        log_end = max(compared.log_ends.values())
        if behind := {name: mark for name, mark in compared.high_watermarks.items() if mark < log_end}:
            self.tail = self._tail(compared.end, log_end, behind, max(compared.high_watermarks.values()))
        if self.missed:
            return None  # what is remembered is what all replicas had
        if self.compacted:
            last = compared.epochs[-1][0] if compared.epochs else -1
            told = sink.findings or sink.notes or self.tail is not None
            return None if told or not self.sizes else RememberedRange(compared.end, last, sizes=self.sizes)
        kept = dict(self.before.blocks) if self.before is not None else {}
        epoch = compared.epochs[-1][0] if compared.epochs else self.before.epoch if self.before is not None else -1
        lost = any(finding.check == DELIVERED_LOST.name for finding in sink.findings)
        end = compared.end if self.before is None or lost else max(compared.end, self.before.end)
        return RememberedRange(end, epoch, {**kept, **compared.blocks})

    def _compare_with_who_answers(self, sink: FindingSink) -> tuple[PartitionComparison, ReplicaStream]:
        """Without a follower that fails, from the start again: what was found on it until then is kept. Raises
        `BrokerFailed` and `ReplicaUnreadable` of the leader, and `OSError`."""
        self.missed = {}
        while True:
            tried = FindingSink(sink.topic, sink.partition)
            try:
                return self._compare(tried)
            except (BrokerFailed, ReplicaUnreadable) as error:
                if error.replica == str(self.state.leader):
                    raise
                self.missed[error.replica] = error
                tried.findings = [each for each in tried.findings if each.replica == error.replica]
                tried.notes = []
            finally:
                sink.findings += tried.findings
                sink.notes += tried.notes

    def _compare(self, sink: FindingSink) -> tuple[PartitionComparison, ReplicaStream]:
        state = self.state
        if state.leader < 0:
            raise OSError("nobody leads it")
        copies = {broker: ReplicaStream(str(broker), self._copy(broker)) for broker in self._asked()}
        leader = copies.pop(state.leader)
        error, begins = leader.source.earliest()
        if error:
            raise ReplicaUnreadable(leader.replica, f"answers {ErrorCode.from_number(error).name}")
        since = begins
        if self.before is not None and not self.from_start and not self.compacted:
            since = max(begins, self.before.end // BLOCK_OFFSETS * BLOCK_OFFSETS)
        if self.before is not None:
            judge_end = PartitionComparison(0, 0)
            judge_memory(leader, state.leader_epoch, self.before.end, {}, judge_end, sink)
            if sink.findings:
                since = begins
        beside = compare_compacted if self.compacted else compare
        compared = beside(leader, list(copies.values()), since, sink)
        compared.read = {stream.replica: stream.read for stream in (leader, *copies.values())}
        if self.before is not None:
            judge_memory(leader, state.leader_epoch, 0, self.before.blocks, compared, sink)
        judge_epochs(leader, compared, sink)
        if len(state.replicas) == 1:
            sink.note("one-replica", leader.replica, "it has one replica")
        return compared, leader

    def _asked(self) -> list[int]:
        return [broker for broker in self.state.replicas if str(broker) not in self.missed]

    def _copy(self, broker: int) -> BrokersCopy:
        return BrokersCopy(self.cluster, broker, self.state.topic, self.state.partition)

    def _tail(self, compared_to: int, log_end: int, behind: dict[str, int], committed: int) -> Tail:
        place = TopicPartition(self.state.topic, self.state.partition)
        copies = {str(broker): self._copy(broker) for broker in self._asked()}
        return Tail(place, compared_to, log_end, committed, copies, behind)

    def _is_as_it_was(self, before: RememberedRange) -> bool:
        """Whether nobody has written to a compacted partition, or cleaned it, since it was compared."""
        skipped = self.compacted and not self.from_start and self.state.leader >= 0
        return skipped and bool(self.sizes) and self.sizes == before.sizes

    def _nothing_new(self, before: RememberedRange) -> PartitionSummary:
        end, leader = before.end, str(self.state.leader)
        return PartitionSummary(self.state.topic, self.state.partition, end, end, end, 0, 0, leader)

    def _moved(self) -> wire.PartitionState | None:
        """Its leader has failed: with another leader by now, or as it was; None if its topic was deleted."""
        try:
            now = self._state_now()
        except wire.WireError:
            return self.state
        return now if now is None or now.leader >= 0 else self.state

    def _state_now(self) -> wire.PartitionState | None:
        """None if its topic was deleted. Raises `WireError`."""
        known = self.cluster.metadata([self.state.topic])
        if known.errors.get(self.state.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        return next((each for each in known.partitions if each.partition == self.state.partition), self.state)

    def _summary(self, compared: PartitionComparison, leader: ReplicaStream) -> PartitionSummary:
        last = compared.epochs[-1][0] if compared.epochs else -1
        return PartitionSummary(
            topic=self.state.topic,
            partition=self.state.partition,
            bound=compared.end,
            compared_from=compared.start,
            compared_to=compared.end,
            compared_batches=compared.batches,
            compared_records=compared.records,
            reference_replica=leader.replica,
            replicas=[
                ReplicaSummary(
                    replica=name,
                    log_start=compared.starts[name],
                    log_end=compared.log_ends[name],
                    high_watermark=mark,
                    recovery_point=None,
                    last_epoch=last,
                    batches=0,
                    records=max(mark - compared.starts[name], 0),
                    bytes=compared.read.get(name, 0),
                    segments=0,
                    epochs=compared.epochs if name == leader.replica else [],
                )
                for name, mark in sorted(compared.high_watermarks.items())
            ],
        )
