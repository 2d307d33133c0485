"""What an operation of the controller comes to: records for the metadata log, and an answer for the caller.

An operation looks at the image that runs ahead and changes nothing. The runtime appends the records as one atomic
batch, applies them to that image at once, and gives the answer when the batch is committed (R-216). A request that
cannot be granted is a `Refusal` on its way to the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.v1.metadata_messages import BrokerStateRecord, ConfigRecord
from odradek_proto.values import Value

from odradek_broker.core.metadata.image import BrokerRegistration
from odradek_broker.core.metadata.records import MetadataRecord

Answer = TypeVar("Answer")


class Decision(Value, Generic[Answer], frozen=True):
    """One atomic batch (perhaps none) and what to say once it is committed."""

    records: Sequence[MetadataRecord]
    answer: Answer


class Refusal(Exception):
    """Raised while a request is looked at; caught where its answer is made. `message` is a sentence for people."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(f"{error.name}: {message}")
        self.error = error
        self.message = message


def broker_state_record(
    registration: BrokerRegistration, *, fenced: bool, in_controlled_shutdown: bool = False
) -> MetadataRecord:
    return BrokerStateRecord(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def config_record(resource_type: str, resource_name: str, name: str, value: str | None) -> MetadataRecord:
    """`value` None removes the setting."""
    return ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
