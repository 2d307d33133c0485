"""Settings of gRPC for both sides, and the reasons for the numbers."""

from __future__ import annotations

from odradek_proto.values import Value

ChannelOptions = list[tuple[str, int]]

MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # hot messages are 256 KiB to 1 MiB; a larger record batch must still fit
INITIAL_BACKOFF_MS = 50  # the default of a second delays a stream to a restarted peer by as much
MAX_BACKOFF_MS = 200
CONNECT_TIMEOUT_MS = 500  # a peer whose machine is silent; also how often a lost SYN is tried anew
RESOLVE_TIMEOUT_MS = 2_000  # of a name; gRPC itself waits 13 s and more for a question that got lost
HANDSHAKE_TIMEOUT_MS = 5_000  # a connection that says nothing is dropped after this
TIMEOUT_KEY = "odradek-timeout-ms"  # of a call's metadata; grpcio counts from a wall clock that tests freeze
MAX_METADATA_BYTES = 16 * 1024
MAX_CONNECTIONS = 2_000
MAX_CALLS_PER_CONNECTION = 100  # at the same time; a client waits with more. HTTP/2 advises no less than 100
MAX_STREAMS = 1_000  # of one server, and a few more for everybody; each costs about 11 KB when nothing goes on
UNREAD_RESPONSE_BYTES = 32 * 1024 * 1024  # of single calls whose callers have not taken their large answers
LARGE_RESPONSE_BYTES = 64 * 1024  # smaller ones are not counted
KEEPALIVE_MS = 20_000  # either side asks a silent other one whether it is still there, and cuts the connection
KEEPALIVE_TIMEOUT_MS = 15_000  # when it does not say; both far above broker.session.timeout.ms, which judges brokers
PINGS_APART = 2  # a client that asks twice as often as that is sent away
MAX_CONNECTION_IDLE_MS = 600_000  # connections.max.idle.ms, Kafka's default; only connections without a call count


class GrpcOptions(Value, frozen=True):
    """Limits of a `GrpcNetwork`. Bytes are those of one message; streams and connections are those of one server."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    max_connections: int = MAX_CONNECTIONS
    max_calls_per_connection: int = MAX_CALLS_PER_CONNECTION
    max_streams: int = MAX_STREAMS
    unread_response_bytes: int = UNREAD_RESPONSE_BYTES
    keepalive_ms: int = KEEPALIVE_MS
    keepalive_timeout_ms: int = KEEPALIVE_TIMEOUT_MS
    max_concurrent_calls: int | None = None  # of the whole server; more are refused with RESOURCE_EXHAUSTED

    def common(self) -> ChannelOptions:
        return [
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.max_metadata_size", MAX_METADATA_BYTES),
            # Bandwidth probing grows windows up to 16 MiB per connection and sends a ping per growth. A message that
            # is being read may pass the fixed window anyway, so nothing is lost and memory stays bounded.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.keepalive_time_ms", self.keepalive_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.http2.ping_timeout_ms", self.keepalive_timeout_ms),  # what counts when nothing at all is answered
        ]

    def client(self) -> ChannelOptions:
        """With keepalive, as long as a call waits: who only waits for an answer learns by nothing else that the other
        side's kernel has given the connection up, which it does in silence when a network was cut for fifteen seconds.
        """
        return [
            *self.common(),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),  # a port never retries
            ("grpc.enable_http_proxy", 0),  # http_proxy is for the web; brokers are dialled where they say they are
            ("grpc.http2.max_pings_without_data", 0),  # any number: a follower that waits sends nothing else
            ("grpc.dns_ares_query_timeout", RESOLVE_TIMEOUT_MS),
            ("grpc.initial_reconnect_backoff_ms", INITIAL_BACKOFF_MS),
            (
                "grpc.min_reconnect_backoff_ms",
                self.connect_timeout_ms,
            ),  # despite its name: how long one attempt may take
            ("grpc.max_reconnect_backoff_ms", MAX_BACKOFF_MS),
        ]

    def server(self) -> ChannelOptions:
        return [
            *self.common(),
            ("grpc.so_reuseport", 0),  # two brokers must not share a port in silence
            ("grpc.max_concurrent_streams", self.max_calls_per_connection),
            ("grpc.max_allowed_incoming_connections", self.max_connections),
            ("grpc.max_connection_idle_ms", MAX_CONNECTION_IDLE_MS),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
            ("grpc.http2.settings_timeout", HANDSHAKE_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", self.keepalive_ms // PINGS_APART),
        ]
