"""What strangers can do to the log of refusals and to the table of tokens, by asking again and again."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from odradek_broker.config.log_levels import AUDIT
from odradek_broker.core.security.authorizer import Authorizer
from odradek_broker.requests.access import MOST_NAMED, Access
from odradek_broker.requests.authentication import Authentication
from odradek_broker.requests.context import Principal, RequestContext
from odradek_broker.rpc.authentication import Identities
from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl
from odradek_proto.security.scram import PLAIN, credential_of, plain_message, salted_password
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.ports import CallContext, CallRejected
from odradek_proto.v1 import broker_pb2 as pb

SCRAM = "SCRAM-SHA-256"


def test_a_stranger_with_many_names_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Some names have a line each, all further ones together only the first, the tenth, the hundredth."""
    access = Access(Authorizer())
    context = RequestContext(peer="10.0.0.9:1", principal=Principal("User", "mallory"), listener="KAFKA")
    with caplog.at_level(logging.INFO, logger=AUDIT):
        for number in range(10 * MOST_NAMED):
            access.refusal(context, "Produce", f"topic-{number}")
    assert len(caplog.records) <= MOST_NAMED + 3
    assert "refused WRITE on TOPIC 'topic-0'" in caplog.records[0].getMessage()


def test_operations_are_those_that_the_acls_allow() -> None:
    """A bit for each, by Kafka's number; READ implies DESCRIBE."""
    acl = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
    access = Access(Authorizer(), lambda: {b"1": acl})
    alice = RequestContext(peer="10.0.0.9:1", principal=Principal("User", "alice"), listener="KAFKA")
    assert access.operations(alice, ResourceType.TOPIC, "orders") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert access.operations(alice, ResourceType.TOPIC, "others") == 0


class Dialogue:
    """A stream on which one client has said one thing."""

    def __init__(self, message: bytes) -> None:
        self.peer = ""
        self._message = message
        self.said: list[pb.AuthenticateResponse] = []

    async def recv(self) -> bytes:
        return self._message

    async def send(self, message: bytes) -> None:
        self.said.append(pb.AuthenticateResponse.FromString(message))

    def close(self) -> None: ...


def with_passwords(files: OsFiles) -> Authentication:
    """Of alice and bob, whose passwords are their names."""
    salt = b"0123456789abcdef"
    known = {
        name: {SCRAM: credential_of(SCRAM, salted_password(SCRAM, name, salt, 4096), salt, 4096)}
        for name in ("alice", "bob")
    }
    return Authentication(
        (PLAIN,),
        credentials=lambda: known,
        new_nonce=lambda: "n",
        clock=LoopClock(),
        files=files,
        refusal_delay_ms=0,
    )


async def test_a_connection_has_one_token_at_a_time() -> None:
    """Authenticating again on a connection drives no other one out, and changes who speaks on it."""
    authentication = with_passwords(OsFiles())
    tokens = iter("123456789")
    identities = Identities(authentication, lambda: next(tokens), 65_536)

    async def authenticate(peer: str, name: str) -> str:
        data = plain_message(name, name)
        dialogue = Dialogue(pb.AuthenticateRequest(mechanism=PLAIN, data=data).SerializeToString())
        await identities.authenticate(dialogue, CallContext(peer))
        return dialogue.said[-1].token

    other = await authenticate("other", "bob")
    first = await authenticate("here", "alice")
    assert await authenticate("here", "alice") == first
    second = await authenticate("here", "bob")
    assert identities.principal(CallContext("here", token=second)) == Principal("User", "bob")
    assert identities.principal(CallContext("other", token=other)) == Principal("User", "bob")
    with pytest.raises(CallRejected):
        identities.principal(CallContext("here", token=first))


async def test_a_message_before_sasl_is_as_large_as_the_setting_says() -> None:
    """Over gRPC, too."""
    message = pb.AuthenticateRequest(mechanism=PLAIN, data=plain_message("bob", "bob")).SerializeToString()
    for most_bytes, error in ((len(message), ErrorCode.NONE), (len(message) - 1, ErrorCode.ILLEGAL_SASL_STATE)):
        dialogue = Dialogue(message)
        identities = Identities(with_passwords(OsFiles()), lambda: "1", most_bytes)
        await identities.authenticate(dialogue, CallContext("here"))
        assert dialogue.said[-1].error_code == error


async def test_passwords_are_checked_while_the_disk_is_busy() -> None:
    """Its threads may all wait for a flush; and checks take none of them."""
    files, flushed = OsFiles(threads=1), threading.Event()
    flushing = asyncio.ensure_future(files.offload(flushed.wait))
    try:
        conversation = with_passwords(files).begin(PLAIN, "here")
        assert conversation is not None
        async with asyncio.timeout(30):
            await conversation.step(plain_message("alice", "alice"))
        assert conversation.principal == Principal("User", "alice")
    finally:
        flushed.set()
        await flushing
        files.close()
