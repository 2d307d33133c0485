"""AlterPartition from the leader's side: one request in flight per broker, with all pending changes (R-48 to R-50,
KIP-497).

Rules of this module. A proposal is answered exactly once, unless the channel stops. It is resent forever on errors of
the whole request, since only a response can show its outcome (R-52). The partition decides what a response means
(R-51). A proposal waits until the controller is heard: before each request it has to answer a heartbeat. To a machine
that can send but not receive, all followers seem late; its session times out, and replicas that it removed from an ISR
until then could not succeed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Clock
from odradek_proto.v1 import controller_messages

from odradek_broker.core.partition.messages import IsrAnswer, IsrProposal
from odradek_broker.runtime.membership.controller_channel import ControllerChannel, ControllerUnavailable
from odradek_broker.runtime.services import Spawn

RETRY_BACKOFF_MS = 50
ATTEMPT_TIMEOUT_MS = 2_000.0  # then the controller has to answer a heartbeat again
MAX_ITEMS = 5_000  # partitions in one request

Key = tuple[bytes, int]  # topic id, partition


class IsrChannel:
    """Call `submit` from inside a partition's step: answers come later, from the event loop, never from within.

    `spawn` runs its task and must not swallow the error that one dies of: no ISR would change any more. `confirm`
    returns when the controller has answered something that was sent no earlier than its call.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        channel: ControllerChannel,
        broker_id: int,
        broker_epoch: Callable[[], int],
        on_answer: Callable[[IsrProposal, IsrAnswer], None],
        spawn: Spawn,
        confirm: Callable[[], Awaitable[None]],
    ) -> None:
        self._spawn = spawn
        self._confirm = confirm
        self._clock = clock
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._on_answer = on_answer
        self._waiting: dict[Key, IsrProposal] = {}
        self._in_flight: dict[Key, IsrProposal] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def submit(self, proposal: IsrProposal) -> None:
        """Send it with the next request. One whose partition has another on its way fails (OPERATION_NOT_ATTEMPTED)."""
        if self._stopped:
            return
        key = (proposal.topic_id, proposal.topic_partition.partition)
        if key in self._waiting or key in self._in_flight:
            refusal = IsrAnswer(ErrorCode.OPERATION_NOT_ATTEMPTED)
            asyncio.get_running_loop().call_soon(self._answer, proposal, refusal)
            return
        self._waiting[key] = proposal
        if self._task is None:
            self._task = self._spawn(self._send_all())

    def pending(self) -> list[TopicPartition]:
        """Partitions that wait for an answer, sorted."""
        return sorted(item.topic_partition for item in (*self._waiting.values(), *self._in_flight.values()))

    async def stop(self) -> None:
        self._stopped = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    def _answer(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        if not self._stopped:
            self._on_answer(proposal, answer)

    async def _send_all(self) -> None:
        while self._waiting:
            if chance("isr-proposal-late", 0.2):
                await self._clock.sleep(30)
            batch = list(self._waiting)[:MAX_ITEMS]
            if chance("isr-proposals-one-by-one", 0.3):
                batch = batch[:1]
            self._in_flight = {key: self._waiting.pop(key) for key in batch}
            answers = await self._exchange(list(self._in_flight.values()))
            answered, self._in_flight = self._in_flight, {}
            for key, proposal in answered.items():
                answer = answers.get(key)
                if answer is None:  # missing in the answer: once more
                    self._waiting[key] = proposal
            for key, answer in answers.items():
                if key in answered:
                    self._answer(answered[key], answer)
        self._task = None

    async def _exchange(self, proposals: list[IsrProposal]) -> dict[Key, IsrAnswer]:
        while True:
            await self._confirm()
            request = _request(self._broker_id, self._broker_epoch(), proposals).SerializeToString()
            try:
                answer = await self._channel.call("AlterPartition", request, ATTEMPT_TIMEOUT_MS)
            except ControllerUnavailable:
                continue  # it has waited between its attempts
            response = controller_messages.AlterPartitionResponse.FromString(answer)
            if response.error_code == ErrorCode.NONE:
                return {(item.topic_id, item.partition): _answer_of(item) for item in response.partitions}
            await self._clock.sleep(RETRY_BACKOFF_MS)


def _request(
    broker_id: int, broker_epoch: int, proposals: list[IsrProposal]
) -> controller_messages.AlterPartitionRequest:
    return controller_messages.AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        partitions=[
            controller_messages.AlterPartitionItem(
                topic_id=proposal.topic_id,
                partition=proposal.topic_partition.partition,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                new_isr=[
                    controller_messages.IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                    for member in proposal.new_isr
                ],
                recovering=proposal.recovering,
            )
            for proposal in proposals
        ],
    )


def _answer_of(item: controller_messages.AlteredPartition) -> IsrAnswer:
    return IsrAnswer(
        error=ErrorCode.from_number(item.error_code),
        leader=item.leader_id,
        leader_epoch=item.leader_epoch,
        partition_epoch=item.partition_epoch,
        isr=tuple(item.isr),
        recovering=item.recovering,
    )
