"""A stranger with a table of forged messages, against real brokers: open ones and secured ones.

The stranger is generous to itself: it has read the metadata log, so all ids, epochs and incarnations are right but for
what a row says. What a cluster is made of is compared byte by byte: the metadata log, the votes, the records.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek import Admin, Consumer, NewTopic, Producer
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import apply, decode
from odradek_broker.local.certificates import AUTHORITY, make_client
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.decoding import decode_records
from odradek_proto.headers import iter_batches
from odradek_proto.security.tls import PemFiles, TlsSource
from odradek_proto.transport.frames import split_frame
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import CallRejected, NetworkError
from odradek_proto.v1 import admin_messages, broker_pb2, controller_messages, quorum_pb2

from tests.cluster.forged import ANSWERED, LISTENERS, REFUSED, STREAMS, TABLE, TAKEN, Facts, Forged
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

START_S = 180
PATIENCE_MS = 90_000  # of a machine on which a broker gets no turn for a while
VALUES = [b"book %d" % number for number in range(20)]
# The metadata log stays as it is while nobody is missed; an open cluster heals when its voters miss their leader.
FETCH_TIMEOUT_MS = {False: "6000", True: "300000"}


@pytest.fixture(params=[False, True], ids=["open", "secured"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers with 20 acknowledged records on all of them."""
    settings = {
        "broker.session.timeout.ms": "300000",
        "controller.quorum.fetch.timeout.ms": FETCH_TIMEOUT_MS[request.param],
    }
    made = LocalCluster.create(tmp_path / "cluster", secure=request.param, settings=settings)
    try:
        made.start_all()
        asyncio.run(write(made))
        yield made
    finally:
        made.kill_all()


def client(kind: Any, cluster: LocalCluster, *words: str, **settings: Any) -> Any:
    """Of the owner's."""
    if cluster.secure:
        lines = (cluster.directory / "client.properties").read_text().splitlines()
        found = {key.replace(".", "_"): value for key, _, value in (line.partition("=") for line in lines)}
        settings |= found | {"ssl_truststore_location": str(cluster.directory / found["ssl_truststore_location"])}
    return kind(cluster.bootstrap, *words, bootstrap_timeout_ms=START_S * 1000, **settings)


async def write(cluster: LocalCluster) -> None:
    async with asyncio.timeout(2 * START_S), client(Admin, cluster) as admin:
        while len([each for each in (await admin.describe_cluster()).brokers if not each.fenced]) < len(cluster.nodes):
            pass
        await admin.create_topics([NewTopic("orders", 1, 3, {"min.insync.replicas": "2"})])
        async with client(Producer, cluster) as producer:
            for value in VALUES:
                await producer.send("orders", value)
        while len((await admin.describe_topics(["orders"]))[0].partitions[0].isr) < len(cluster.nodes):
            pass


async def read(cluster: LocalCluster) -> list[bytes]:
    async with client(Consumer, cluster, "orders", auto_offset_reset="earliest") as consumer:
        return [record.value async for record in consumer.records(until="end")]


def bytes_of(cluster: LocalCluster) -> dict[str, bytes]:
    """Everything that a stranger must not change: the metadata log, the votes, the records, by node and file."""
    wanted = ("__cluster_metadata-0/*.log", "__cluster_metadata-0/quorum-state", "orders-0/*.log")
    return {
        f"{node_id} {path.parent.name}/{path.name}": path.read_bytes()
        for node_id, node in cluster.nodes.items()
        for pattern in wanted
        for path in sorted(Path(node.log_directory).glob(pattern))
    }


def settled(cluster: LocalCluster) -> dict[str, bytes]:
    """As soon as all nodes have the same log of the metadata, and have had it for two looks."""

    def look() -> dict[str, bytes]:
        return bytes_of(cluster)

    def logs(found: dict[str, bytes]) -> set[bytes]:
        return {data for name, data in found.items() if "metadata" in name and name.endswith(".log")}

    return until(look, lambda found: len(logs(found)) == 1 and look() == found)


def facts_of(cluster: LocalCluster) -> Facts:
    """From the disk of one node, as of now."""
    directory = Path(cluster.nodes[1].log_directory) / "__cluster_metadata-0"
    image = MetadataImage()
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_batches(data):
            if not header.is_control:
                for record in decode_records(data, header, position):
                    apply(image, decode(record.value or b""), record.offset, header.leader_epoch)
    votes = [
        json.loads((Path(node.log_directory) / "__cluster_metadata-0" / "quorum-state").read_text())
        for node in cluster.nodes.values()
    ]
    newest = max(votes, key=lambda vote: (vote["leaderEpoch"], vote["leaderId"]))
    return Facts(cluster.cluster_id, image, newest["leaderId"], newest["leaderEpoch"])


async def say(network: GrpcNetwork, address: str, forged: Forged, facts: Facts) -> str:
    """The outcome at one listener."""
    message = forged.message(facts)
    data = message if isinstance(message, bytes) else message.SerializeToString()
    path = f"/odradek.v1.{forged.method}"
    try:
        if not forged.method.endswith(STREAMS):
            answer = await network.call(address, path, data, PATIENCE_MS)
        else:
            stream = await network.open(address, path, PATIENCE_MS)
            try:
                await stream.send(data)
                async with asyncio.timeout(PATIENCE_MS / 1000):
                    answer = await stream.recv()
            finally:
                stream.close()
    except NetworkError as error:
        return f"{REFUSED}: {error.status}" if isinstance(error, CallRejected) else f"{REFUSED}: {type(error).__name__}"
    return REFUSED if is_refusal(forged.method, answer) else ANSWERED


def is_refusal(method: str, answer: bytes) -> bool:
    """Whether every part of an answer says no."""
    service, name = method.split("/")
    if name == "FetchStream":
        found: Any = broker_pb2.FetchAnswerHeader.FromString(bytes(split_frame(answer)[0]))
    elif (service, name) == ("Broker", "Produce"):
        found = broker_pb2.ProduceAnswers.FromString(answer)
    elif service == "Quorum":
        kinds = {"Vote": "VoteResponse", "Fetch": "QuorumFetchResponse", "FetchSnapshot": "FetchSnapshotResponse"}
        found = getattr(quorum_pb2, kinds.get(name, "QuorumEpochResponse")).FromString(answer)
        if name == "Vote":
            return not found.vote_granted
    elif service == "Controller":
        kinds = {"Session": "HeartbeatAnswer", "ForwardAdmin": "ForwardedResponse"}
        found = getattr(controller_messages, kinds.get(name, f"{name}Response")).FromString(answer)
    else:
        module = admin_messages if service == "Admin" else broker_pb2
        found = getattr(module, f"{name}Response").FromString(answer)
    if getattr(found, "error_code", 0):
        return True
    for inside in ("partitions", "answers", "topics", "entries"):
        parts = getattr(found, inside, None)
        if parts:
            return all(part.error_code for part in parts)
    return False


def listeners(cluster: LocalCluster, forged: Forged) -> list[str]:
    kind = LISTENERS.get(forged.method.partition("/")[0], "grpc")
    return [getattr(node, kind) for node in cluster.nodes.values()]


def test_a_stranger_changes_nothing_for_good(cluster: LocalCluster) -> None:
    """Secured: nothing at all, whatever it shows. Open: what cannot be is refused, and the rest heals."""
    assert len(TABLE) >= 40
    asyncio.run(secured(cluster) if cluster.secure else opened(cluster))
    assert all(cluster.running(node_id) for node_id in cluster.nodes)
    cluster.stop_all()
    cluster.start_all()
    assert asyncio.run(read(cluster))[: len(VALUES)] == VALUES


async def secured(cluster: LocalCluster) -> None:
    certificates = cluster.directory / "certificates"
    mallory = make_client(certificates, "mallory")
    networks = (
        GrpcNetwork(),
        GrpcNetwork(tls=TlsSource(PemFiles(truststore=str(certificates / AUTHORITY)))),
        GrpcNetwork(tls=TlsSource(PemFiles(keystore=str(mallory), truststore=str(certificates / AUTHORITY)))),
    )
    before, facts = settled(cluster), facts_of(cluster)
    reasons = Counter[str]()
    for network in networks:
        for forged in TABLE:
            for address in listeners(cluster, forged):
                reasons[said := await say(network, address, forged, facts)] += 1
                assert said.startswith(f"{REFUSED}: "), (forged.method, forged.name, said)  # before anybody looked
        await network.close()
    assert {f"{REFUSED}: PERMISSION_DENIED", f"{REFUSED}: NotAuthenticated"} <= set(reasons)
    assert settled(cluster) == before


async def opened(cluster: LocalCluster) -> None:
    network = GrpcNetwork()
    before, facts = settled(cluster), facts_of(cluster)
    wrong: list[tuple[object, ...]] = []
    for forged in TABLE:
        internal = forged.method.partition("/")[0] in LISTENERS
        for node in cluster.nodes.values():
            if internal:
                outcome = await say(network, node.grpc, forged, facts)
                assert outcome in (f"{REFUSED}: UNIMPLEMENTED", f"{REFUSED}: StreamClosed"), (forged, outcome)
        if forged.outcome != TAKEN:
            said = [await say(network, address, forged, facts) for address in listeners(cluster, forged)]
            if forged.outcome == REFUSED and not all(each.startswith(REFUSED) for each in said):
                wrong.append((forged.method, forged.name, said))
            if bytes_of(cluster) != before:
                wrong.append((forged.method, forged.name, "changed something"))
                before = settled(cluster)
    assert not wrong, wrong
    assert settled(cluster) == before
    for forged in TABLE:
        if forged.outcome == TAKEN:
            facts = facts_of(cluster)
            for address in listeners(cluster, forged):
                await say(network, address, forged, facts)
            await heals(cluster)
    await network.close()


async def heals(cluster: LocalCluster) -> None:
    """A controller, all brokers unfenced, all in sync, and a write that all of them have."""
    async with asyncio.timeout(2 * START_S), client(Admin, cluster) as admin, client(Producer, cluster) as producer:
        while True:
            quorum, brokers = await admin.describe_quorum(), (await admin.describe_cluster()).brokers
            partition = (await admin.describe_topics(["orders"]))[0].partitions[0]
            whole = len([each for each in brokers if not each.fenced]) == len(partition.isr) == len(cluster.nodes)
            if quorum.leader_id in cluster.nodes and whole:
                break
        await producer.send("orders", b"afterwards")
