"""TLS of the network port: credentials that change while a process runs, and files that cannot be used."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from pathlib import Path

import pytest
from odradek_broker.local.certificates import AUTHORITY, make_client, make_node
from odradek_broker.rpc.of_nodes import SPEAKER
from odradek_proto.command_line import CommandFailed
from odradek_proto.security.tls import PeerCertificate, PemFiles, TlsError, TlsSource
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import ByteConnection, CallContext, Handlers, NetworkError
from odradek_proto.transport.tcp import TcpConnection
from odradek_proto.v1 import broker_pb2, controller_pb2, quorum_pb2

METHOD = "/odradek.test.Peer/Echo"
TIMEOUT_MS = 10_000


def source(keystore: Path | None, authority: Path) -> TlsSource:
    return TlsSource(PemFiles(keystore=str(keystore or ""), truststore=str(authority)))


async def call(address: str, tls: TlsSource) -> bytes:
    network = GrpcNetwork(tls=tls)
    try:
        return await network.call(address, METHOD, b"", TIMEOUT_MS)
    finally:
        await network.close()


async def echo_subject(_request: bytes, context: CallContext) -> bytes:
    assert context.certificate is not None
    return context.certificate.subject.encode()


def test_both_protocols_name_a_client_alike(tmp_path: Path) -> None:
    """As RFC 2253 writes a subject, with what it escapes: an ACL for one is one for the other."""
    tls, client = source(make_node(tmp_path, 1), tmp_path / AUTHORITY), make_client(tmp_path, 'a, "b" + #c')
    seen: list[PeerCertificate | None] = []

    def accept(connection: ByteConnection) -> None:
        seen.append(connection.certificate)

    async def story() -> str:
        network = GrpcNetwork(tls=tls, client_auth="required")
        server = await network.serve("127.0.0.1:0", Handlers(unary={METHOD: echo_subject}))
        kafka = await network.listen_bytes("127.0.0.1:0", accept)
        context = ssl.create_default_context(cafile=str(tmp_path / AUTHORITY))
        context.load_cert_chain(client)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(kafka.address.split(":")[1]), ssl=context)
            await reader.read()
            writer.close()
            return (await call(server.address, source(client, tmp_path / AUTHORITY))).decode()
        finally:
            await server.stop()
            await kafka.stop()

    subject = asyncio.run(story())
    assert [found and found.subject for found in seen] == [subject] == [r"CN=a\, \"b\" \+ #c"]


class WholeFrames:
    """Answers each frame, whose size it knows, with one byte."""

    def __init__(self, connection: ByteConnection, size: int) -> None:
        self.arrived = asyncio.Event()
        self._connection, self._size, self._got = connection, size, 0
        self._room = memoryview(bytearray(256 * 1024))

    @property
    def missing(self) -> int:
        return self._size - self._got if self._got else 0

    def room(self) -> memoryview:
        return self._room[: self._size - self._got]

    def on_bytes(self, count: int) -> None:
        self._got = (self._got + count) % self._size
        if not self._got:
            self._connection.write([b"."])
        asyncio.get_running_loop().call_soon(self.arrived.set)  # once the connection has looked at what is missing

    def on_full(self) -> None: ...
    def on_drained(self) -> None: ...
    def on_lost(self) -> None: ...


@pytest.mark.parametrize("piece", [700, 16 * 1024])
@pytest.mark.parametrize("with_tls", [True, False])
def test_the_loop_wakes_up_for_much_of_a_frame_and_never_waits_for_more_than_comes(
    tmp_path: Path, with_tls: bool, piece: int
) -> None:
    """The kernel waits for up to 32 KiB (SO_RCVLOWAT). With TLS, missing bytes may be here, not readable yet."""
    tls = source(make_node(tmp_path, 1), tmp_path / AUTHORITY) if with_tls else None
    context = ssl.create_default_context(cafile=str(tmp_path / AUTHORITY)) if with_tls else None
    unreadable = 17 * 1024 if with_tls else 0

    async def send_frames(size: int) -> None:
        accepted: asyncio.Future[tuple[TcpConnection, WholeFrames]] = asyncio.get_running_loop().create_future()

        def accept(connection: ByteConnection) -> WholeFrames:
            assert isinstance(connection, TcpConnection)
            receiver = WholeFrames(connection, size)
            accepted.set_result((connection, receiver))
            return receiver

        server = await GrpcNetwork(tls=tls).listen_bytes("127.0.0.1:0", accept)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.split(":")[1]), ssl=context)
        try:
            connection, receiver = await accepted
            for _ in range(3):
                receiver.arrived.clear()
                writer.write(bytes(min(piece, size)))
                await receiver.arrived.wait()
                awaited = receiver.missing - unreadable
                assert connection.low_water == (min(awaited, 32 * 1024) if awaited >= 4 * 1024 else 1)
                for start in range(piece, size, piece):
                    writer.write(bytes(min(piece, size - start)))
                    await writer.drain()
                assert await reader.readexactly(1) == b"."
        finally:
            writer.close()
            await server.stop()

    for size in (100, 4_000, 16 * 1024, 30_000, 66_000, 200_000):
        asyncio.run(send_frames(size))


def test_changed_files_count_for_the_next_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Over both protocols; a broken file changes nothing, and a sentence says so. Nothing is restarted."""
    old, new, used = tmp_path / "old", tmp_path / "new", tmp_path / "used.pem"
    shutil.copy(make_node(old, 1), used)
    caplog.set_level(logging.INFO, "odradek.security")

    async def kafka_is_of(address: str, authority: Path) -> bool:
        context = ssl.create_default_context(cafile=str(authority / AUTHORITY))
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", int(address.split(":")[1]), ssl=context)
        except ssl.SSLCertVerificationError:
            return False
        writer.close()
        return True

    async def grpc_is_of(address: str, authority: Path) -> bool:
        try:
            await call(address, source(None, authority / AUTHORITY))
        except NetworkError:
            return False
        return True

    async def echo(request: bytes, _context: CallContext) -> bytes:
        return request

    async def story() -> None:
        network = GrpcNetwork(tls=TlsSource(PemFiles(keystore=str(used))))
        server = await network.serve("127.0.0.1:0", Handlers(unary={METHOD: echo}))
        kafka = await network.listen_bytes("127.0.0.1:0", lambda _: None)

        async def who() -> list[bool]:
            return [
                await check(address, authority)
                for authority in (old, new)
                for check, address in ((kafka_is_of, kafka.address), (grpc_is_of, server.address))
            ]

        try:
            assert await who() == [True, True, False, False]
            used.write_text("no certificate")
            assert await who() == [True, True, False, False]
            shutil.copy(make_node(new, 1), used)
            assert await who() == [False, False, True, True]
        finally:
            await server.stop()
            await kafka.stop()

    make_node(new, 1)
    asyncio.run(story())
    said = [record.getMessage().removeprefix(str(used)) for record in caplog.records]
    assert len(said) == 2, said
    assert said[0].startswith(": not usable, what was there before goes on: ")
    assert said[1] == ": read again, for new connections"


def test_a_certificate_for_other_hosts_is_not_taken_for_the_wanted_one(tmp_path: Path) -> None:
    """What is there is used again, unless its hosts were named and are others."""
    made = make_node(tmp_path, 1, ["broker-1", "10.0.0.1"])
    assert make_node(tmp_path, 1) == make_node(tmp_path, 1, ["10.0.0.1", "broker-1"]) == made
    with pytest.raises(CommandFailed, match=r"is there already, for 10\.0\.0\.1, broker-1"):
        make_node(tmp_path, 1, ["broker-2"])


def test_values_are_taken_in_place_of_files(tmp_path: Path) -> None:
    """With line ends lost on the way, as properties files and environments lose them."""
    keystore = make_node(tmp_path, 1).read_text()
    key, _, chain = keystore.partition("-----END PRIVATE KEY-----\n")
    inline = PemFiles(
        key=f"{key}-----END PRIVATE KEY-----".replace("\n", " "), certificate_chain=chain.replace("\n", " ")
    )
    assert TlsSource(inline).current().key.decode() + TlsSource(inline).current().chain.decode() == keystore


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda good, other: "", "no certificate in it"),
        (lambda good, other: good[good.index("-----BEGIN CERT") :], "no private key in it"),
        (lambda good, other: good[: good.index("-----BEGIN CERT")] + other[other.index("-----BEGIN CERT") :], "do not"),
        (lambda good, other: good.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"), "the private key is encrypted"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_the_reason(tmp_path: Path, content: object, words: str) -> None:
    """At the start, where whoever made the file still looks."""
    good, other = make_node(tmp_path, 1).read_text(), make_node(tmp_path, 2).read_text()
    bad = tmp_path / "bad.pem"
    assert callable(content)
    bad.write_text(content(good, other))
    with pytest.raises(TlsError, match=words):
        TlsSource(PemFiles(keystore=str(bad)))


def test_every_call_between_nodes_has_a_row() -> None:
    """One without would be refused to everybody with TLS, and one that is gone is not kept."""
    files = (broker_pb2.DESCRIPTOR, controller_pb2.DESCRIPTOR, quorum_pb2.DESCRIPTOR)
    services = [file.services_by_name[name] for file in files for name in file.services_by_name]
    internal = {
        f"/{service.full_name}/{method.name}"
        for service in services
        if service.name in ("Replication", "Controller", "Quorum")
        for method in service.methods
    }
    assert internal == set(SPEAKER)
