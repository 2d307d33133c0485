"""Liveness of brokers as the active controller sees it: session streams, heartbeats, connection attempts (R-153,
R-154).

Two clocks run for every broker that is not fenced. The session timeout counts from the last heartbeat and needs no
proof. The grace counts from the end of the session stream, which a killed process's kernel closes at once:

- a connection attempt that is refused proves that no process listens there: fence now;
- no new stream of the same incarnation within the grace: fence, unless more than half of the unfenced brokers (ours
  counted among them) went silent within one grace without such a proof. Then the fault may be on this side, and the
  session timeout decides;
- a controller that has just taken over knows of no streams: it connects to all brokers, and only a refusal fences
  early;
- a refusal that arrives after the grace is still a proof, as long as the broker has no stream.

A controller that was itself suspended must not consider others late. Messages that arrived meanwhile are still unread,
in no order with the timers, so the first call into the table detects the pause, whatever it is. The session timeouts
are extended by the controller's own delay: so they still end at a controller that is always late. The grace pauses from
the last call on: a broker with time left keeps it.

The core decides; the runtime connects, and appends the records of a fencing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from odradek_proto.v1.controller_messages import Heartbeat, ReplicaReport
from odradek_proto.values import Value

from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage

REDIAL_MS = 25  # a dying process may still listen for a moment
MAX_TICK_MS = 1_000  # `on_time` is called at least this often
PAUSE_MS = 100  # a step so much later than `next_deadline_ms` said was not the brokers' fault; less is a busy loop


class FenceReason(Enum):
    SESSION_TIMEOUT = "session timeout"
    DIAL_REFUSED = "dial refused"
    STREAM_GONE = "stream gone"

    @property
    def early(self) -> bool:
        return self is not FenceReason.SESSION_TIMEOUT


class DialBroker(Value, frozen=True):
    """Check whether a process listens at the broker's endpoint, and report it to `dial_answered`."""

    broker_id: int
    incarnation_id: bytes


class Fence(Value, frozen=True):
    broker_id: int
    reason: FenceReason


class SuspectSelf(Value, frozen=True):
    """More than half of the brokers fell silent at once: this one is left to its session timeout."""

    broker_id: int
    silent: int
    unfenced: int


SessionEffect = DialBroker | Fence | SuspectSelf


@dataclass(slots=True)
class ControllerSession:
    """One incarnation of one broker. `absent_since_ms`: no stream since then, and it matters; None otherwise."""

    incarnation_id: bytes
    last_contact_ms: int
    metadata_offset: int = -1
    shutdown_offset: int | None = None  # of its controlled shutdown, once that has begun
    streams: int = 0
    absent_since_ms: int | None = None
    ended_ms: int | None = None  # when its last stream ended; None while one stands, or none has been seen
    dialling: bool = False
    next_dial_ms: int = 0
    reports: Mapping[tuple[bytes, int], ReplicaReport] = field(default_factory=dict)  # of its last heartbeat
    unreachable: Sequence[int] = ()  # of its last heartbeat: leaders that do not answer it
    is_full: bool = False  # its disk, by its last heartbeat


class SessionTable:
    """Every method that decides gets the image that runs ahead: only that determines which brokers are fenced."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._timeout_ms = settings.session_timeout_ms
        self._grace_ms = settings.session_grace_ms
        self._early = settings.fences_early
        self._sessions: dict[int, ControllerSession] = {}
        self._looked_ms = 0  # when something was done here last
        self._due_ms = 0  # by when `on_time` is called, unless this node sleeps

    def take_over(self, image: MetadataImage, now_ms: int) -> None:
        """This node became the active controller: all sessions restart (R-154), and all brokers are dialled."""
        self._looked_ms, self._due_ms = now_ms, now_ms + MAX_TICK_MS
        self._sessions = {
            broker_id: ControllerSession(
                registration.incarnation_id,
                now_ms,
                absent_since_ms=now_ms if self._early and not registration.fenced else None,
                next_dial_ms=now_ms,
            )
            for broker_id, registration in sorted(image.brokers.items())
        }

    def session(self, broker_id: int) -> ControllerSession | None:
        return self._sessions.get(broker_id)

    def registered(self, registration: BrokerRegistration, now_ms: int) -> None:
        """A registration was written. The state of an older incarnation is dropped (R-152)."""
        self._forgive_own_pause(now_ms)
        session = self._sessions.get(registration.broker_id)
        if session is None or session.incarnation_id != registration.incarnation_id:
            self._sessions[registration.broker_id] = ControllerSession(registration.incarnation_id, now_ms)
        else:
            session.last_contact_ms = now_ms

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Is its stream open, and was a message received within the session timeout? (R-151)"""
        self._forgive_own_pause(now_ms)
        session = self._sessions.get(broker_id)
        return session is not None and session.streams > 0 and not self._expired(session, now_ms)

    def heartbeat(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """Refresh the session, however late the heartbeat was handled (R-154)."""
        self._forgive_own_pause(now_ms)
        session = self._sessions[broker_id]
        session.last_contact_ms = now_ms
        session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def take_reports(self, broker_id: int, heartbeat: Heartbeat) -> None:
        """A heartbeat's reports of copies (R-146), leaders (R-147) and its disk (R-148) replace the previous ones."""
        session = self._sessions[broker_id]
        session.reports = {(each.topic_id, each.partition): each for each in heartbeat.replicas}
        session.unreachable = heartbeat.unreachable
        session.is_full = heartbeat.disk_full

    def reports_of(self, broker_id: int) -> Mapping[tuple[bytes, int], ReplicaReport]:
        """The reports of a broker's current incarnation about its copies, by topic id and partition."""
        session = self._sessions.get(broker_id)
        return {} if session is None else session.reports

    def unreachable_from(self, image: MetadataImage) -> dict[int, list[int]]:
        """Brokers that do not answer others, and which active ones those are (R-147)."""
        found: dict[int, list[int]] = {}
        for reporter, session in self._sessions.items():
            if session.unreachable and image.is_active(reporter):
                for broker_id in dict.fromkeys(session.unreachable):
                    if broker_id in image.brokers and broker_id != reporter:
                        found.setdefault(broker_id, []).append(reporter)
        return found

    def is_full(self, broker_id: int) -> bool:
        """Whether the disk of a broker's current incarnation takes nothing more (R-148)."""
        session = self._sessions.get(broker_id)
        return session is not None and session.is_full

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        """The metadata offset that every active broker has reached; None without an active broker."""
        return min(
            (session.metadata_offset for broker_id, session in self._sessions.items() if image.is_active(broker_id)),
            default=None,
        )

    def stream_opened(self, broker_id: int, incarnation_id: bytes, now_ms: int) -> None:
        self._forgive_own_pause(now_ms)
        session = self._of(broker_id, incarnation_id)
        if session is not None:
            session.streams += 1
            session.absent_since_ms = None
            session.ended_ms = None
            session.last_contact_ms = now_ms

    def stream_ended(self, broker_id: int, incarnation_id: bytes, now_ms: int) -> None:
        """Call `on_time` afterwards: there may be something to do at once."""
        self._forgive_own_pause(now_ms)
        session = self._of(broker_id, incarnation_id)
        if session is None or session.streams == 0:
            return
        session.streams -= 1
        if session.streams == 0 and self._early:
            session.absent_since_ms = session.ended_ms = now_ms
            session.next_dial_ms = now_ms

    def dial_answered(self, image: MetadataImage, dial: DialBroker, refused: bool, now_ms: int) -> list[SessionEffect]:
        """The result of a connection attempt. A refusal fences the incarnation that was dialled, unless it has a stream
        again.
        """
        self._forgive_own_pause(now_ms)
        session = self._of(dial.broker_id, dial.incarnation_id)
        if session is None:
            return []
        session.dialling = False
        session.next_dial_ms = now_ms + REDIAL_MS
        if not refused or session.streams > 0 or not _unfenced(image, dial.broker_id):
            return []
        session.absent_since_ms = None
        return [Fence(dial.broker_id, FenceReason.DIAL_REFUSED)]

    def on_time(self, image: MetadataImage, now_ms: int) -> list[SessionEffect]:
        """The due actions. At most one broker is fenced for its timeout, the one silent longest; call again after."""
        self._forgive_own_pause(now_ms)
        self._due_ms = now_ms + MAX_TICK_MS
        effects: list[SessionEffect] = []
        for broker_id, session in sorted(self._sessions.items()):
            if session.absent_since_ms is not None and _unfenced(image, broker_id):
                effects += self._absent(image, broker_id, session, session.absent_since_ms, now_ms)
        stale = self._find_stale(image, now_ms)
        if stale is not None:
            effects.append(Fence(stale, FenceReason.SESSION_TIMEOUT))
        return effects

    def next_deadline_ms(self, image: MetadataImage, now_ms: int) -> int:
        """When `on_time` has to be called next. A later call means that this node was suspended."""
        deadline = now_ms + MAX_TICK_MS
        for broker_id, session in self._sessions.items():
            if not _unfenced(image, broker_id):
                continue
            deadline = min(deadline, session.last_contact_ms + self._timeout_ms + 1)
            if session.absent_since_ms is not None:
                deadline = min(deadline, session.absent_since_ms + self._grace_ms)
                if not session.dialling:
                    deadline = min(deadline, session.next_dial_ms)
        self._due_ms = max(deadline, now_ms)
        return self._due_ms

    def _of(self, broker_id: int, incarnation_id: bytes) -> ControllerSession | None:
        session = self._sessions.get(broker_id)
        return session if session is not None and session.incarnation_id == incarnation_id else None

    def _expired(self, session: ControllerSession, now_ms: int) -> bool:
        return session.last_contact_ms + self._timeout_ms < now_ms

    def _find_stale(self, image: MetadataImage, now_ms: int) -> int | None:
        expired = [
            (session.last_contact_ms, broker_id)
            for broker_id, session in self._sessions.items()
            if self._expired(session, now_ms) and _unfenced(image, broker_id)
        ]
        return min(expired)[1] if expired else None

    def _absent(
        self, image: MetadataImage, broker_id: int, session: ControllerSession, since_ms: int, now_ms: int
    ) -> list[SessionEffect]:
        if now_ms >= since_ms + self._grace_ms:
            session.absent_since_ms = None
            if session.ended_ms is None:
                return []  # absent since we took over: silence proves nothing: its session timeout decides
            silent, unfenced = self._silent(image, since_ms), _count_unfenced(image)
            if 2 * silent > unfenced:
                return [SuspectSelf(broker_id, silent, unfenced)]
            return [Fence(broker_id, FenceReason.STREAM_GONE)]
        if not session.dialling and now_ms >= session.next_dial_ms:
            session.dialling = True
            return [DialBroker(broker_id, session.incarnation_id)]
        return []

    def _silent(self, image: MetadataImage, since_ms: int) -> int:
        """How many unfenced brokers lost their streams within one grace of this moment, and have not come back."""
        return sum(
            1
            for broker_id, session in self._sessions.items()
            if session.ended_ms is not None
            and abs(session.ended_ms - since_ms) <= self._grace_ms
            and _unfenced(image, broker_id)
        )

    def _forgive_own_pause(self, now_ms: int) -> None:
        late_ms, gap_ms = now_ms - max(self._due_ms, self._looked_ms), now_ms - self._looked_ms
        self._looked_ms = now_ms
        if late_ms < PAUSE_MS:
            return
        self._due_ms = now_ms
        for session in self._sessions.values():
            session.last_contact_ms += late_ms
            if session.absent_since_ms is not None:
                session.absent_since_ms += gap_ms
            if session.ended_ms is not None:
                session.ended_ms += gap_ms


def _unfenced(image: MetadataImage, broker_id: int) -> bool:
    registration = image.brokers.get(broker_id)
    return registration is not None and not registration.fenced


def _count_unfenced(image: MetadataImage) -> int:
    return sum(1 for registration in image.brokers.values() if not registration.fenced)
