"""SCRAM and PLAIN, a message at a time."""

from __future__ import annotations

import base64

import pytest
from odradek_proto.security.scram import (
    HASHES,
    AuthenticationRefused,
    Credential,
    ScramClient,
    ScramServer,
    credential_of,
    parse_plain,
    plain_message,
    salted_password,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def credential(mechanism: str, password: str) -> Credential:
    return credential_of(mechanism, salted_password(mechanism, password, SALT, 4096), SALT, 4096)


def server(mechanism: str, nonce: str = "server") -> ScramServer:
    known = {"user": credential(mechanism, "pencil"), "a,b=c": credential(mechanism, "ü,=")}
    return ScramServer(mechanism, known.get, nonce)


def test_the_messages_are_those_of_rfc_7677() -> None:
    """Its example of SCRAM-SHA-256, both sides."""
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    there = server("SCRAM-SHA-256", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = there.first(client.first())
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.final(first)
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    last = there.final(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(last)


@pytest.mark.parametrize("mechanism", HASHES)
def test_only_the_password_lets_anybody_in(mechanism: str) -> None:
    """Also with the characters that SCRAM writes otherwise; who is nobody and who errs hear the same."""
    client, there = ScramClient(mechanism, "a,b=c", "ü,=", "n"), server(mechanism)
    client.check(there.final(client.final(there.first(client.first()))))
    assert there.username == "a,b=c"
    refused = []
    for name, password in (("user", "pencil "), ("nobody", "pencil")):
        client, there = ScramClient(mechanism, name, password, "n"), server(mechanism)
        with pytest.raises(AuthenticationRefused) as caught:
            there.final(client.final(there.first(client.first())))
        refused.append(str(caught.value))
    assert len(set(refused)) == 1


def test_a_server_that_knows_no_password_is_not_believed() -> None:
    """It may ask for a proof, and cannot give one itself; few iterations would let it guess from the client's."""
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "n")
    client.final(b"r=nx,s=" + base64.b64encode(SALT) + b",i=4096")
    with pytest.raises(AuthenticationRefused, match="does not know the password"):
        client.check(b"v=" + base64.b64encode(bytes(32)))
    with pytest.raises(AuthenticationRefused, match="1 iterations"):
        ScramClient("SCRAM-SHA-256", "user", "pencil", "n").final(b"r=nx,s=" + base64.b64encode(SALT) + b",i=1")


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n", b"n,,", b"\xff\xfe", b"n,,n=user", b"n,,r=x", b"p=tls-unique,,n=user,r=x", b"n,a=root,n=user,r=x",
        b"n,,m=1,n=user,r=x", b"x,,n=user,r=x",
    ],
)  # fmt: skip
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    """Channel binding, another user's identity, unknown demands, and what is no SCRAM at all."""
    with pytest.raises(AuthenticationRefused):
        server("SCRAM-SHA-256").first(message)


@pytest.mark.parametrize(
    "message", [b"", b"c=biws,r=nserver", b"c=biws,r=other,p=AAAA", b"c=biws,r=nserver,p=?", b"c=biws,r=nserver,p=AAAA"]
)
def test_what_is_no_proof_is_refused(message: bytes) -> None:
    """Another nonce, no base64, a proof that is too short."""
    there = server("SCRAM-SHA-256")
    there.first(b"n,,n=user,r=n")
    with pytest.raises(AuthenticationRefused):
        there.final(message)


def test_plain_is_one_message() -> None:
    """RFC 4616; nobody acts for somebody else."""
    assert parse_plain(plain_message("alice", "ü\ns")) == ("alice", "ü\ns")
    assert parse_plain(b"alice\0alice\0x") == ("alice", "x")
    for message in (b"", b"alice", b"\0alice", b"\0\0x", b"\0alice\0", b"root\0alice\0x", b"\0a\0b\0c", b"\0\xff\0x"):
        with pytest.raises(AuthenticationRefused):
            parse_plain(message)
