"""Values of the messages of controller.proto. Written by `make proto`: change the .proto file instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek_proto.messages import Message


class ControllerAnswerHeader(Message, frozen=True):
    """Every answer of this service starts with these two fields, so that whoever passes one on can read them without
    knowing the rest.
    """

    error_code: int = 0
    controller_id: int = 0  # with NOT_CONTROLLER: the active controller, -1 when unknown


class RegisterBrokerRequest(Message, frozen=True):
    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: bytes = b""  # 16 random bytes, one for each start of the process
    endpoints: Mapping[str, str] = {}  # listener name -> advertised host:port
    rack: str = ""
    previous_broker_epoch: int = 0  # from the clean shutdown file, -1 without one
    log_directory_id: bytes = b""


class RegisterBrokerResponse(Message, frozen=True):
    error_code: int = 0
    error_message: str = ""
    broker_epoch: int = 0
    controller_id: int = 0


class Heartbeat(Message, frozen=True):
    broker_id: int = 0
    broker_epoch: int = 0
    incarnation_id: bytes = b""
    current_metadata_offset: int = 0  # one past the last record that this broker has applied
    want_fence: bool = False
    want_shut_down: bool = False
    replicas: Sequence[ReplicaReport] = ()  # those that are damaged, and those of partitions where nobody is waited for
    unreachable: Sequence[int] = ()  # leaders that have not answered this broker for about a session timeout
    disk_full: bool = False  # nothing can be appended to the logs here: another member of each ISR should lead


class ReplicaReport(Message, frozen=True):
    """What a broker's copy of a partition holds (R-146)."""

    topic_id: bytes = b""
    partition: int = 0
    leader_epoch: int = 0  # of the partition, as the broker knows it
    last_epoch: int = 0  # of the last record, -1: none
    log_end_offset: int = 0
    damaged: bool = False  # it lacks records that it has had, or cannot read them


class HeartbeatAnswer(Message, frozen=True):
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = False
    should_shut_down: bool = False
    controller_id: int = 0


class AlterPartitionRequest(Message, frozen=True):
    broker_id: int = 0
    broker_epoch: int = 0
    partitions: Sequence[AlterPartitionItem] = ()


class AlterPartitionItem(Message, frozen=True):
    topic_id: bytes = b""
    partition: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0
    new_isr: Sequence[IsrMember] = ()
    recovering: bool = False


class IsrMember(Message, frozen=True):
    broker_id: int = 0
    broker_epoch: int = 0  # -1: no fetch with an epoch was seen


class AlterPartitionResponse(Message, frozen=True):
    error_code: int = 0
    partitions: Sequence[AlteredPartition] = ()
    controller_id: int = 0


class AlteredPartition(Message, frozen=True):
    topic_id: bytes = b""
    partition: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: Sequence[int] = ()
    recovering: bool = False


class AllocateProducerIdsRequest(Message, frozen=True):
    broker_id: int = 0
    broker_epoch: int = 0


class AllocateProducerIdsResponse(Message, frozen=True):
    error_code: int = 0
    first_producer_id: int = 0
    count: int = 0
    controller_id: int = 0


class ForwardedRequest(Message, frozen=True):
    method: str = ""  # such as /odradek.v1.Admin/CreateTopics
    request: bytes = b""
    principal: str = ""  # of the client at the broker that passes the request on, such as User:ANONYMOUS
    listener: str = ""  # on which it came in at that broker
    client_id: str = ""
    client_address: str = ""  # host:port


class ForwardedResponse(Message, frozen=True):
    error_code: int = 0  # NOT_CONTROLLER when this node is not the active controller
    response: bytes = b""
    error_message: str = ""
    controller_id: int = 0
