"""What the dials say: of every bootstrap address, and of every address that a broker advertises.

An address of the listener by which this machine came in must answer as the broker that advertises it. One of another
listener is for clients of another network: that it does not answer here is a note at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek_proto.v1 import broker_pb2 as pb

from odradek.cli.checkup.dialling import DialOutcome, DialReport
from odradek.cli.checkup.finding import CheckupFinding, note, problem
from odradek.cli.terminal.failures import GRPC_PORT

CLOCK_TOLERANCE_MS = 2_000  # record timestamps, retention and the times of events are compared across machines


@dataclass(frozen=True, slots=True)
class AdvertisedAddress:
    """One address in the cluster's metadata."""

    broker: int
    listener: str
    address: str
    fenced: bool


@dataclass(slots=True)
class Addresses:
    """Everything that was learnt by dialling. `dialled` is in the order in which addresses were met."""

    bootstrap: Sequence[str]
    dialled: dict[str, DialReport] = field(default_factory=dict)
    advertised: list[AdvertisedAddress] = field(default_factory=list)

    @property
    def answers(self) -> list[pb.MetadataResponse]:
        return [dialled.answer for dialled in self.dialled.values() if dialled.answer is not None]

    @property
    def cluster_id(self) -> str:
        """Of the first broker that answered at a bootstrap address."""
        first = next((self.dialled[at].answer for at in self.bootstrap if self.dialled[at].answer is not None), None)
        return "" if first is None else first.cluster_id

    @property
    def listeners(self) -> set[str]:
        """The listeners by which this machine comes in: those of the bootstrap addresses that answered."""
        return {answer.listener for at in self.bootstrap if (answer := self.dialled[at].answer) is not None}

    def advertised_addresses(self) -> list[str]:
        return list(dict.fromkeys(one.address for one in self.advertised))

    def answering_for(self, broker: int) -> AdvertisedAddress | None:
        """An advertised address of a broker that answers as this broker does."""
        for one in self.advertised:
            answer = self.dialled[one.address].answer
            if one.broker == broker and answer is not None and answer.answered_by == broker:
                return one
        return None


def advertised_in(answers: Sequence[pb.MetadataResponse]) -> list[AdvertisedAddress]:
    """Every address of every broker, each once, by broker and listener."""
    found = {
        (broker.broker_id, listener, address): AdvertisedAddress(broker.broker_id, listener, address, broker.fenced)
        for answer in answers
        for broker in answer.brokers
        for listener, address in broker.endpoints.items()
    }
    return [found[key] for key in sorted(found)]


def judge(addresses: Addresses) -> list[CheckupFinding]:
    """Findings about addresses, in the order of the dials, the advertised ones last."""
    findings = []
    named = {one.address for one in addresses.advertised if one.listener in addresses.listeners}
    for address in addresses.bootstrap:
        dialled = addresses.dialled[address]
        if dialled.outcome is not DialOutcome.BROKER and address not in named:
            says, remedy = _outcome(dialled.outcome, address)
            findings.append(problem("bootstrap-address", address, says, remedy))
        elif dialled.answer is not None and dialled.answer.cluster_id != addresses.cluster_id:
            findings.append(_another_cluster(addresses, address, dialled.answer.cluster_id))
    for one in addresses.advertised:
        findings += _judge_advertised(addresses, one)
    return findings + _judge_clocks(addresses)


def _judge_advertised(addresses: Addresses, one: AdvertisedAddress) -> list[CheckupFinding]:
    mine = one.listener in addresses.listeners
    who = f"broker {one.broker} advertises {one.listener}://{one.address}"
    dialled = addresses.dialled[one.address]
    if dialled.answer is None:
        says, remedy = _outcome(dialled.outcome, one.address)
        if not mine and dialled.outcome is DialOutcome.KAFKA:
            return []  # a listener for Kafka's clients, which can be reached
        if not mine:
            return [note("other-listener", one.address, f"{who}; from here: {says}. Only {one.listener} clients care")]
        if one.fenced:
            if dialled.outcome is DialOutcome.MUTE:  # it runs: starting it helps nobody
                remedy = f"{remedy}; `odradek chaos resume --broker {one.broker}` thaws one that was paused"
                return [problem("broker-down", one.address, f"broker {one.broker} is fenced, and {says}", remedy)]
            return [problem("broker-down", one.address, f"broker {one.broker} is down: it is fenced, and {says}",
                            f"start broker {one.broker}, or look into its log")]  # fmt: skip
        return [problem("advertised-address", one.address, f"{who}; {says}", _remedy(addresses, one, remedy))]
    if dialled.answer.cluster_id != addresses.cluster_id:
        found = _another_cluster(addresses, one.address, dialled.answer.cluster_id)
        return [found] if one.address not in addresses.bootstrap else []
    if dialled.answer.answered_by != one.broker:
        says = f"{who}, and broker {dialled.answer.answered_by} answers there"
        if not mine:
            return [note("other-listener", one.address, f"{says}. Only {one.listener} clients care")]
        return [problem("wrong-broker", one.address, says,
                        "give every broker an advertised address (or a published port) of its own")]  # fmt: skip
    if one.fenced and mine:
        return [problem("broker-fenced", one.address,
                        f"broker {one.broker} answers at {one.address}, but is fenced: the controller does not hear it",
                        "look into its log; can it reach controller.quorum.voters?")]  # fmt: skip
    return []


def _remedy(addresses: Addresses, one: AdvertisedAddress, otherwise: str) -> str:
    """An address of the same broker that does answer here, if there is one."""
    if addresses.dialled[one.address].outcome in (DialOutcome.MUTE, DialOutcome.STARTING, DialOutcome.TOO_SHORT):
        return otherwise  # nothing speaks against the address
    advertise = f"set advertised.listeners of broker {one.broker} to an address that this machine can reach"
    other = addresses.answering_for(one.broker)
    if other is not None:
        return f"use {other.listener}'s address {other.address} (-b {other.address}), or {advertise}"
    return f"{otherwise}; or {advertise}"


def _outcome(outcome: DialOutcome, address: str) -> tuple[str, str]:
    """What happened in a sentence, and what may help."""
    sentences: Mapping[DialOutcome, tuple[str, str]] = {
        DialOutcome.NO_ADDRESS: (f"{address!r} is not host:port", "for example -b 127.0.0.1:50051"),
        DialOutcome.UNRESOLVED: (
            f"this machine cannot resolve {address.rpartition(':')[0]}",
            "check the spelling; names of containers are known to other containers only",
        ),
        DialOutcome.TOO_SHORT: (f"the time was too short to try {address}", "give --timeout more seconds"),
        DialOutcome.REFUSED: (
            f"nobody listens at {address}",
            "is the broker up, is this the port of a client listener, and is it published?",
        ),
        DialOutcome.NO_ROUTE: (f"there is no way to {address} from here", "check the network and the address"),
        DialOutcome.SILENT: (f"{address} does not answer", "a firewall, or a machine that is off or frozen"),
        DialOutcome.MUTE: (
            f"{address} takes the connection and says nothing",
            "the process is frozen (SIGSTOP, swapping), or it is a server of another kind",
        ),
        DialOutcome.STARTING: (
            f"the broker at {address} is not ready: it has not heard from a controller since its start",
            "wait, or look into its log; are the controllers of controller.quorum.voters up?",
        ),
        DialOutcome.CONTROLLER: (
            f"{address} is a CONTROLLER listener, which only brokers and controllers may use",
            "use the port of a client listener: 50051 instead of 50061, as a rule",
        ),
        DialOutcome.REPLICATION: (
            f"{address} is the inter-broker listener, which only brokers may use",
            "use the port of a client listener: 50051 instead of 50052, as a rule",
        ),
        DialOutcome.STRANGER: (f"{address} speaks gRPC, but is no broker of odradek", "is it the right port?"),
        DialOutcome.KAFKA: (f"{address} is a listener for Kafka's clients", GRPC_PORT),
        DialOutcome.NOT_LET_IN: (
            f"{address} does not let this client in",
            "security.protocol, sasl.username, password and certificates in the file of --command-config; "
            "the broker's log says what was wrong",
        ),
        DialOutcome.NOT_GRPC: (f"whoever listens at {address} does not speak gRPC", "is it the right port?"),
    }
    return sentences[outcome]


def _another_cluster(addresses: Addresses, address: str, cluster_id: str) -> CheckupFinding:
    return problem(
        "another-cluster",
        address,
        f"{address} belongs to cluster {cluster_id}, the first one that answered to {addresses.cluster_id}",
        "name brokers of one cluster; did a port go to somebody else?",
    )


def _judge_clocks(addresses: Addresses) -> list[CheckupFinding]:
    findings, told = [], set()
    for dialled in addresses.dialled.values():
        if dialled.answer is None or dialled.clock_ms is None or dialled.answer.answered_by in told:
            continue
        told.add(dialled.answer.answered_by)
        if abs(dialled.clock_ms) > CLOCK_TOLERANCE_MS:
            side = "ahead of" if dialled.clock_ms > 0 else "behind"
            says = (
                f"the clock of broker {dialled.answer.answered_by} is {abs(dialled.clock_ms) / 1000:.1f} s {side} "
                "this machine's"
            )
            remedy = "set both by NTP: record timestamps and retention go by clocks"
            findings.append(problem("clock", dialled.address, says, remedy))
    return findings
