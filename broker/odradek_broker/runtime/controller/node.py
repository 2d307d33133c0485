"""The active controller of the cluster, on the node that leads the metadata quorum.

Rules of this module. Every change is decided by the core on the image that runs ahead, appended as one atomic batch,
and applied to that image at once; its caller is answered when the batch is committed (R-216). A response without a
record waits as well, for the uncommitted state that it was read from. When the leadership ends, the image that ran
ahead is dropped and every waiting call fails: with NOT_CONTROLLER, after which it may be retried, except for an admin
request that has been written, whose commit is uncertain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from odradek_proto.transport.ports import Clock, DialResult, Network
from odradek_proto.v1.metadata_messages import PartitionChangeRecord

from odradek_broker.core.controller.activation import activation_records
from odradek_broker.core.controller.balance import MAX_ELECTIONS_PER_BATCH, balance_leaders
from odradek_broker.core.controller.decision import Decision
from odradek_broker.core.controller.partitions import elect_leaderless
from odradek_broker.core.controller.registration import fence_broker
from odradek_broker.core.controller.sessions import DialBroker, Fence, SessionEffect, SessionTable, SuspectSelf
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.controller.unfit_leaders import full_brokers, unfit_brokers, unreachable_brokers
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord, apply, encode
from odradek_broker.runtime.controller.events import describe_record
from odradek_broker.runtime.controller.term import NotActive, OutcomeUnknown, Term
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.node import NotLeader, QuorumNode

__all__ = ["ControllerNode", "ControllerSettings", "NotActive"]

Answer = TypeVar("Answer")
OnEvent = Callable[[str, Mapping[str, object]], None]
ACTIVATION_MS = 1_000.0  # how long a call may wait for a leader that is about to become the active controller


class ControllerNode:
    """Wire up: the quorum's `on_leader`, `on_resigned` and `on_leader_changed` call the methods of the same names.

    `failed` ends with an error that nobody expected, if one stops this node's work as controller.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        clock: Clock,
        network: Network,
        quorum: QuorumNode,
        feed: MetadataFeed,
        on_event: OnEvent = lambda event, facts: None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.feed = feed
        self.quorum = quorum
        self.early_fencings = 0
        self.unclean_elections = 0  # committed ones
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._network = network
        self._event = on_event
        self._term: Term | None = None
        self._activated = asyncio.Event()
        self._term_ended: list[Callable[[], None]] = []
        feed.subscribe(self._on_committed)

    @property
    def active(self) -> bool:
        return self._term is not None

    @property
    def leader_id(self) -> int:
        """Whom to ask instead, -1 when unknown."""
        return self.quorum.leader_id

    def on_term_end(self, ended: Callable[[], None]) -> None:
        """`ended` is called when a term is over, when all who waited in it have been told."""
        self._term_ended.append(ended)

    # --- The quorum's callbacks ---------------------------------------------------------------------------------

    def on_leader(self, epoch: int) -> None:
        """This node leads the quorum and has everything committed before: it becomes the active controller."""
        assert self._term is None, (self._term, epoch)
        term = self._term = Term(epoch, self.feed.image.copy(), SessionTable(self.settings))
        self._event("controller_activated", {"epoch": epoch, "offset": term.ahead.offset})
        first = activation_records(term.ahead, self.settings)
        if first:
            self._write_if_leader(term, first)
        term.sessions.take_over(term.ahead, self.clock.now_ms())
        if self.settings.auto_leader_rebalance:
            self._start(term, self._balance_periodically(term))
        self._start(term, self._elect_unclean_periodically(term))
        activated, self._activated = self._activated, asyncio.Event()
        activated.set()
        self.step_sessions()

    def on_resigned(self, epoch: int) -> None:
        """The term is over: roll back to what is committed, fail what waits."""
        term, self._term = self._term, None
        if term is None:
            return
        self._event("controller_resigned", {"epoch": epoch, "uncommitted": term.ahead.offset - self.feed.image.offset})
        if term.timer is not None:
            term.timer.cancel()
        for task in term.tasks:
            task.cancel()
        for _, future in term.waiting:
            if not future.done():
                future.set_exception(NotActive())
        for ended in self._term_ended:
            ended()

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        """Nothing to do: `leader_id` is read from the quorum when it is needed."""

    async def stop(self) -> None:
        """End the term, if there is one, and everything that runs for it. The quorum is stopped by its owner."""
        tasks = () if self._term is None else tuple(self._term.tasks)
        self.on_resigned(self.quorum.epoch)
        if tasks:
            await asyncio.wait(tasks)

    # --- For the service ----------------------------------------------------------------------------------------

    async def wait_until_active(self) -> Term:
        """The term. A leader of the quorum that is not ready yet is waited for shortly. Raises `NotActive`."""
        if self._term is None and self.quorum.is_leader:
            try:
                async with asyncio.timeout(ACTIVATION_MS / 1000):
                    await self._activated.wait()
            except TimeoutError:
                pass
        return self.term()

    def term(self) -> Term:
        if self._term is None:
            raise NotActive
        return self._term

    async def carry_through(self, term: Term, decide: Callable[[MetadataImage], Decision[Answer]]) -> Answer:
        """Decide, write, wait for the commit, answer. Raises `NotActive`, `OutcomeUnknown` if something was written."""
        before = term.ahead.offset
        answer = self.decide(term, decide)
        written = term.ahead.offset > before
        try:
            await self.until_committed(term, term.ahead.offset)
        except NotActive as error:
            raise (OutcomeUnknown() if written else error) from None
        return answer

    def decide(self, term: Term, decide: Callable[[MetadataImage], Decision[Answer]]) -> Answer:
        """Decide and write, in one step. The answer holds only once it is committed. Raises `NotActive`."""
        if term is not self._term:
            raise NotActive
        decision = decide(term.ahead)
        if decision.records:
            try:
                self._write(term, list(decision.records))
            except NotLeader:
                raise NotActive from None
        return decision.answer

    async def until_committed(self, term: Term, offset: int) -> None:
        """Wait until everything below `offset` is committed and applied here. Raises `NotActive`."""
        if term is not self._term:
            raise NotActive
        if self.feed.image.offset >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        term.waiting.append((offset, future))
        await future

    def step_sessions(self) -> None:
        """Look at the sessions now: something happened, or a deadline has come."""
        term = self._term
        if term is None or term.refused:
            return
        self._tell_of_unfit(term)
        self._carry_out(term, term.sessions.on_time(term.ahead, self.clock.now_ms()))
        if term.timer is not None:
            term.timer.cancel()
        now_ms = self.clock.now_ms()
        deadline_ms = term.sessions.next_deadline_ms(term.ahead, now_ms)
        term.timer = self.clock.call_later(deadline_ms - now_ms, self._on_timer)

    @property
    def unreachable_brokers(self) -> list[int]:
        """Those that others cannot reach, as this node was told; none where it is not the active controller."""
        return [] if self._term is None else unreachable_brokers(self._term.ahead, self._term.sessions)

    # --- Inside -------------------------------------------------------------------------------------------------

    def _tell_of_unfit(self, term: Term) -> None:
        """Events of brokers that others cannot reach (R-147), or whose disk is full (R-148), since the last look."""
        unreachable = unreachable_brokers(term.ahead, term.sessions)
        for broker_id in sorted({*unreachable} ^ {*term.unreachable}):
            self._event(
                "broker_unreachable" if broker_id in unreachable else "broker_reachable", {"broker_id": broker_id}
            )
        full = full_brokers(term.ahead, term.sessions)
        for broker_id in sorted({*full} ^ {*term.full}):
            self._event("broker_full" if broker_id in full else "broker_has_room", {"broker_id": broker_id})
        term.unreachable, term.full = unreachable, full

    def _on_timer(self) -> None:
        try:
            self.step_sessions()
        except Exception as error:
            self._fail(error)

    def _on_committed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        term = self._term
        if term is None:
            return
        uncommitted = [offset for offset in term.unclean if offset >= image.offset]
        self.unclean_elections += len(term.unclean) - len(uncommitted)
        term.unclean = uncommitted
        waiting, term.waiting = term.waiting, []
        for offset, future in waiting:
            if offset > image.offset:
                term.waiting.append((offset, future))
            elif not future.done():
                future.set_result(None)

    def _write(self, term: Term, records: list[MetadataRecord]) -> None:
        """Append one atomic batch and apply it ahead. Raises `NotLeader`."""
        try:
            base = self.quorum.append([encode(record) for record in records], epoch=term.epoch)
        except NotLeader:
            term.refused = True
            raise
        for index, record in enumerate(records):
            apply(term.ahead, record, base + index, term.epoch)
            if isinstance(record, PartitionChangeRecord) and record.unclean:
                term.unclean.append(base + index)
            described = describe_record(term.ahead, record)
            if described is not None:
                self._event(*described)

    def _write_if_leader(self, term: Term, records: list[MetadataRecord]) -> None:
        """For what nobody waits for: when the leadership is lost, it is for the next controller to decide.

        The quorum may know that before it can say so: what it says waits for its disk. So nothing is decided any more
        in a term whose write was refused; the same fencing would be due again at once, and refused again.
        """
        try:
            self._write(term, records)
        except NotLeader:
            self._event("controller_write_refused", {"epoch": term.epoch, "records": len(records)})

    def _carry_out(self, term: Term, effects: list[SessionEffect]) -> None:
        for effect in effects:
            if term.refused:
                return
            match effect:
                case DialBroker():
                    self._start(term, self._dial(term, effect))
                case Fence(broker_id, reason):
                    records = list(fence_broker(term.ahead, self.settings, broker_id).records)
                    if records:
                        self._event("broker_fencing", {"broker_id": broker_id, "reason": reason.value})
                        self._write_if_leader(term, records)
                        self.early_fencings += reason.early and not term.refused
                case SuspectSelf(broker_id, silent, unfenced):
                    facts = {"broker_id": broker_id, "silent": silent, "unfenced": unfenced}
                    self._event("controller_suspects_itself", facts)

    async def _dial(self, term: Term, dial: DialBroker) -> None:
        registration = term.ahead.brokers.get(dial.broker_id)
        if registration is None:
            return  # unregistered meanwhile
        endpoints = registration.endpoints
        address = endpoints.get(self.settings.inter_broker_listener) or endpoints[min(endpoints)]
        result = await self._network.dial(address, self.settings.session_grace_ms)
        refused = result is DialResult.REFUSED
        self._carry_out(term, term.sessions.dial_answered(term.ahead, dial, refused, self.clock.now_ms()))
        self.step_sessions()

    async def _balance_periodically(self, term: Term) -> None:
        """R-138."""

        def decide(image: MetadataImage) -> Decision[int]:
            return balance_leaders(image, self.settings, unfit_brokers(image, term.sessions))

        while True:
            await self.clock.sleep(self.settings.leader_imbalance_check_interval_s * 1000)
            moved = MAX_ELECTIONS_PER_BATCH
            while moved == MAX_ELECTIONS_PER_BATCH:
                moved = await self.carry_through(term, decide)

    async def _elect_unclean_periodically(self, term: Term) -> None:
        """R-137: leaderless partitions of topics that allow it."""

        def decide(image: MetadataImage) -> Decision[None]:
            return Decision(elect_leaderless(image, self.settings), None)

        while True:
            await self.clock.sleep(self.settings.unclean_election_check_interval_s * 1000)
            await self.carry_through(term, decide)

    def _start(self, term: Term, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        term.tasks[task] = None

        def ended(task: asyncio.Task[None]) -> None:
            term.tasks.pop(task, None)
            if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, NotActive):
                self._fail(error)

        task.add_done_callback(ended)

    def _fail(self, error: BaseException) -> None:
        self._event("controller_failed", {"error": repr(error)})
        if not self.failed.done():
            self.failed.set_exception(error)
