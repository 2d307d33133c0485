"""The commands of a group coordinator's transcript: a shard, its time and its writes in our hands, and clients by name.

settings max_size=2     of the coordinator, before the first call; names as in GroupSettings
join a [instance=i] [protocols=range,sticky] [topics=orders] [type=consumer] [session=10000] [rebalance=30000]
       [version=9] [id=a-1] [fresh]     with the member id that the client was given, unless `fresh`, and what it said
                        before. Below version 4 no id has to be known, below 9 an assignment cannot be skipped
sync a [a=0,1 b=2] [protocol=] [type=]  the leader's with what it assigns
heartbeat a             leave a [b] [instance=i]
commit a orders-0=5 [orders-1=7@3] [retention=1000] [metadata=5000]     @: leader epoch; as many characters of metadata.
                        Who never joined commits as a simple consumer
                        Clients say the generation and the id that they know, or generation=1, id=a-1
fetch [orders-0]        offsets, of all partitions if none is named     delete_offsets orders-0
describe                list [states=stable] [types=classic]            delete
gone orders             the topic is deleted
give_up a               its caller is gone
time 3000               so much later; deadlines on the way are kept
hold                    writes are not committed from now on
written [2]             this many are; all, and whatever comes
takeover [keep]         another coordinator loads what was committed; `keep`: what was only appended, too
group h                 from now on it is about the group `h`; at first it is `g`

Answers have the client and its call before them; `write` is a batch that is appended, and committed at once unless
held. A group's line is shown when it has changed: `joining` and `syncing` are members whose call waits, `pending` ids
that were given out and have not joined.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

from odradek_broker.core.groups import records
from odradek_broker.core.groups.classic import ClassicGroup
from odradek_broker.core.groups.messages import (
    Answer,
    CoordinatorRecord,
    DeleteGroup,
    DescribeGroup,
    DescribeGroupAnswer,
    Effect,
    ErrorAnswer,
    GroupReply,
    GroupSettings,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    LeavingMember,
    ListGroups,
    ListGroupsAnswer,
    MemberProtocol,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    Request,
    SyncGroup,
    SyncGroupAnswer,
    WriteRecords,
)
from odradek_broker.core.groups.records import ClassicRecord, OffsetRecord
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_chaos.stage.transcript import Transcript
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.values import replace

from tests.groups.consumers import Topics

WALL_MS = 1_000_000_000_000
FIRST_WITH_KNOWN_ID, FIRST_WITH_SKIPPING = 4, 9  # versions of JoinGroup


def subscription(topics: str) -> bytes:
    """As a consumer writes it, of version 0."""
    names = [name.encode() for name in topics.split(",") if name]
    return struct.pack(">hi", 0, len(names)) + b"".join(struct.pack(">h", len(name)) + name for name in names)


class Client:
    """What a client knows of itself: it learns it from answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation_id = -1
        self.said: dict[str, str] = {}

    @property
    def instance_id(self) -> str | None:
        return self.said.get("instance")


class GroupStage(Transcript):
    """One story. Groups have state lines."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = GroupSettings()
        self.group_id = "g"
        self.clients: dict[str, Client] = {}
        self.committed: list[CoordinatorRecord] = []
        self.appended: list[WriteRecords] = []  # not committed
        self._ids = itertools.count(1)
        self._calls = itertools.count(1)
        self._holds = False
        self._last_call: dict[str, object] = {}
        self.shard = self._load()

    def states(self) -> Iterator[tuple[str, str]]:
        return ((group_id, self.describe(self.shard.groups[group_id])) for group_id in sorted(self.shard.groups))

    def describe(self, group: ClassicGroup) -> str:
        members = group.members.values()
        waits = {
            "members": [each.member_id for each in members],
            "joining": [each.member_id for each in members if each.join is not None],
            "syncing": [each.member_id for each in members if each.sync is not None],
            "pending": list(group.pending),
        }
        shown = "".join(f" {name}={','.join(ids)}" for name, ids in waits.items() if ids)
        leader = f" leader={group.leader}" if group.leader else ""
        return f"{group.state} generation={group.generation_id}{leader}{shown}"

    def call(self, who: str, request: Request) -> None:
        token = (who, type(request).__name__, next(self._calls))
        self._last_call[who] = token
        self.carry_out(self.shard.handle(request, token, self.now_ms, WALL_MS + self.now_ms))

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, GroupReply):
                assert isinstance(effect.token, tuple), effect
                self.on_answer(effect.token[0], effect.token[1], effect.answer)
                continue
            self.say(f"write {effect.write_id}: {'; '.join(map(told_record, effect.records))}")
            self.appended.append(effect)
            if not self._holds:
                self.do_written()

    def on_answer(self, who: str, call: str, answer: Answer) -> None:
        client = self.clients.get(who)
        if isinstance(answer, JoinGroupAnswer) and client is not None:
            if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = answer.member_id
            if answer.error is ErrorCode.NONE:
                client.generation_id = answer.generation_id
        self.say(f"{who} {call}: {told(answer)}")

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # --- Members ----------------------------------------------------------------------------------------------------

    def do_settings(self, **said: str) -> None:
        self.settings = replace(self.settings, **{name: int(value) for name, value in said.items()})
        self.shard = self._load()

    def do_group(self, group_id: str = "") -> None:
        self.group_id = group_id

    def do_join(self, name: str, *flags: str, **said: str) -> None:
        client = self.client(name)
        client.said.update(said)
        said = client.said
        if "fresh" in flags:
            client.member_id = ""
        version = int(said.get("version", "9"))
        topics = subscription(said.get("topics", "orders"))
        request = JoinGroup(
            self.group_id,
            said.pop("id", client.member_id),
            client.instance_id,
            said.get("type", "consumer"),
            tuple(MemberProtocol(each, topics) for each in said.get("protocols", "range").split(",") if each),
            int(said.get("session", "10000")),
            int(said.get("rebalance", "30000")),
            client_id=name,
            requires_known_member_id=version >= FIRST_WITH_KNOWN_ID,
            supports_skipping_assignment=version >= FIRST_WITH_SKIPPING,
        )
        self.call(name, request)

    def do_sync(self, name: str, **said: str) -> None:
        client = self.client(name)
        assignments = {self.clients[key].member_id: text.encode() for key, text in said.items() if key in self.clients}
        generation_id, member_id = identity(client, said)
        request = SyncGroup(
            self.group_id,
            generation_id,
            member_id,
            client.instance_id,
            said.get("type"),
            said.get("protocol"),
            assignments,
        )
        self.call(name, request)

    def do_heartbeat(self, name: str, **said: str) -> None:
        client = self.client(name)
        self.call(name, Heartbeat(self.group_id, *identity(client, said), client.instance_id))

    def do_leave(self, *names: str, instance: str = "") -> None:
        leaving = [LeavingMember(self.clients[name].member_id, self.clients[name].instance_id) for name in names]
        if instance:
            leaving.append(LeavingMember("", instance))
        self.call(names[0] if names else "admin", LeaveGroup(self.group_id, tuple(leaving)))

    def do_give_up(self, name: str) -> None:
        self.shard.cancel(self._last_call[name])

    # --- Offsets and groups -----------------------------------------------------------------------------------------

    def do_commit(self, name: str, **said: str) -> None:
        client = self.clients.get(name, Client(name))
        offsets = []
        for key, text in said.items():
            if "-" in key:
                offset, _, epoch = text.partition("@")
                metadata = "m" * int(said.get("metadata", "0")) or None
                offsets.append(OffsetToCommit(partition(key), int(offset), int(epoch or "-1"), metadata))
        request = OffsetCommit(
            self.group_id,
            *identity(client, said),
            client.instance_id,
            tuple(offsets),
            int(said.get("retention", "-1")),
        )
        self.call(name, request)

    def do_fetch(self, *words: str) -> None:
        self.call("reader", OffsetFetch(self.group_id, tuple(map(partition, words)) or None))

    def do_delete_offsets(self, *words: str) -> None:
        self.call("admin", OffsetDelete(self.group_id, tuple(map(partition, words))))

    def do_describe(self) -> None:
        self.call("admin", DescribeGroup(self.group_id))

    def do_list(self, **said: str) -> None:
        states, types = (tuple(each for each in said.get(name, "").split(",") if each) for name in ("states", "types"))
        self.call("admin", ListGroups(states, types))

    def do_delete(self) -> None:
        self.call("admin", DeleteGroup(self.group_id))

    def do_gone(self, topic: str) -> None:
        self.carry_out(self.shard.on_topics_changed([topic], self.now_ms, WALL_MS + self.now_ms))

    # --- Time and the log -------------------------------------------------------------------------------------------

    def do_time(self, much: str) -> None:
        until_ms = self.now_ms + int(much)
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.carry_out(self.shard.on_time(self.now_ms, WALL_MS + self.now_ms))
        self.now_ms = until_ms

    def do_hold(self) -> None:
        self._holds = True

    def do_written(self, how_many: str = "") -> None:
        held, self._holds = self._holds, self._holds and bool(how_many)
        for _ in range(int(how_many or len(self.appended))):
            batch = self.appended.pop(0)
            self.committed += batch.records
            if held:
                self.say(f"write {batch.write_id} committed")
            self.carry_out(self.shard.on_written(batch.write_id, self.now_ms))

    def do_takeover(self, what: str = "") -> None:
        for reply in self.shard.unload(ErrorCode.NOT_COORDINATOR):
            self.carry_out([reply])
        if what == "keep":
            self.committed += [record for batch in self.appended for record in batch.records]
        self.shard = self._load()

    def _load(self) -> GroupCoordinatorShard:
        self.appended = []
        self._holds = False
        shard = GroupCoordinatorShard(self.settings, Topics(), lambda: str(next(self._ids)))
        for key, value in self.committed:
            shard.replay(key, value, WALL_MS)
        self.shard = shard
        self.carry_out(shard.on_loaded(self.now_ms))
        return shard


def identity(client: Client, said: dict[str, str]) -> tuple[int, str]:
    return int(said.get("generation", client.generation_id)), said.get("id", client.member_id)


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def told_record(record: CoordinatorRecord) -> str:
    return told_change(records.decode(*record))


def told_change(record: ClassicRecord) -> str:
    who, value = record.group_id, record.value
    if isinstance(record, OffsetRecord):
        offset = record.value
        if offset is None:
            return f"{who} {record.topic_partition} deleted"
        epoch = "" if offset.leader_epoch < 0 else f"@{offset.leader_epoch}"
        until = "" if offset.expire_timestamp_ms < 0 else f" until {offset.expire_timestamp_ms - WALL_MS}"
        return f"{who} {record.topic_partition}={offset.offset}{epoch}{until}"
    if record.value is None:
        return f"{who} deleted"
    group = record.value
    members = " ".join(f"{each.member_id}:{each.assignment.decode()}" for each in group.members)
    known = f" {group.protocol_name} leader={group.leader} {members}" if group.members else " empty"
    assert value is not None
    return f"{who} generation={group.generation_id}{known}"


def told(answer: Answer) -> str:
    text = answer.error.name
    match answer:
        case JoinGroupAnswer():
            members = " ".join(each.member_id for each in answer.members)
            if answer.error is ErrorCode.NONE:
                text = f"{answer.member_id} generation={answer.generation_id} {answer.protocol_name}"
                text += f" leader={answer.leader}" + (f" members: {members}" if members else "")
                text += " skip" if answer.skip_assignment else ""
            elif answer.member_id:
                text += f" {answer.member_id}"
        case SyncGroupAnswer():
            text = f"assigned {answer.assignment.decode() or 'nothing'}" if answer.error is ErrorCode.NONE else text
        case LeaveGroupAnswer():
            rows = (f"{each.member_id or each.group_instance_id}={error.name}" for each, error in answer.members)
            text = " ".join(rows) or text
        case OffsetCommitAnswer() | OffsetDeleteAnswer():
            text += "".join(f" {tp}={error.name}" for tp, error in answer.partitions if error is not answer.error)
        case OffsetFetchAnswer():
            rows = (
                f"{each.topic_partition}={each.offset}{'' if each.leader_epoch < 0 else f'@{each.leader_epoch}'}"
                for each in answer.offsets
            )
            text = " ".join(rows) or "nothing"
        case ListGroupsAnswer():
            rows = (f"{each.group_id}:{each.state}:{each.type}:{each.protocol_type}" for each in answer.groups)
            text = " ".join(rows) or "nothing"
        case DescribeGroupAnswer():
            rows = (
                f"{each.member_id} {each.client_id} {len(each.metadata)} bytes, {each.assignment.decode() or 'nothing'}"
                for each in answer.members
            )
            head = f"{text} {answer.state} {answer.protocol_type} {answer.protocol_name}".rstrip()
            text = "; ".join((head, *rows))
        case ErrorAnswer():
            pass
    return text
