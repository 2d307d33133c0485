"""SCRAM (RFC 5802, RFC 7677) and PLAIN (RFC 4616), as Kafka uses them: both sides, a message at a time.

Rules of this module. Nothing here knows a clock, chance or a connection: nonces are given. Passwords are UTF-8 as they
are, which is what Kafka's clients send. What a client says that cannot be, or is wrong, is `AuthenticationRefused`, and
the words for the client do not say which part of its credentials was wrong.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from odradek_proto.values import Value

PLAIN: Final = "PLAIN"
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = (PLAIN, *HASHES)
LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384  # as Kafka: a client computes them, and so does whoever checks PLAIN
_NO_BINDING: Final = "biws"  # n,, in base64


class AuthenticationRefused(Exception):
    """The sentence is for the client."""


class Credential(Value, frozen=True):
    """What a server keeps of a password (RFC 5802, 3)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The slow part: some milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    stored = hashlib.new(HASHES[mechanism], _hmac(mechanism, salted, b"Client Key")).digest()
    return Credential(salt, stored, _hmac(mechanism, salted, b"Server Key"), iterations)


def plain_message(username: str, password: str) -> bytes:
    return f"\0{username}\0{password}".encode()


def parse_plain(message: bytes) -> tuple[str, str]:
    """Who says that it is who, and the password. Raises `AuthenticationRefused`."""
    try:
        authorized, username, password = message.decode().split("\0")
    except ValueError:
        raise AuthenticationRefused("PLAIN takes one message: NUL, the user's name, NUL, the password") from None
    if not username or not password:
        raise AuthenticationRefused("the user's name or the password is empty")
    if authorized not in ("", username):
        raise AuthenticationRefused("nobody may act as another user")
    return username, password


class ScramClient:
    """Three messages: `first`, `final` for the server's first one, `check` for its last."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._first = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Raises `AuthenticationRefused` for a server that does not speak SCRAM."""
        said = _attributes(server_first)
        nonce, salt, iterations = said.get("r", ""), said.get("s", ""), said.get("i", "")
        if not nonce.startswith(self._nonce) or not iterations.isdecimal() or len(iterations) > 9:
            raise AuthenticationRefused("the server's first message is not SCRAM's")
        if int(iterations) < LEAST_ITERATIONS:
            raise AuthenticationRefused(f"the server wants {iterations} iterations: that protects no password")
        salted = salted_password(self._mechanism, self._password, _unpacked(salt), int(iterations))
        without_proof = f"c={_NO_BINDING},r={nonce}"
        signed = ",".join((self._first, server_first.decode(), without_proof)).encode()
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        stored = hashlib.new(HASHES[self._mechanism], client_key).digest()
        proof = _xor(client_key, _hmac(self._mechanism, stored, signed))
        self._signature = _hmac(self._mechanism, _hmac(self._mechanism, salted, b"Server Key"), signed)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """That the server knows the credential, too. Raises `AuthenticationRefused`."""
        said = _attributes(server_final)
        if not hmac.compare_digest(_unpacked(said.get("v", "")), self._signature):
            raise AuthenticationRefused("the server does not know the password either")


class ScramServer:
    """Two answers: `first` for the client's first message, `final` for its last."""

    def __init__(self, mechanism: str, lookup: Callable[[str], Credential | None], nonce: str) -> None:
        """`lookup` knows the credentials of this mechanism."""
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce
        self._credential: Credential | None = None
        self._signed = ""
        self.username = ""

    def first(self, client_first: bytes) -> bytes:
        """Raises `AuthenticationRefused`."""
        binding, authorized, rest = _header(client_first)
        said = _attributes(rest.encode())
        self.username = said.get("n", "").replace("=2C", ",").replace("=3D", "=")
        nonce = said.get("r", "")
        if not self.username or not nonce or binding not in ("n", "y") or "m" in said:
            raise AuthenticationRefused("not the first message of SCRAM without channel binding")
        if authorized not in ("", f"a={said['n']}"):
            raise AuthenticationRefused("nobody may act as another user")
        self._credential = found = self._lookup(self.username)
        if found is None:
            raise AuthenticationRefused(_wrong(self._mechanism))
        self._nonce = nonce + self._nonce
        answer = f"r={self._nonce},s={b64encode(found.salt).decode()},i={found.iterations}"
        self._signed = f"{rest},{answer}"
        return answer.encode()

    def final(self, client_final: bytes) -> bytes:
        """Raises `AuthenticationRefused`."""
        text, found = _text(client_final), self._credential
        assert found is not None, "first comes first"
        said = _attributes(client_final)
        if said.get("r") != self._nonce:
            raise AuthenticationRefused("the nonce is another one than before")
        signed = f"{self._signed},{text.rpartition(',p=')[0]}".encode()
        proof = _unpacked(said.get("p", ""))
        client_key = _xor(proof, _hmac(self._mechanism, found.stored_key, signed))
        stored = hashlib.new(HASHES[self._mechanism], client_key).digest()
        if not hmac.compare_digest(stored, found.stored_key):
            raise AuthenticationRefused(_wrong(self._mechanism))
        return b"v=" + b64encode(_hmac(self._mechanism, found.server_key, signed))


def wrong_plain() -> AuthenticationRefused:
    return AuthenticationRefused(_wrong(PLAIN))


def _wrong(mechanism: str) -> str:
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"


def _header(message: bytes) -> tuple[str, str, str]:
    parts = _text(message).split(",", 2)
    if len(parts) < 3:
        raise AuthenticationRefused("not the first message of SCRAM")
    return parts[0], parts[1], parts[2]


def _attributes(message: bytes) -> dict[str, str]:
    """By their letters; extensions (KIP-48's tokenauth) have names."""
    return {name: value for name, _, value in (part.partition("=") for part in _text(message).split(","))}


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationRefused("a message of SCRAM is UTF-8 text") from None


def _unpacked(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise AuthenticationRefused("a value of SCRAM is base64") from None


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise AuthenticationRefused("a proof of another length than the mechanism's")
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
