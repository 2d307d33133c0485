"""How many bytes of answers may be on their way to clients that have not taken them.

An answer is in memory until the client's flow control has let it out, and a client that never reads keeps it there for
as long as it is connected. Two rules bound what a thousand of them cost. A session gets small answers until it has
taken more than the kernel's buffers could have hidden (`SessionQuota`). And all sessions together share a number of
bytes (`ResponseBudget`); those that have not shown yet that they read may use only half of it, so the others go on.
"""

from __future__ import annotations

import asyncio

from odradek_proto.topics import TopicPartition

SMALL_ANSWER_BYTES = 32 * 1024  # what a client may always be sent that has not shown that it reads
PROVEN_BYTES = 16 * 1024 * 1024  # whoever has taken this much reads: no kernel keeps as much for a socket
HIDDEN_BYTES = 32 * 1024 * 1024  # of the last answers to sessions without proof: gRPC may keep one more than we know of
HIDDEN_SHARE = 8  # what is left of them is given out by eighths, so that those who come next find some


class SessionQuota:
    """How large a session's next answer may be. Its first batch may be larger (KIP-74).

    A hundred sessions without proof get some 300 KiB each, a thousand 32 KiB.
    """

    __slots__ = ("_all", "_hidden", "_most", "_taken")

    def __init__(self, most_bytes: int, of_all: ResponseBudget, *, trusted: bool) -> None:
        self._most = most_bytes
        self._all = of_all
        self._taken = PROVEN_BYTES if trusted else 0
        self._hidden = 0  # bytes of its last answer, which may not have been taken

    @property
    def trusted(self) -> bool:
        return self._taken >= PROVEN_BYTES

    @property
    def next_bytes(self) -> int:
        if self.trusted:
            return self._most
        left = HIDDEN_BYTES - self._all.hidden_bytes + self._hidden
        return min(self._most, max(SMALL_ANSWER_BYTES, left // HIDDEN_SHARE))

    def took(self, size: int) -> None:
        """An answer of that size has left."""
        self._taken += size
        self._hide(0 if self.trusted else size)

    def end(self) -> None:
        """The session is over."""
        self._hide(0)

    def _hide(self, size: int) -> None:
        self._all.hidden_bytes += size - self._hidden
        self._hidden = size


class ResponseBudget:
    """Bytes of answers that wait to be taken, of all sessions of a broker. The bound may be passed by one answer.

    Room is given in turns: as long as somebody waits for it, or has been given it and has not used it yet, nobody else
    takes it. Those with proof and those without take turns, too.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.hidden_bytes = 0  # of the last answers that have left, to sessions that have not shown that they read
        self._limit_bytes = limit_bytes
        self._bytes = {True: 0, False: 0}  # by trusted
        self._waiting: dict[bool, dict[asyncio.Future[None], None]] = {True: {}, False: {}}
        self._is_given = False  # somebody was woken who has not said yet what becomes of the room
        self._last_trusted = False  # whose turn it was last

    def has_room(self, *, trusted: bool) -> bool:
        """Whether an answer may be gathered at once."""
        return not self._is_given and not self._waiting[trusted] and self._fits(trusted)

    def _fits(self, trusted: bool) -> bool:
        untrusted = self._bytes[False]
        return untrusted + self._bytes[True] < self._limit_bytes and (trusted or untrusted < self._limit_bytes // 2)

    async def room(self, *, trusted: bool) -> None:
        """Return once there is room. The caller calls `add` or `pass_on` before it awaits anything else."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[trusted][turn] = None
        self._wake_next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._is_given = False  # the turn was ours already: it goes to the next one
            self._waiting[trusted].pop(turn, None)
            self._wake_next()
            raise

    def add(self, size: int, *, trusted: bool) -> None:
        """An answer is on its way; whoever waits behind may find room as well."""
        self._bytes[trusted] += size
        self.pass_on()

    def pass_on(self) -> None:
        """Whoever had the turn has used it, or has nothing to send after all."""
        self._is_given = False
        self._wake_next()

    def remove(self, size: int, *, trusted: bool) -> None:
        """An answer has left, or its stream is gone; `trusted` as it was added."""
        self._bytes[trusted] -= size
        assert self._bytes[trusted] >= 0, self._bytes
        self._wake_next()

    def _wake_next(self) -> None:
        for trusted in (not self._last_trusted, self._last_trusted):
            if self._is_given or not self._fits(trusted):
                continue
            queue = self._waiting[trusted]
            while queue and not self._is_given:
                turn = next(iter(queue))
                del queue[turn]
                if not turn.done():
                    turn.set_result(None)
                    self._is_given, self._last_trusted = True, trusted


class Credit:
    """How many bytes a fetch session may send before its client has taken what was sent before: `left`.

    An answer goes out whole, so it may fall below zero; then nothing is sent. A client that counts for itself grants
    credit with its messages. For one that grants none there is a default, and naming a partition again says that its
    last answer was taken.
    """

    __slots__ = ("_granted", "_untaken", "left")

    def __init__(self, default_bytes: int) -> None:
        self.left = default_bytes
        self._granted = False  # whether the client counts for itself
        self._untaken: dict[TopicPartition, int] = {}  # bytes of a partition's last answer, until it is named again

    def grant(self, size: int) -> None:
        """The client has room for so many bytes more; from the first grant on nothing else gives it any."""
        if not self._granted:
            self._granted, self.left = True, 0
            self._untaken.clear()
        self.left += size

    def answered(self, tp: TopicPartition, size: int) -> None:
        """So many bytes of a partition go into an answer; `spend` charges them."""
        if size and not self._granted:
            self._untaken[tp] = size

    def spend(self, size: int) -> None:
        """An answer with so many bytes of batches is sent."""
        self.left -= size

    def taken(self, tp: TopicPartition) -> bool:
        """The partition is named again or forgotten: its last answer was taken. Returns whether that gave room."""
        untaken = self._untaken.pop(tp, 0)
        self.left += untaken
        return untaken > 0
