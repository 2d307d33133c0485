"""What the client's core reads of a broker's answers: the messages of broker.proto have these fields, and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class ProduceResponse(Protocol):
    error_code: int
    error_message: str
    base_offset: int
    log_append_time_ms: int
    current_leader_id: int
    current_leader_epoch: int


class FetchPartitionResponse(Protocol):
    fetch_offset: int
    request_leader_epoch: int
    high_watermark: int
    log_start_offset: int


class PartitionMetadataResponse(Protocol):
    partition: int
    leader_id: int
    leader_epoch: int


class TopicMetadata(Protocol):
    error_code: int
    topic: str
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[PartitionMetadataResponse]: ...


class BrokerMetadata(Protocol):
    broker_id: int

    @property
    def endpoints(self) -> Mapping[str, str]: ...

    fenced: bool


class MetadataResponse(Protocol):
    cluster_id: str
    controller_id: int
    listener: str

    @property
    def brokers(self) -> Sequence[BrokerMetadata]: ...
    @property
    def topics(self) -> Sequence[TopicMetadata]: ...
