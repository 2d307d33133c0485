"""Liveness: whether all is well again, with every fault healed or with a healthy core alone (C.4 of verification)."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.load import Load
from odradek_chaos.worlds.simulated.world import World

EPOCHS_PER_WINDOW = 3  # L7: new leader epochs of one partition
WINDOW_MS = 10_000
WAYS_TO_BREAK = ("dead", "frozen", "cut", "mute", "deaf")


def not_in_sync(world: World, besides: int = 0) -> str:
    """The first partition without a leader or a full ISR, as a sentence; empty when there is none."""
    image = world.cluster.newest_image()
    for tp in world.partitions:
        registration = image.partition(tp)
        if registration is None:
            return f"{tp} is unknown"
        if registration.reassigning and not besides:
            return f"{tp} is on its way to other replicas: +{list(registration.adding)} -{list(registration.removing)}"
        missing = [each for each in registration.replicas if each not in registration.isr and each != besides]
        if registration.leader < 0 or missing:
            return f"{tp} has leader {registration.leader} and ISR {list(registration.isr)}"
    return ""


def acknowledged_since(world: World, load: Load, since_ms: int) -> bool:
    """Whether every partition has acknowledged a record since then; nobody asks it of a script."""
    if load.script is not None:
        return True
    progress = load.ledger.progress
    return all(
        (known := progress.get((tp.topic, tp.partition))) is not None
        and known.last_ack_ms is not None
        and known.last_ack_ms > since_ms
        for tp in world.partitions
    )


def not_well_without(world: World, broken: int) -> str:
    """The first partition that the broken machine leads, or that lacks another one in its ISR; empty: all is well."""
    sentence, image = not_in_sync(world, broken), world.cluster.newest_image()
    if sentence:
        return sentence
    for tp in world.partitions:
        registration = image.partition(tp)
        if registration is not None and registration.leader == broken:
            return f"{tp} is led by the broken b{broken}"
    return ""


def undecided(world: World) -> int:
    """How many metadata records some voter's log holds that nobody knows to be committed.

    A controller that hears no majority goes on deciding: who is fenced, who leads, who is in sync. What comes of that
    shows when it is heard again, all at once.
    """
    now = world.watcher.now
    known = max(now.image.offset, world.cluster.newest_image().offset)
    return max(0, max(now.voter_ends.values(), default=0) - known)


def break_one_for_ever(world: World, way: str = "") -> int:
    """Heal everything but one machine, which stays dead, frozen, cut off, mute or deaf; returns its id.

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
        or undecided(world)
        or world.excuses.damaged
        or world.calm.is_reserved
        or not world.promises.recovers
    ):
        return 0
    broken = rng.choice(expendable)
    world.heal(besides=broken)
    world.faults[f"core-{way}"] += 1
    world.luck.reached("core-phase")
    world.note("!core", broken, way=way)
    machine, fabric = world.cluster.machines[broken], world.cluster.fabric
    machine.resume()
    if way == "dead":
        machine.kill()
        world.keep(broken)
    elif way == "frozen":
        world.start(broken)
        machine.pause()
        world.keep(broken)
    else:
        world.start(broken)
        everybody = [*world.cluster.machines.values(), *world.cluster.clients]
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
    for tp in world.partitions:
        registration = image.partition(tp)
        if registration is None or not any(world.calm.is_well(each) for each in registration.isr if each != broken):
            return False
        target = [each for each in registration.replicas if each not in registration.removing]
        for members in (registration.replicas, target):  # a reassignment may end meanwhile
            if sum(each != broken for each in members) < min(min_isr, len(members)):
                return False
    return True


class ElectionStorm:
    """L7: after the faults leaders settle; a partition that changes its leader again and again is a finding."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._begun_ms = world.now_ms
        self._epochs = self._leader_epochs()
        self._undecided = undecided(world)  # elections of before among them, at most one a record

    def judge(self) -> None:
        windows = 1 + (self._world.now_ms - self._begun_ms) // WINDOW_MS
        for name, epoch in self._leader_epochs().items():
            rose = epoch - self._epochs.get(name, epoch)
            may_come_back_just_now = len(self._world.cluster.machines)
            allowed = EPOCHS_PER_WINDOW * windows + may_come_back_just_now + self._undecided
            if rose > allowed:
                sentence = f"{rose} leader epochs in {self._world.now_ms - self._begun_ms} ms without a fault"
                self._world.report("election-storm", sentence, partition=name)

    def _leader_epochs(self) -> dict[str, int]:
        """Of the newest metadata that anybody ever had: whoever runs now may have just begun to read them."""
        image = self._world.watcher.now.image
        return {
            str(tp): registration.leader_epoch
            for tp in self._world.partitions
            if (registration := image.partition(tp)) is not None
        }
