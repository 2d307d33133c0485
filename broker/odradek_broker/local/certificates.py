"""A certificate authority for development, and certificates of it: for nodes, and for clients that use mTLS.

Rule of this module. What is there already is used again: a second call adds what is missing, and whoever trusts the
authority goes on trusting it. A node's certificate says which node it is, in its common name `node-<id>`, for the hosts
by which it is dialled; a client's common name is its user's.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.security.identity import node_name

AUTHORITY: Final = "ca.pem"
AUTHORITY_KEY: Final = "ca-key.pem"
VALID_DAYS: Final = 3_650
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
LONGEST_NAME: Final = 64  # of a common name, in X.509
_DNS_NAME: Final = re.compile(r"(\*\.)?[\w-]+(\.[\w-]+)*\.?", re.ASCII)
_AHEAD: Final = datetime.timedelta(hours=1)  # clocks that are behind believe it, too


def make_node(directory: Path, node_id: int, hosts: Sequence[str] = ()) -> Path:
    """Key and certificate of a node, in one PEM file. Raises `CommandFailed`.

    Without `hosts` it is for this machine's, or for those that the certificate has that is there already.
    """
    path = directory / f"{node_name(node_id)}.pem"
    if hosts and path.exists() and (others := _hosts_of(path)) != set(hosts):
        raise CommandFailed(
            f"{path} is there already, for {', '.join(sorted(others))}",
            hint=f"remove it, and a new one is made: rm {path}",
            exit_code=USAGE,
        )
    return _make(directory, node_name(node_id), hosts or LOOPBACK)


def make_client(directory: Path, user: str) -> Path:
    """Key and certificate of a client, in one PEM file. Raises `CommandFailed`."""
    if re.fullmatch(r"node-\d+", user):
        said = f"{user!r} is the name of a node: who shows such a certificate speaks for that broker"
        hint = "take another name; `odradek certs node` makes a node's"
        raise CommandFailed(said, hint=hint, exit_code=USAGE)
    return _make(directory, user, ())


def authority(directory: Path) -> Path:
    """The certificate that everybody trusts, made if it is not there. Raises `CommandFailed`."""
    _load_authority(directory)
    return directory / AUTHORITY


def _make(directory: Path, name: str, hosts: Sequence[str]) -> Path:
    path = directory / f"{name}.pem"
    if "/" in name or not name.isprintable() or name in ("", ".", "..", "ca", "ca-key") or len(name) > LONGEST_NAME:
        hint = f"take letters and digits, {LONGEST_NAME} at most"
        raise CommandFailed(f"{name!r} cannot be the name of a certificate's file", hint=hint, exit_code=USAGE)
    if path.exists():
        return path
    issuer, issuer_key = _load_authority(directory)  # first: it says what to install
    names = [_host(host) for host in hosts]
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = _new_key()
    builder = _builder(name, issuer.subject, key).add_extension(x509.BasicConstraints(False, None), critical=True)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    _write(path, _key_pem(key) + _certificate_pem(_signed(builder, issuer_key)))
    return path


def _load_authority(directory: Path) -> tuple[Any, Any]:
    """Its certificate and its key."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
    except ModuleNotFoundError:
        raise CommandFailed(
            "certificates are made with the package cryptography, which is not installed",
            hint="pip install 'odradek[security]'",
        ) from None
    certificate, key = directory / AUTHORITY, directory / AUTHORITY_KEY
    try:
        if not certificate.exists():
            directory.mkdir(parents=True, exist_ok=True)
            _make_authority(certificate, key)
        return (
            x509.load_pem_x509_certificate(certificate.read_bytes()),
            serialization.load_pem_private_key(key.read_bytes(), None),
        )
    except (OSError, ValueError) as error:
        raise CommandFailed(
            f"{directory}: the authority's {AUTHORITY} and {AUTHORITY_KEY} cannot be used: {error}",
            hint="name another directory, or put both back from a copy",
        ) from error


def _make_authority(certificate: Path, key_file: Path) -> None:
    from cryptography import x509

    key, name = _new_key(), "odradek development CA"
    builder = _builder(name, _subject(name), key).add_extension(x509.BasicConstraints(True, 0), critical=True)
    _write(key_file, _key_pem(key))
    _write(certificate, _certificate_pem(_signed(builder, key)), mode=0o644)


def _builder(name: str, issuer: Any, key: Any) -> Any:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _AHEAD)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _subject(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _hosts_of(path: Path) -> set[str]:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes()).extensions
        return {str(each.value) for each in found.get_extension_for_class(x509.SubjectAlternativeName).value}
    except (OSError, ValueError, x509.ExtensionNotFound):
        return {"nobody knows whom"}


def _host(text: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        pass
    try:
        if _DNS_NAME.fullmatch(name := text.encode("idna").decode()):
            return x509.DNSName(name)
    except UnicodeError:
        pass
    raise CommandFailed(f"--host {text!r} is no host", hint="a name or an address, without a port", exit_code=USAGE)


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _signed(builder: Any, key: Any) -> Any:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _key_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    text: bytes = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return text


def _certificate_pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text


def _write(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
