"""The certificate with which the hub ends TLS itself."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from memoryhub.core import clock
from memoryhub.core.errors import Invalid


def load(certificate: Path, key: Path, *, host: str) -> ssl.SSLContext:
    """Return the context of a server with this certificate chain and private key, for a host name or address.

    Raises:
        Invalid: a file can't be read, the certificate is not valid now or not for the host, others may read the key,
            or the two don't belong together.
    """
    _check_certificate(certificate, host)
    _check_key(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise Invalid(
            f"the key {key} can't be used with the certificate {certificate}; give the certificate's own private key, "
            "in PEM format and without a passphrase"
        ) from error
    return context


# Without it, OpenSSL would ask on the terminal.
def _no_password() -> str:
    raise ValueError("the key has a passphrase")


def _check_certificate(path: Path, host: str) -> None:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as error:
        raise Invalid(f"the certificate {path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise Invalid(f"{path} is not a certificate in PEM format") from error
    now = clock.now()
    if found.not_valid_after_utc <= now:
        raise Invalid(f"the certificate {path} expired on {found.not_valid_after_utc:%Y-%m-%d}; renew it")
    if found.not_valid_before_utc > now:
        raise Invalid(f"the certificate {path} is not valid before {found.not_valid_before_utc:%Y-%m-%d}")
    names = _names(found)
    parent = host.partition(".")[2]
    if host not in names and f"*.{parent}" not in names:
        raise Invalid(f"the certificate {path} is for {', '.join(names) or 'no host'}, not for {host} of --public-url")


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
    except x509.ExtensionNotFound:
        return []
    named: x509.SubjectAlternativeName = extension.value  # type: ignore[assignment]
    addresses = named.get_values_for_type(x509.IPAddress)
    return [name.lower() for name in named.get_values_for_type(x509.DNSName)] + [str(address) for address in addresses]


# PostgreSQL's rule: the owner alone, or root's key for a group.
def _check_key(path: Path) -> None:
    try:
        status = path.stat()
        with path.open("rb"):
            pass
    except OSError as error:
        raise Invalid(f"the key {path} can't be read: {error.strerror}") from error
    allowed = 0o640 if status.st_uid == 0 and os.geteuid() != 0 else 0o600
    if stat.S_IMODE(status.st_mode) & 0o777 & ~allowed & 0o077:
        raise Invalid(f"others may read the key {path}; run: chmod {allowed:o} {path}")
