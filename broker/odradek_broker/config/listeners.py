"""Listeners: where a node listens, where it says that it does, and who is meant to come in by which.

As in Kafka, a listener is a name with an address. What is served on it is its kind's: `KINDS` has a row for each.
Clients come in by any listener of theirs and are told the addresses of that same listener, so that each network has its
own. Brokers fetch from each other by the inter-broker listener, and controllers find each other by
`controller.quorum.voters` alone.

Unlike Kafka's, the inter-broker listener is no listener for clients: whoever can fetch as a follower can move the high
watermark, and a record that no replica has would count as acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from odradek_proto.security.tls import CLIENT_AUTH, PemFiles
from odradek_proto.values import Value

from odradek_broker.config.settings import BrokerSettings, SettingError
from odradek_broker.core.metadata.config_types import INT_MAX

ANY_ADDRESS = "0.0.0.0"
LOOPBACK_OF = {ANY_ADDRESS: "127.0.0.1", "[::]": "[::1]"}
WILDCARDS = frozenset(LOOPBACK_OF)
GRPC = "GRPC"
KAFKA = "Kafka's own"


class Protocol(Value, frozen=True):
    """What a listener speaks: one word of listener.security.protocol.map."""

    speaks: str  # GRPC or KAFKA
    tls: bool = False
    sasl: bool = False


PROTOCOLS = {
    "GRPC": Protocol(GRPC),
    "GRPC_SSL": Protocol(GRPC, tls=True),
    "GRPC_SASL_PLAINTEXT": Protocol(GRPC, sasl=True),
    "GRPC_SASL_SSL": Protocol(GRPC, tls=True, sasl=True),
    "PLAINTEXT": Protocol(KAFKA),
    "SSL": Protocol(KAFKA, tls=True),
    "SASL_PLAINTEXT": Protocol(KAFKA, sasl=True),
    "SASL_SSL": Protocol(KAFKA, tls=True, sasl=True),
}
"""Those without a prefix are Kafka's own; the others are the same over gRPC."""


class ListenerKind(Value, frozen=True):
    """What a listener is, however it is secured."""

    whose: str
    speaks: str
    for_clients: bool = False


CLIENTS = ListenerKind("clients", GRPC, for_clients=True)
KAFKA_CLIENTS = ListenerKind("Kafka's clients", KAFKA, for_clients=True)
BROKERS = ListenerKind("brokers", GRPC)
CONTROLLERS = ListenerKind("controllers", GRPC)
AMONG_NODES = ("GRPC", "GRPC_SSL")  # brokers and controllers know each other by certificates, not by passwords

THERE_IS = f"there are {', '.join(PROTOCOLS)}; those that begin with {GRPC} are odradek's, the others Kafka's"

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_LISTENER = re.compile(r"([A-Za-z][A-Za-z0-9_]*)://(\[[^\]]*\]|[^:/\s]*):(\d{1,5})")
_VOTER = re.compile(r"(\d+)@(\[[^\]]+\]|[^@:/\s]+):(\d{1,5})")
MAX_PORT = 65_535


def parse_listeners(text: str) -> dict[str, str]:
    """`GRPC://127.0.0.1:50051,CONTROLLER://...` as a mapping of names to addresses. Raises `SettingError`.

    Names are put into capitals, as Kafka does. No host means every interface.
    """
    found: dict[str, str] = {}
    for part in _items(text):
        match = _LISTENER.fullmatch(part)
        if match is None or int(match[3]) > MAX_PORT:
            raise SettingError(f"a listener looks like GRPC://127.0.0.1:50051, not {part!r}")
        name = match[1].upper()
        if name in found:
            raise SettingError(f"the listener {name} is named twice in {text!r}")
        found[name] = f"{match[2] or ANY_ADDRESS}:{match[3]}"
    return found


def parse_voters(text: str) -> dict[int, str]:
    """`1@127.0.0.1:50061,2@...` as a mapping of ids to addresses. Raises `SettingError`."""
    found: dict[int, str] = {}
    for part in _items(text):
        match = _VOTER.fullmatch(part)
        if match is None or int(match[3]) > MAX_PORT:
            raise SettingError(f"controller.quorum.voters looks like 1@127.0.0.1:50061,2@..., not {part!r}")
        if int(match[1]) > INT_MAX:
            raise SettingError(f"controller.quorum.voters: {match[1]} is no node id; {INT_MAX} is the largest")
        if int(match[1]) in found:
            raise SettingError(f"the voter {match[1]} is named twice in {text!r}")
        found[int(match[1])] = f"{match[2]}:{match[3]}"
    return found


@lru_cache(maxsize=16)  # asked for each listener, several times
def parse_protocols(text: str) -> Mapping[str, str]:
    """`GRPC:GRPC,GRPC_HOST:GRPC` as a mapping of listener names to protocols. Raises `SettingError`."""
    found: dict[str, str] = {}
    for part in _items(text):
        name, colon, protocol = (piece.strip().upper() for piece in part.partition(":"))
        if not colon or not _NAME.fullmatch(name):
            raise SettingError(f"listener.security.protocol.map looks like GRPC:GRPC,GRPC_HOST:GRPC, not {part!r}")
        if name in found:
            raise SettingError(f"listener.security.protocol.map names the listener {name} twice")
        if protocol not in PROTOCOLS:
            raise SettingError(
                f"listener.security.protocol.map: unknown protocol {protocol!r} for the listener {name}; {THERE_IS}"
            )
        found[name] = protocol
    return found


@lru_cache(maxsize=64)  # most of the settings are the same for each broker of a process
def _items(text: str) -> tuple[str, ...]:
    return tuple([piece for piece in (part.strip() for part in text.split(",")) if piece])


def controller_listeners(settings: BrokerSettings) -> set[str]:
    """Names of the listeners that only other nodes may talk to."""
    return {name.upper() for name in _items(settings.controller_listener_names)}


@lru_cache(maxsize=64)  # asked of each listener, several times
def kind_of(name: str, settings: BrokerSettings) -> ListenerKind:
    """What a listener of this name is. Raises `SettingError` for one that has no protocol."""
    word = parse_protocols(settings.listener_security_protocol_map).get(name)
    for kind, names in ((CONTROLLERS, controller_listeners(settings)), (BROKERS, {inter_broker_listener(settings)})):
        if name in names:
            if word is not None and word not in AMONG_NODES:
                raise SettingError(
                    f"listener.security.protocol.map: {name} is the listener of {kind.whose}, who speak "
                    f"{' or '.join(AMONG_NODES)} among themselves: {name}:{AMONG_NODES[0]}"
                )
            return kind
    if word is None:
        raise SettingError(
            f"the listener {name} has no protocol: set listener.security.protocol.map="
            f"{settings.listener_security_protocol_map},{name}:{GRPC}"
        )
    return CLIENTS if PROTOCOLS[word].speaks == GRPC else KAFKA_CLIENTS


def protocol_of(name: str, settings: BrokerSettings) -> Protocol:
    """What a listener speaks. One of brokers or controllers that the map does not name speaks GRPC."""
    return PROTOCOLS[parse_protocols(settings.listener_security_protocol_map).get(name, GRPC)]


def nodes_use_tls(settings: BrokerSettings) -> bool:
    """Whether brokers and controllers find each other by TLS: all of their listeners have it, or none."""
    found = {name: protocol_of(name, settings).tls for name in _of_nodes(settings)}
    if len({*found.values()}) > 1:
        with_tls, without = ([name for name, tls in found.items() if tls is wanted] for wanted in (True, False))
        raise SettingError(
            f"listener.security.protocol.map: {', '.join(with_tls)} with TLS and {', '.join(without)} without: brokers "
            f"and controllers have it everywhere or nowhere: {','.join(f'{name}:GRPC_SSL' for name in found)}"
        )
    return any(found.values())


def _of_nodes(settings: BrokerSettings) -> list[str]:
    return sorted({*controller_listeners(settings), inter_broker_listener(settings)})


def client_listeners(settings: BrokerSettings) -> list[str]:
    """The names of the listeners for clients."""
    return [name for name in parse_listeners(settings.listeners) if kind_of(name, settings).for_clients]


def inter_broker_listener(settings: BrokerSettings) -> str:
    """The name of the listener by which brokers reach each other; names of listeners are in capitals, as in Kafka."""
    return settings.inter_broker_listener_name.upper()


def metrics_address(settings: BrokerSettings) -> str:
    """Where metrics and health are to be served; empty when they are not. Raises `SettingError`."""
    found = parse_listeners(settings.odradek_metrics_listener)
    if found and list(found) != ["HTTP"]:
        raise SettingError(
            f"odradek.metrics.listener looks like HTTP://127.0.0.1:9404, not {settings.odradek_metrics_listener!r}"
        )
    return found.get("HTTP", "")


def beyond_loopback(settings: BrokerSettings) -> dict[str, str]:
    """The listeners that other machines may reach, that of the metrics too, and where they are bound."""
    bound = parse_listeners(settings.listeners) | parse_listeners(settings.odradek_metrics_listener)
    return {name: address for name, address in bound.items() if not is_loopback(address.rpartition(":")[0])}


def is_loopback(host: str) -> bool:
    """Whether this host is the machine itself. A name is only when it is `localhost`."""
    return host in ("localhost", "[::1]") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def dialable(address: str) -> str:
    """The address under which this very machine finds a listener that is bound to it."""
    host, _, port = address.rpartition(":")
    return f"{LOOPBACK_OF.get(host, host)}:{port}"


def check_listeners(settings: BrokerSettings) -> None:
    """That every listener has a protocol and an address that others can use. Raises `SettingError`."""
    bound = parse_listeners(settings.listeners)
    for name in bound:
        kind_of(name, settings)
    _check_addresses(settings, bound)
    metrics_address(settings)
    check_tls(settings)
    if "broker" in _items(settings.process_roles):
        _check_inter_broker(settings)
    if settings.controller_quorum_voters:
        _check_voters(settings, parse_voters(settings.controller_quorum_voters))


def check_tls(settings: BrokerSettings) -> None:
    """That whoever needs certificates has some. Raises `SettingError`."""
    names = [name for name in parse_listeners(settings.listeners) if protocol_of(name, settings).tls]
    if settings.ssl_client_auth not in CLIENT_AUTH:
        raise SettingError(f"ssl.client.auth must be one of {', '.join(CLIENT_AUTH)}, not {settings.ssl_client_auth!r}")
    for name, kind in (
        ("ssl.keystore.type", settings.ssl_keystore_type),
        ("ssl.truststore.type", settings.ssl_truststore_type),
    ):
        if kind != "PEM":
            raise SettingError(
                f"{name} must be PEM, not {kind!r}: `openssl pkcs12 -nodes` makes PEM of what Java keeps"
            )
    over_grpc = [name for name in names if kind_of(name, settings) is CLIENTS]
    if settings.ssl_client_auth == "requested" and over_grpc:
        raise SettingError(
            f"ssl.client.auth=requested: gRPC, which {over_grpc[0]} speaks, asks for no certificate or insists on one: "
            "take none or required"
        )
    among_nodes = nodes_use_tls(settings)
    if not names and not among_nodes:
        return
    named = ", ".join(names) or ", ".join(_of_nodes(settings))
    if not settings.ssl_keystore_location and not (
        settings.ssl_keystore_certificate_chain and settings.ssl_keystore_key
    ):
        raise SettingError(
            f"{named}: TLS needs a key and a certificate: set ssl.keystore.location to a PEM file with both; "
            "`odradek certs` makes some for development"
        )
    asks = among_nodes or settings.ssl_client_auth != "none"
    if asks and not (settings.ssl_truststore_location or settings.ssl_truststore_certificates):
        raise SettingError(
            f"{named}: others' certificates are checked against authorities: set ssl.truststore.location to a PEM file"
        )


def tls_files(settings: BrokerSettings) -> PemFiles:
    return PemFiles(
        keystore=settings.ssl_keystore_location,
        certificate_chain=settings.ssl_keystore_certificate_chain,
        key=settings.ssl_keystore_key,
        truststore=settings.ssl_truststore_location,
        certificates=settings.ssl_truststore_certificates,
    )


def _check_voters(settings: BrokerSettings, voters: dict[int, str]) -> None:
    """That the voters can be dialled, and that this node is one of them if it is a controller, as in Kafka."""
    wild = next((address for address in voters.values() if address.rpartition(":")[0] in WILDCARDS), None)
    if wild is not None and len(voters) > 1:
        raise SettingError(f"controller.quorum.voters: other nodes cannot dial {wild}; name the host there")
    twice = next((address for address in voters.values() if list(voters.values()).count(address) > 1), None)
    if twice is not None:
        raise SettingError(f"controller.quorum.voters names {twice} for two voters: each has an address of its own")
    controls = "controller" in _items(settings.process_roles)
    if controls and settings.node_id not in voters:
        raise SettingError(
            f"node {settings.node_id} is to be a controller, and controller.quorum.voters names {sorted(voters)}:"
            " correct node.id, or add it there on every node of a new cluster, or set process.roles=broker"
        )
    bound = parse_listeners(settings.listeners)
    if controls and len(voters) > 1 and not controller_listeners(settings) & bound.keys():
        raise SettingError(
            f"controller.listener.names={settings.controller_listener_names} is not one of the listeners "
            f"{', '.join(bound)}: the other controllers reach this one there; add it to listeners"
        )
    if not controls and settings.node_id in voters:
        raise SettingError(
            f"controller.quorum.voters names node {settings.node_id}, which has process.roles={settings.process_roles}:"
            " a voter is a controller, too; node.id is another one's, or process.roles lacks controller"
        )


def _check_addresses(settings: BrokerSettings, bound: dict[str, str]) -> None:
    """What others are told to dial must be an address of one machine."""
    hidden = controller_listeners(settings)
    advertised = parse_listeners(settings.advertised_listeners)
    for name, address in {**bound, **advertised}.items():
        if name not in bound:
            raise SettingError(
                f"advertised.listeners names {name}, which is not one of the listeners {', '.join(bound)}: "
                f"add {name}://0.0.0.0:PORT to listeners"
            )
        if name not in hidden and address.rpartition(":")[0] in WILDCARDS:
            raise SettingError(
                f"{kind_of(name, settings).whose} cannot dial {name}://{address}: "
                f"set advertised.listeners={name}://HOST:PORT to where they find this broker"
            )
        if name in advertised and address.endswith(":0"):
            raise SettingError(f"advertised.listeners: {name}://{address} has no port that could be dialled")
    taken: dict[str, str] = {}
    for name, address in bound.items():
        if not address.endswith(":0") and taken.setdefault(address, name) != name:
            raise SettingError(f"the listeners {taken[address]} and {name} have the same address {address}")


def _check_inter_broker(settings: BrokerSettings) -> None:
    """A broker has a listener for clients, and one by which other brokers fetch from it."""
    name, bound = inter_broker_listener(settings), parse_listeners(settings.listeners)
    if name in bound and kind_of(name, settings) is BROKERS and not client_listeners(settings):
        raise SettingError(
            f"no listener is left for clients: {name} is inter.broker.listener.name, for brokers alone; add one for "
            f"them, or add REPLICATION://HOST:PORT and leave inter.broker.listener.name out"
        )
    if not client_listeners(settings):
        raise SettingError("a broker needs a listener for clients, for example GRPC://127.0.0.1:50051")
    if name not in bound or kind_of(name, settings) is not BROKERS:
        raise SettingError(
            f"inter.broker.listener.name={settings.inter_broker_listener_name} is not one of the listeners "
            f"{', '.join(client_listeners(settings))}: brokers fetch from each other by a listener of their own; "
            f"add {name}://HOST:PORT to listeners, 127.0.0.1:0 for a broker that is alone"
        )
