"""TLS of both sides, from PEM files that may change while a process runs (KIP-651).

Rules of this module. Who has credentials once has them for good: files that have changed are read before the next
handshake, and when they cannot be used, one warning says so and what was there before goes on. Whoever is dialled
always shows a certificate for its host; whether whoever dials has to show one is the server's setting.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import sys
import tempfile
from typing import Final

from odradek_proto.values import Value

logger = logging.getLogger("odradek.security")

NO_CLIENT_AUTH: Final = "none"
CLIENT_AUTH: Final = {  # ssl.client.auth
    NO_CLIENT_AUTH: ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----\s*(.*?)\s*-----END \1-----", re.DOTALL)


class TlsError(ValueError):
    """Certificates or keys that cannot be used; the message says which and why."""


class PemFiles(Value, frozen=True):
    """Where key and certificates come from. What is empty is not there; a value itself wins over a file."""

    keystore: str = ""  # ssl.keystore.location: private key and certificate chain in one file
    certificate_chain: str = ""  # ssl.keystore.certificate.chain
    key: str = ""  # ssl.keystore.key
    truststore: str = ""  # ssl.truststore.location: the authorities that are believed
    certificates: str = ""  # ssl.truststore.certificates


class Credentials(Value, frozen=True):
    """PEM. Without a key and a chain one has no certificate, without `trusted` the system's authorities count."""

    key: bytes = b""
    chain: bytes = b""
    trusted: bytes = b""


class PeerCertificate(Value, frozen=True):
    """Whom the other side is, by a certificate that was checked. `subject` is written as RFC 2253 has it."""

    subject: str
    names: tuple[str, ...]  # the common name, then the alternative names


class TlsSource:
    """The credentials of a process, as they are now. `current` may be called by any thread."""

    def __init__(self, files: PemFiles) -> None:
        """Raises `TlsError`."""
        self._files = files
        self._read_at = self._stamp()
        self._current = _checked(files)
        self._contexts: dict[tuple[Credentials, str], ssl.SSLContext] = {}

    def current(self) -> Credentials:
        """Read again what has changed since the last time."""
        stamp = self._stamp()
        if stamp != self._read_at:
            self._read_at = stamp
            try:
                self._current = _checked(self._files)
                logger.info("%s: read again, for new connections", self._named())
            except TlsError as error:
                logger.warning("%s: not usable, what was there before goes on: %s", self._named(), error)
        return self._current

    def server_context(self, client_auth: str) -> ssl.SSLContext:
        """For a server that asks its clients for certificates as `client_auth` says."""
        credentials = self.current()
        found = self._contexts.get((credentials, client_auth))
        if found is None:
            found = _server_context(credentials, client_auth)
            self._contexts = {(credentials, client_auth): found}
        return found

    def _named(self) -> str:
        return ", ".join(dict.fromkeys(path for path in (self._files.keystore, self._files.truststore) if path))

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp_of(path) for path in (self._files.keystore, self._files.truststore) if path)


def listening_context(source: TlsSource, client_auth: str) -> ssl.SSLContext:
    """A context that a listener may keep for ever: each handshake is made with the credentials of its moment."""
    context = _server_context(source.current(), client_auth)

    def take_newest(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _own: ssl.SSLContext) -> None:
        connection.context = source.server_context(client_auth)

    context.sni_callback = take_newest
    return context


def peer_certificate(certificate: object) -> PeerCertificate | None:
    """From what `getpeercert` says."""
    if not isinstance(certificate, dict) or not certificate.get("subject"):
        return None
    parts = [pair for rdn in certificate["subject"] for pair in rdn]
    subject = ",".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in reversed(parts))
    common = [value for name, value in parts if name == "commonName"]
    alternative = [value for _kind, value in certificate.get("subjectAltName", ())]
    return PeerCertificate(subject, (*common, *alternative))


_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
}


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    return f"\\{text}" if text[:1] in ("#", " ") else text


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _checked(files: PemFiles) -> Credentials:
    """Read everything and try it. Raises `TlsError`."""
    store = _read(files.keystore, "ssl.keystore.location")
    chain = _wrapped(files.certificate_chain.encode()) or _blocks(store, b"CERTIFICATE")
    key = _wrapped(files.key.encode()) or _blocks(store, b"PRIVATE KEY")
    trusted = _wrapped(files.certificates.encode()) or _blocks(
        _read(files.truststore, "ssl.truststore.location"), b"CERTIFICATE"
    )
    where = files.keystore or "ssl.keystore.certificate.chain and ssl.keystore.key"
    if bool(chain) != bool(key) or (files.keystore and not chain):
        lacking = "no certificate" if not chain else "no private key"
        raise TlsError(f"{where}: {lacking} in it; PEM with a private key and the certificates of its chain is needed")
    if b"ENCRYPTED" in key:
        raise TlsError(
            f"{where}: the private key is encrypted: give it without a password, readable for this user only"
        )
    if files.truststore and not trusted:
        raise TlsError(f"{files.truststore}: no certificate in it; PEM with those of the authorities is needed")
    credentials = Credentials(key, chain, trusted)
    _server_context(credentials, NO_CLIENT_AUTH)
    return credentials


def _read(path: str, setting: str) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise TlsError(f"{setting}={path}: cannot be read: {error.strerror or error}") from None


def _blocks(text: bytes, kind: bytes) -> bytes:
    """The PEM blocks of this kind; of a private key, whichever form it has."""
    return b"".join(match[0] + b"\n" for match in _BLOCK.finditer(text) if match[1].endswith(kind))


def _wrapped(text: bytes) -> bytes:
    """PEM as it should be, from a setting in which its lines may have become one."""
    return b"".join(
        b"-----BEGIN %s-----\n%s\n-----END %s-----\n" % (match[1], b"\n".join(match[2].split()), match[1])
        for match in _BLOCK.finditer(text)
    )


def _server_context(credentials: Credentials, client_auth: str) -> ssl.SSLContext:
    """Raises `TlsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = CLIENT_AUTH[client_auth]
    try:
        if credentials.trusted:
            context.load_verify_locations(cadata=credentials.trusted.decode("ascii", "replace"))
        if credentials.key:
            _load(context, credentials)
    except ssl.SSLError as error:
        raise TlsError(f"key and certificates do not go together, or are none: {error.reason or error}") from None
    except (OSError, ValueError) as error:
        raise TlsError(f"key and certificates cannot be used: {error}") from None
    return context


def _load(context: ssl.SSLContext, credentials: Credentials) -> None:
    """OpenSSL takes them from a file alone: one in memory where there are such, else one that is gone at once."""
    text = credentials.key + credentials.chain
    if sys.platform == "linux":
        with open(os.memfd_create("odradek.pem"), "wb", buffering=0) as memory:
            memory.write(text)
            context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # nobody else may read it
        file.write(text)
        file.flush()
        context.load_cert_chain(file.name)
