"""Certificates for tests, as PEM files: an authority, its servers and its clients. Needs trustme."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority with its files in `folder`; `file` is its certificate, for others to trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder, self.name = folder, name
        self._ca = trustme.CA(organization_name=name)
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, *names: str, common_name: str | None = None, file: str = "", expired: bool = False) -> Path:
        """Write a key and its certificate chain for these host names and IPs into one file, which is replaced if it is
        there. Return its path. `expired`: it was good for a day, a year ago."""
        end = datetime(2025, 1, 2, tzinfo=UTC) if expired else None
        begin = end - timedelta(days=1) if end is not None else None
        leaf = self._ca.issue_cert(*names, common_name=common_name, not_before=begin, not_after=end)
        chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
        path = self.folder / (file or f"{self.name}-{names[0].replace('*', 'any')}.pem")
        new = path.with_suffix(".new")
        new.write_bytes(pkcs8(leaf.private_key_pem.bytes()) + chain)
        return new.replace(path)


def self_signed(folder: Path, name: str) -> Path:
    """Write a key and a certificate for this host name or IP that no authority has signed. Return the file's path."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"self-signed-{name}.pem"
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()) + made.public_bytes(pem))
    return path


def pkcs8(key: bytes) -> bytes:
    """Return a PEM private key in PKCS #8, the one form that Java reads, too (KIP-651)."""
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def client_context(authority: Path, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    if certificate is not None:
        context.load_cert_chain(str(certificate))
    return context


def server_context(certificate: Path, client_authority: Path | None = None) -> ssl.SSLContext:
    """Return a TLS context for a server that shows `certificate` and, if `client_authority` is given, asks clients for
    one of its certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate))
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(str(client_authority))
    return context
