"""Kafka's wire protocol as far as a read-only audit speaks it: one request, one answer, on a plain connection.

Versions before the flexible ones, which Kafka 2.3 to 4.x and odradek serve: Metadata 7, ListOffsets 2, Fetch 11,
OffsetForLeaderEpoch 3, DescribeConfigs 1, DescribeLogDirs 1, SaslHandshake 1, SaslAuthenticate 0. Nothing an answer
claims is believed: lengths are compared with the bytes that are there.
"""

from __future__ import annotations

import secrets
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from odradek_proto.security.scram import AuthenticationRefused, ScramClient, plain_message

from odradek_audit.live.security import IN_THE_CLEAR, PLAIN, LiveSecurity, connected

T = TypeVar("T")
CLIENT_ID = "odradek-audit"
CONSUMER, DEBUGGER = -1, -2
"""Replica ids of who is none; a debugger may ask a follower where its log begins and ends."""
FETCH, LIST_OFFSETS, METADATA, EPOCHS, CONFIGS, LOG_DIRS = 1, 2, 3, 23, 32, 35
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
VERSIONS = {
    FETCH: 11,
    LIST_OFFSETS: 2,
    METADATA: 7,
    EPOCHS: 3,
    CONFIGS: 1,
    LOG_DIRS: 1,
    SASL_HANDSHAKE: 1,
    SASL_AUTHENTICATE: 0,
}
LARGEST_ANSWER = 256 * 1024 * 1024
RECEIVE_BYTES = 1 << 20
LATEST, EARLIEST = -1, -2
TOPIC_RESOURCE = 2
PATIENCE_S = 3.0
"""No answer to a consumer's requests takes as long: somebody is told who is waited for."""
SILENT_HINT = "is the process frozen, or the machine too busy?"


class WireError(OSError):
    """A broker cannot be reached, hangs up, or answers with bytes that are no answer."""

    @property
    def timed_out(self) -> bool:
        """Whether it was waited for in vain: whoever asks again waits as long again."""
        cause = self.__cause__
        return isinstance(cause, TimeoutError) or (isinstance(cause, WireError) and cause.timed_out)


class WireHungUp(WireError):
    """The other side, which had answered before, closed the connection within a request."""


class WireUnreachable(WireError):
    """Nobody answers there in Kafka's protocol. `hint` says what to try."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class AnswerReader:
    """The fields of an answer, in their order. Raises `WireError` behind the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise WireError(f"an answer of {len(self.data)} bytes ends within a field of {length}")
        taken, self.position = self.data[self.position : end], end
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big", signed=True)

    def string(self) -> str:
        return self.take(max(self.number(2), 0)).decode("utf-8", "replace")

    def blob(self) -> bytes:
        return self.take(max(self.number(4), 0))

    def array(self, read: Callable[[], T]) -> list[T]:
        length = self.number(4)
        if length > len(self.data) - self.position:
            raise WireError(f"an answer of {len(self.data)} bytes claims {length} entries")
        return [read() for _ in range(max(length, 0))]


def _log_in(connection: Connection, security: LiveSecurity) -> None:
    """Say who asks, as KIP-152 has it. Raises `WireError` when the broker does not believe it."""
    answer = connection.ask(SASL_HANDSHAKE, string(security.mechanism))
    code, offered = answer.number(2), answer.array(answer.string)
    if code:
        known = ", ".join(offered)
        raise WireError(f"{connection.address}: sasl.mechanism={security.mechanism} is not offered; {known} are")

    def said(message: bytes) -> bytes:
        told = connection.ask(SASL_AUTHENTICATE, struct.pack(">i", len(message)) + message)
        refused, why = told.number(2), told.string()
        if refused:
            raise WireError(f"{connection.address} refuses the user {security.username}: {why or f'error {refused}'}")
        return told.blob()

    if security.mechanism == PLAIN:
        said(plain_message(security.username, security.password))
        return
    client = ScramClient(security.mechanism, security.username, security.password, secrets.token_urlsafe(18))
    try:
        client.check(said(client.final(said(client.first()))))
    except AuthenticationRefused as error:
        raise WireError(f"{connection.address}: {error}") from error


def _why(error: ssl.SSLError) -> str:
    """What OpenSSL says, without the place in its source."""
    said = getattr(error, "verify_message", "") or error.reason or error.strerror or str(error)
    return f"{said} (security.protocol, ssl.truststore.location)"


def string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


class Connection:
    """To one broker. `received` is told of every piece that comes, and may take its time: that is the quota. `waits` is
    called when an answer does not begin within `PATIENCE_S`."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float,
        received: Callable[[int], None],
        security: LiveSecurity = IN_THE_CLEAR,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises `WireError`, also when the broker does not believe who asks."""
        self.address = f"{host}:{port}"
        self.has_answered = False
        """Whether it has been understood, on this connection or an earlier one: then it speaks as we do."""
        self._timeout_s = timeout_s
        self._waits = waits
        self._received = received
        self._correlation = 0
        try:
            self._socket = connected((host, port), timeout_s, security.context())
        except ssl.SSLError as error:
            raise WireError(f"{self.address}: no TLS: {_why(error)}") from error
        except OSError as error:
            hint = "check host names and ports, and that they are those of a listener for Kafka's clients"
            raise WireUnreachable(f"{self.address} cannot be reached: {error.strerror or error}", hint) from error
        if security.sasl:
            try:
                _log_in(self, security)
            except WireError:
                self.close()
                raise

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: int, body: bytes) -> AnswerReader:
        """Send a request and read its answer. Raises `WireError`."""
        self._correlation += 1
        head = struct.pack(">hhi", api_key, VERSIONS[api_key], self._correlation) + string(CLIENT_ID)
        try:
            self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
            (size,) = struct.unpack(">i", self._size())
            if not 4 <= size <= LARGEST_ANSWER:
                raise WireError(f"{self.address} claims an answer of {size} bytes")
            answer = AnswerReader(self._read(size))
        except TimeoutError as error:
            raise WireUnreachable(f"{self.address} does not answer", SILENT_HINT) from error
        except WireError:
            raise
        except OSError as error:
            kind = WireHungUp if self.has_answered and isinstance(error, ConnectionError) else WireError
            raise kind(f"{self.address}: {error.strerror or error}") from error
        if answer.number(4) != self._correlation:
            raise WireError(f"{self.address} answers another request")
        self.has_answered = True
        return answer

    def _size(self) -> bytes:
        """The four bytes that an answer begins with."""
        self._socket.settimeout(min(PATIENCE_S, self._timeout_s))
        try:
            first = self._read(1)
        except TimeoutError:
            self._waits()
            self._socket.settimeout(max(self._timeout_s - PATIENCE_S, PATIENCE_S))
            first = self._read(1)
        finally:
            self._socket.settimeout(self._timeout_s)
        return first + self._read(3)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), RECEIVE_BYTES))
            if not piece:
                raise WireHungUp(f"{self.address} hung up") if self.has_answered else _hung_up(self.address)
            data += piece
            self._received(len(piece))
        return bytes(data)


class BrokerAddress(NamedTuple):
    host: str
    port: int


class PartitionState(NamedTuple):
    """A partition in the cluster's metadata."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


class ClusterMetadata(NamedTuple):
    cluster_id: str
    brokers: dict[int, BrokerAddress]
    partitions: list[PartitionState]
    errors: dict[str, int]
    """Topics that may not be described, or are not there, with the error code."""


def metadata(connection: Connection, topics: Sequence[str] | None) -> ClusterMetadata:
    """The cluster as one broker knows it; of some topics, or of all."""
    names = struct.pack(">i", -1) if topics is None else _array([string(name) for name in topics])
    answer = connection.ask(METADATA, names + b"\0")  # and no topic is made
    answer.number(4)  # throttled for
    brokers: dict[int, BrokerAddress] = {}

    def broker() -> None:
        node, host, port, _ = answer.number(4), answer.string(), answer.number(4), answer.string()
        brokers[node] = BrokerAddress(host, port)

    answer.array(broker)
    cluster_id = answer.string()
    answer.number(4)  # controller
    partitions: list[PartitionState] = []
    errors: dict[str, int] = {}

    def numbers() -> tuple[int, ...]:
        return tuple(answer.array(lambda: answer.number(4)))

    def topic() -> None:
        error, name, _ = answer.number(2), answer.string(), answer.number(1)
        if error:
            errors[name] = error

        def partition() -> None:
            answer.number(2)
            index, leader, epoch = answer.number(4), answer.number(4), answer.number(4)
            replicas, _, _ = numbers(), numbers(), numbers()
            partitions.append(PartitionState(name, index, leader, epoch, replicas))

        answer.array(partition)

    answer.array(topic)
    return ClusterMetadata(cluster_id, brokers, sorted(partitions), errors)


class Fetched(NamedTuple):
    """A partition's part of an answer to Fetch; offsets are -1 with an error."""

    error: int
    high_watermark: int
    log_start: int
    records: bytes


def fetch(connection: Connection, topic: str, partition: int, offset: int, max_bytes: int, wait_ms: int) -> Fetched:
    """What a broker has from an offset on, as any consumer may read it: from version 11 on a follower answers, too."""
    asked = struct.pack(">iiqqi", partition, -1, offset, -1, max_bytes)
    head = struct.pack(">iiiibii", CONSUMER, wait_ms, 1, max_bytes, 0, 0, -1)
    answer = connection.ask(FETCH, head + _array([string(topic) + _array([asked])]) + _array([]) + string(""))
    answer.number(4)  # throttled for
    error = answer.number(2)
    answer.number(4)  # session
    found: list[Fetched] = []

    def one() -> None:
        answer.number(4)
        code, high_watermark, _, log_start = answer.number(2), answer.number(8), answer.number(8), answer.number(8)
        answer.array(lambda: answer.take(16))  # aborted transactions
        answer.number(4)  # preferred replica
        found.append(Fetched(code, high_watermark, log_start, answer.blob()))

    answer.array(lambda: (answer.string(), answer.array(one)))
    if error or len(found) != 1:
        return Fetched(error or -1, -1, -1, b"")
    return found[0]


def log_bound(connection: Connection, topic: str, partition: int, time_ms: int) -> tuple[int, int]:
    """Error code, and where a broker's own log begins (EARLIEST) or ends (LATEST), above its high watermark, too."""
    asked = struct.pack(">iq", partition, time_ms)
    head = struct.pack(">ib", DEBUGGER, 0)
    answer = connection.ask(LIST_OFFSETS, head + _array([string(topic) + _array([asked])]))
    answer.number(4)
    found: list[tuple[int, int]] = []

    def one() -> None:
        answer.number(4)
        error, _, offset = answer.number(2), answer.number(8), answer.number(8)
        found.append((error, offset))

    answer.array(lambda: (answer.string(), answer.array(one)))
    return found[0] if found else (-1, -1)


def epoch_end(connection: Connection, topic: str, partition: int, epoch: int) -> tuple[int, int, int]:
    """Error code, the newest epoch up to this one that a leader knows, and the offset behind its last record."""
    asked = struct.pack(">iii", partition, -1, epoch)
    answer = connection.ask(EPOCHS, struct.pack(">i", CONSUMER) + _array([string(topic) + _array([asked])]))
    answer.number(4)
    found: list[tuple[int, int, int]] = []

    def one() -> None:
        error, _, known, end = answer.number(2), answer.number(4), answer.number(4), answer.number(8)
        found.append((error, known, end))

    answer.array(lambda: (answer.string(), answer.array(one)))
    return found[0] if found else (-1, -1, -1)


def cleanup_policies(connection: Connection, topics: Sequence[str]) -> dict[str, str]:
    """`cleanup.policy` of the topics whose settings may be read."""
    asked = [struct.pack(">b", TOPIC_RESOURCE) + string(name) + _array([string("cleanup.policy")]) for name in topics]
    answer = connection.ask(CONFIGS, _array(asked) + b"\0")
    answer.number(4)
    found: dict[str, str] = {}

    def one() -> None:
        error, _, _, name = answer.number(2), answer.string(), answer.number(1), answer.string()

        def setting() -> None:
            _, value = answer.string(), answer.string()
            answer.take(3)  # is read-only, source, is sensitive
            answer.array(lambda: (answer.string(), answer.string(), answer.number(1)))
            if not error:
                found[name] = value

        answer.array(setting)

    answer.array(one)
    return found


def log_sizes(connection: Connection) -> dict[tuple[str, int], int] | None:
    """Bytes of every log of a broker, by topic and partition; None where that may not be asked."""
    answer = connection.ask(LOG_DIRS, struct.pack(">i", -1))
    answer.number(4)
    found: dict[tuple[str, int], int] = {}
    refused: list[int] = []

    def directory() -> None:
        refused.append(answer.number(2))
        answer.string()

        def topic() -> None:
            name = answer.string()

            def partition() -> None:
                number, size, _, _ = answer.number(4), answer.number(8), answer.number(8), answer.number(1)
                found[name, number] = size

            answer.array(partition)

        answer.array(topic)

    answer.array(directory)
    return found if found or (refused and not any(refused)) else None


def _array(entries: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(entries)) + b"".join(entries)


def _hung_up(address: str) -> WireError:
    from odradek_proto.transport.reaching import Spoken, which_protocol

    if which_protocol(address) is not Spoken.GRPC:
        return WireError(
            f"{address} hung up: if it is a listener with TLS or SASL, name its settings with --command-config FILE"
        )
    return WireUnreachable(
        f"{address} speaks gRPC, and this audit Kafka's protocol",
        "name listeners for Kafka's clients with -b: `odradek cluster list` shows both for clusters of this machine",
    )
