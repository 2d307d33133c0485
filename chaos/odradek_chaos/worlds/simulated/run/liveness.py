"""Liveness: whether all is well again, with every fault healed or with a healthy core alone (C.4 of verification)."""

from __future__ import annotations

from collections.abc import Collection

from odradek_audit.inputs.history import ERROR
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.run.load import ClusterLoad
from odradek_chaos.worlds.simulated.world.quiescence import undecided
from odradek_chaos.worlds.simulated.world.world import World

# Each counts from the end of the faults and a session timeout. C.4 gives L2 five seconds without one, which cannot be
# where a session has to time out first, of a leader that ended in the last moment.
LEADERS_MS = 3_000  # L1: every partition has had a leader
ACKNOWLEDGEMENTS_MS = 5_000  # L2: every partition has acknowledged
ERRORS_MS = 10_000  # L2: no writer is told of an error any more
ISRS_MS = 10_000  # L4: every ISR is full; so long after the backlog was copied
LIVENESS_MS = 20_000  # L4: and in any case, whatever there was to copy
EPOCHS_PER_WINDOW = 3  # L7: new leader epochs of one partition
WINDOW_MS = 10_000
MOST_LEFT_BYTES = 3_000  # on a disk that is full for ever
WAYS_TO_BREAK = ("dead", "frozen", "cut", "mute", "deaf", "unreachable", "full")


def not_in_sync(world: World, besides: int = 0, unowed: Collection[TopicPartition] = ()) -> str:
    """The first partition without a leader or a full ISR, as a sentence; empty when there is none.

    A broker that a forged registration made up is never in sync; it gets replicas while too few others are unfenced.
    """
    image, brokers = world.cluster.newest_image(), world.cluster.shape.brokers
    for tp in world.every_partition():
        if tp in unowed:
            continue
        registration = image.partition(tp)
        if registration is None:
            return f"{tp} is unknown"
        if registration.reassigning and not besides:
            return f"{tp} is on its way to other replicas: +{list(registration.adding)} -{list(registration.removing)}"
        owed = [each for each in registration.replicas if each in brokers and each != besides]
        missing = [each for each in owed if each not in registration.isr]
        if registration.leader < 0 or missing:
            return f"{tp} has leader {registration.leader} and ISR {list(registration.isr)}"
    return ""


def acknowledged_since(world: World, load: ClusterLoad, since_ms: int, unowed: Collection[TopicPartition] = ()) -> bool:
    """Whether every partition has acknowledged a record since then; of a script, those that wait for an answer."""
    return all(_acknowledged(load, (tp.topic, tp.partition), since_ms) for tp in world.partitions if tp not in unowed)


def _acknowledged(load: ClusterLoad, partition: tuple[str, int], since_ms: int) -> bool:
    if load.script is not None and not load.ledger.in_flight.get(partition):
        return True
    known = load.ledger.progress.get(partition)
    return known is not None and known.last_ack_ms is not None and known.last_ack_ms > since_ms


def unhealthy_without(world: World, broken: int, unowed: Collection[TopicPartition] = ()) -> str:
    """The first partition that the broken machine leads, or that lacks another one in its ISR; empty: all is well."""
    sentence, image = not_in_sync(world, broken, unowed), world.cluster.newest_image()
    if sentence:
        return sentence
    for tp in world.every_partition():
        registration = image.partition(tp)
        if registration is not None and registration.leader == broken and tp not in unowed:
            return f"{tp} is led by the broken b{broken}"
    return ""


def break_one_for_ever(world: World, way: str = "") -> int:
    """Heal everything but one machine, which stays dead, frozen, cut off, mute, deaf, unreachable or full.

    Returns its id.

    Everybody that holds the last copy of something must stay well: 0 when that leaves nobody to break, or when it is
    not decided yet who that is. Faults that began earlier and end from now on do not mend it. Without a `way` the
    seed takes one.
    """
    rng = world.loop.fork_rng("core")
    expendable = [broker_id for broker_id in world.cluster.machines if can_do_without(world, broker_id)]
    drawn = rng.choice(WAYS_TO_BREAK)
    way = way or drawn
    if (
        not expendable
        or undecided(world.state, world.cluster)
        or world.exemptions.damaged
        or not world.copies.voters_are_sound()
        or world.quiescence.is_reserved
        or not world.expectations.recovers
    ):
        return 0
    broken = rng.choice(expendable)
    if way == "unreachable" and not world.plan.settings.odradek_elr_enable and waits_for_a_follower(world, broken):
        return 0
    world.heal(besides=broken)
    world.faults.counts[f"core-{way}"] += 1
    world.buggify.reached("core-phase")
    world.timeline.note("!core", broken, way=way)
    machine, fabric = world.cluster.machines[broken], world.cluster.fabric
    machine.resume()
    if way == "dead":
        machine.kill()
        world.faults.keep(broken)
    elif way == "full":
        world.faults.start(broken)
        world.faults.fill_until_healed(broken, rng.randrange(MOST_LEFT_BYTES), world.exemptions.tampered_with(broken))
    elif way == "frozen":
        world.faults.start(broken)
        machine.pause()
        world.faults.keep(broken)
    else:
        world.faults.start(broken)
        everybody = [*world.cluster.machines.values(), *world.cluster.clients]
        if way == "unreachable":
            others = [other.name for other in everybody if other is not machine]
            fabric.make_unreachable(machine.name, others, for_ever=True)
        for other in everybody:
            if other is not machine and way in ("cut", "deaf"):
                fabric.cut_for_ever(other.name, machine.name)
            if other is not machine and way in ("cut", "mute"):
                fabric.cut_for_ever(machine.name, other.name)
    return broken


def can_do_without(world: World, broken: int) -> bool:
    """Whether every partition has a member of its ISR besides this one that is well now, and stays so by itself.

    One that is down is not: when it comes back it leaves the ISR, unless it is the last. And the others must be enough
    for min.insync.replicas.
    """
    image, min_isr = world.cluster.newest_image(), world.plan.options.min_insync_replicas
    for tp in world.every_partition():
        registration = image.partition(tp)
        if registration is None or not any(
            world.quiescence.is_healthy(each) for each in registration.isr if each != broken
        ):
            return False
        target = [each for each in registration.replicas if each not in registration.removing]
        for members in (registration.replicas, target):  # a reassignment may end meanwhile
            if sum(each != broken for each in members) < min(min_isr, len(members)):
                return False
    return True


def waits_for_a_follower(world: World, leader: int) -> bool:
    """Whether a member of an ISR has not fetched all from its leader.

    If it cannot any more it leaves the ISR after the lag time. When that comes before the others notice, and there are
    no eligible leader replicas, the leader is alone and nobody may take over: R-147 does not owe that.
    """
    for replica in world.cluster.hosted(leader).values():
        role = replica.role
        if isinstance(role, LeaderPartition):
            others = [each for each in role.replicas.isr.committed if each != leader]
            if any(role.replicas.by_id[each].log_end_offset < role.log.log_end_offset for each in others):
                return True
    return False


def elected_unheard(world: World, broken: int) -> list[TopicPartition]:
    """What the machine that nobody reaches leads alone, while nobody has fetched from it in its epoch.

    An election or a command that was under way when it broke has made it the leader: the same holds as for a leader
    that waits for a follower.
    """
    if world.plan.settings.odradek_elr_enable or not world.faults.counts["core-unreachable"]:
        return []
    image, found = world.cluster.newest_image(), []
    for tp, replica in world.cluster.hosted(broken).items():
        role, registration = replica.role, image.partition(tp)
        if isinstance(role, LeaderPartition) and registration is not None and registration.isr == (broken,):
            ends = {each: remote.log_end_offset for each, remote in role.replicas.by_id.items() if each != broken}
            if role.leader_epoch == registration.leader_epoch and max(ends.values(), default=-1) < 0:
                found.append(tp)
    return found


class LivenessCheck:
    """L1, L2 and L4, each judged by its own bound from the moment on at which all faults end.

    The backlog of that moment is what was committed by then: it is copied when every replica has that, and each copy
    that was damaged is replaced. Nothing is judged where no recovery is owed.
    """

    def __init__(self, world: World, load: ClusterLoad) -> None:
        self.began_ms = self._copied_ms = world.now_ms
        self._world = world
        self._load = load
        self._session_ms = world.plan.settings.broker_session_timeout_ms
        self._committed = {str(tp): world.state.committed_end(str(tp)) for tp in world.partitions}
        self._were_led = False

    def is_healthy(self) -> bool:
        """Whether all is well again; what is too late by now is a finding. Asked again and again."""
        world = self._world
        state, acknowledged = not_in_sync(world), acknowledged_since(world, self._load, self.began_ms)
        is_healthy = world.operator.is_done and not state and acknowledged
        if not is_healthy and world.expectations.recovers:
            self._judge(state, acknowledged)
        return is_healthy

    def give_up(self) -> None:
        """All was not well within the outermost bound."""
        waits = "a damaged copy is not replaced" if not self._world.operator.is_done else "no acknowledgement"
        if self._world.expectations.recovers:
            self._report("L4", not_in_sync(self._world) or waits)

    def judge_errors(self) -> None:
        """The second half of L2, when no writer writes any more."""
        bound_ms = self.began_ms + self._session_ms + ERRORS_MS
        late = [event for event in self._load.ledger.events if event.type == ERROR and event.time_ms > bound_ms]
        if late and self._world.expectations.recovers:
            first = late[0]
            told = f"{first.client} is told of an error {first.time_ms - self.began_ms} ms after the faults ended"
            partition = f"{first.topic}-{first.partition}"
            self._world.findings.report("not-healthy-again", f"L2: {told}", partition=partition)

    def _judge(self, state: str, acknowledged: bool) -> None:
        now_ms, leaderless = self._world.now_ms, self._leaderless()
        self._were_led = self._were_led or not leaderless
        if self._has_backlog():
            self._copied_ms = now_ms
        passed_ms = now_ms - self.began_ms - self._session_ms
        if not self._were_led and passed_ms > LEADERS_MS:
            self._report("L1", f"{leaderless} has no leader, and they never had one all at a time")
        elif not acknowledged and passed_ms > ACKNOWLEDGEMENTS_MS:
            self._report("L2", "a partition has acknowledged nothing")
        elif state and now_ms > self._copied_ms + self._session_ms + ISRS_MS:
            copied = f"everything was copied {self._copied_ms - self.began_ms} ms after the faults ended"
            self._report("L4", f"{state}; {copied}")

    def _report(self, bound: str, state: str) -> None:
        passed_ms = self._world.now_ms - self.began_ms
        self._world.findings.report("not-healthy-again", f"{bound}: {passed_ms} ms after the faults ended: {state}")

    def _leaderless(self) -> str:
        image = self._world.cluster.newest_image()
        for tp in self._world.partitions:
            registration = image.partition(tp)
            if registration is None or registration.leader < 0:
                return str(tp)
        return ""

    def _has_backlog(self) -> bool:
        """Whether some replica is still without what was committed when the faults ended, or to be replaced."""
        image, replicas = self._world.cluster.newest_image(), self._world.state.replicas
        for tp in self._world.partitions:
            registration = image.partition(tp)
            for broker_id in () if registration is None else registration.replicas:
                seen = replicas.get((broker_id, str(tp)))
                if seen is None or seen.log_end_offset < self._committed[str(tp)]:
                    return True
        return not self._world.operator.is_done


class ElectionStorm:
    """L7: after the faults leaders settle; a partition that changes its leader again and again is a finding."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._begun_ms = world.now_ms
        self._epochs = self._leader_epochs()
        self._undecided = undecided(world.state, world.cluster)  # elections of before among them, at most one a record

    def judge(self) -> None:
        windows = 1 + (self._world.now_ms - self._begun_ms) // WINDOW_MS
        for name, epoch in self._leader_epochs().items():
            rose = epoch - self._epochs.get(name, epoch)
            may_come_back_just_now = len(self._world.cluster.machines)
            allowed = EPOCHS_PER_WINDOW * windows + may_come_back_just_now + self._undecided
            if rose > allowed:
                sentence = f"{rose} leader epochs in {self._world.now_ms - self._begun_ms} ms without a fault"
                self._world.findings.report("election-storm", sentence, partition=name)

    def _leader_epochs(self) -> dict[str, int]:
        """Of the newest metadata that anybody ever had: whoever runs now may have just begun to read them."""
        image = self._world.state.image
        return {
            str(tp): registration.leader_epoch
            for tp in self._world.partitions
            if (registration := image.partition(tp)) is not None
        }
