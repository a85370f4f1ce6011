"""Where the server listens: addresses, proxies and certificates from the settings."""

from __future__ import annotations

import os
import re
import ssl
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from memoryhub.core import clock
from memoryhub.core.errors import Invalid
from memoryhub.ops.serving.listener import in_url

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_VARIABLES = {
    "listen": "MEMORY_HUB_LISTEN",
    "public_url": "MEMORY_HUB_PUBLIC_URL",
    "tls_cert": "MEMORY_HUB_TLS_CERT",
    "tls_key": "MEMORY_HUB_TLS_KEY",
    "remote_user_header": "MEMORY_HUB_REMOTE_USER_HEADER",
}
_TRUSTED_PROXIES = "MEMORY_HUB_TRUSTED_PROXIES"

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
# A year, as browsers' preload lists want it
HSTS_SECONDS = 365 * 24 * 3600
# Networks with more addresses than these are no list of proxies.
_WIDEST = {4: 16, 6: 48}
_PLACE = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:\[\]]+)):(?P<port>[0-9]{1,5})")
# Without a dot in front, which would allow all subdomains in ``ALLOWED_HOSTS``
_HOST = re.compile(r"[a-z0-9:][a-z0-9.:-]*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)+")
# Headers with a hyphen that clients send for other reasons
_TAKEN_HEADERS = re.compile(
    r"(accept|cache|content|if|sec|access|mcp|memory|hub|idempotency|last|transfer|user-agent|x-forwarded|x-csrf|x-real).*",
    re.IGNORECASE,
)

Address = IPv4Address | IPv6Address
AddressRange = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Network:
    """Where and for whom the hub listens. The default is a hub for this machine alone."""

    # Address and port beside the loopback address for this machine's clients
    listen: tuple[str, int] | None = None
    # Without a slash at its end; "" in a hub for this machine alone
    public_url: str = ""
    certificate: ssl.SSLContext | None = None
    # Only their X-Forwarded-* headers and ``remote_user_header`` are believed.
    proxies: tuple[AddressRange, ...] = ()
    # Lower case; "" for none
    remote_user_header: str = ""

    @property
    def is_public(self) -> bool:
        return bool(self.public_url)

    @property
    def hosts(self) -> list[str]:
        """Names in ``Host`` that are answered, as in ``ALLOWED_HOSTS``."""
        names = set(LOCAL_HOSTS)
        if self.public_url:
            names.add(in_url(urlsplit(self.public_url).hostname or ""))
        if self.listen and not _parsed_address(self.listen[0]).is_unspecified:
            names.add(in_url(self.listen[0]))
        return sorted(names)

    @property
    def origins(self) -> list[str]:
        """Origins of this hub's own pages, beside that of the request's own scheme and host."""
        return [self.public_url] if self.public_url else []

    def is_proxy(self, peer: str) -> bool:
        address = parsed_peer(peer)
        return address is not None and any(address in proxies for proxies in self.proxies)

    def configure(self, settings: Any) -> None:
        settings.ALLOWED_HOSTS = self.hosts
        settings.CSRF_TRUSTED_ORIGINS = self.origins
        settings.PUBLIC_URL = self.public_url
        settings.REMOTE_USER_HEADER = self.remote_user_header
        # Django sends it over HTTPS only.
        settings.SECURE_HSTS_SECONDS = HSTS_SECONDS if self.is_public else 0

    @classmethod
    def from_options(cls, options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Self:
        """Return the network of command line options, or else of environment variables.

        Raises:
            Invalid: an option is malformed, or the combination would be unsafe.
        """
        values = {name: options.get(name) or environment.get(variable, "") for name, variable in _VARIABLES.items()}
        proxies = options.get("trusted_proxy") or re.split(r"[\s,]+", environment.get(_TRUSTED_PROXIES, "").strip())
        network = cls(
            listen=_listen_address(values["listen"]) if values["listen"] else None,
            public_url=_url(values["public_url"]) if values["public_url"] else "",
            proxies=tuple(_proxies(filter(None, proxies))),
            remote_user_header=_header(values["remote_user_header"]),
        )
        network._refuse_unsafe(cert=values["tls_cert"], key=values["tls_key"])
        if not values["tls_cert"]:
            return network
        host = urlsplit(network.public_url).hostname or ""
        certificate = load(Path(values["tls_cert"]), Path(values["tls_key"]), host=host)
        return cls(network.listen, network.public_url, certificate, network.proxies, network.remote_user_header)

    def _refuse_unsafe(self, *, cert: str, key: str) -> None:
        if bool(cert) != bool(key):
            raise Invalid("--tls-cert and --tls-key need each other: a certificate chain, and its private key")
        if cert and not self.listen:
            raise Invalid("--tls-cert needs --listen HOST:PORT, where the hub answers over TLS")
        if self.remote_user_header and not self.proxies:
            raise Invalid("--remote-user-header needs --trusted-proxy: without one, everybody could choose who to be")
        if (self.proxies or cert) and not self.public_url:
            raise Invalid("--trusted-proxy and --tls-cert need --public-url, the address that people and clients use")
        if self.listen and not _parsed_address(self.listen[0]).is_loopback:
            self._refuse_open(cert)
        if self.public_url and not (cert or self.proxies):
            raise Invalid("--public-url needs --tls-cert and --tls-key, or --trusted-proxy with the proxy's address")
        if cert and not self.public_url.startswith("https:"):
            raise Invalid("--tls-cert needs a --public-url that starts with https://")

    def _refuse_open(self, cert: str) -> None:
        host = self.listen[0] if self.listen else ""
        if not self.public_url:
            raise Invalid(f"--listen {host} needs --public-url, the address that people and clients use")
        if _is_loopback_url(self.public_url):
            raise Invalid(
                f"--listen {host} is for other machines, but --public-url {self.public_url} "
                "is reached from this one only"
            )
        if not cert and not self.proxies:
            raise Invalid(
                f"--listen {host} would send tokens and memories unencrypted; add --tls-cert and --tls-key, or "
                "--trusted-proxy with the address of a proxy that ends TLS"
            )


def parsed_peer(text: str) -> Address | None:
    """Return an address, an IPv4 one also where IPv6 contains it; None if it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.version == 6 and address.ipv4_mapped) or address


def _parsed_address(text: str) -> Address:
    try:
        return ip_address("127.0.0.1" if text == "localhost" else text)
    except ValueError:
        raise Invalid(
            f"--listen {text[:80]!r} must be an address of this machine, such as 0.0.0.0 for all, and a port"
        ) from None


def _listen_address(text: str) -> tuple[str, int]:
    match = _PLACE.fullmatch(text)
    if not match:
        raise Invalid(f"--listen is {text[:80]!r}; write HOST:PORT, such as 0.0.0.0:8443 or [::]:8443")
    return str(_parsed_address(match["v6"] or match["v4"])), int(match["port"])


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts = urlsplit("")
        port = None
    host = parts.hostname or ""
    extras = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host) or any(extras):
        raise Invalid(f"--public-url is {text[:80]!r}; write scheme and host alone, such as https://hub.example.org")
    if parts.scheme == "http" and not _is_loopback_url(text):
        raise Invalid(f"--public-url {text[:80]} would send tokens and sign-in links unencrypted; use https://")
    url = f"{parts.scheme}://{in_url(host)}"
    if port and port != {"http": 80, "https": 443}[parts.scheme]:
        return f"{url}:{port}"
    return url


def _is_loopback_url(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    address = parsed_peer(host)
    return host == "localhost" or bool(address and address.is_loopback)


def _proxies(texts: Iterable[str]) -> Iterable[AddressRange]:
    for text in texts:
        try:
            proxies = ip_network(text)
        except ValueError:
            raise Invalid(
                f"--trusted-proxy is {text[:80]!r}; write an address or a network, such as 10.0.0.5 or 172.18.0.0/16"
            ) from None
        if proxies.prefixlen < _WIDEST[proxies.version]:
            raise Invalid(f"--trusted-proxy {text[:80]} would trust everybody; name the proxy's own address")
        yield proxies


def _header(text: str) -> str:
    if text and (not _HEADER.fullmatch(text) or _TAKEN_HEADERS.fullmatch(text)):
        raise Invalid(f"--remote-user-header is {text[:80]!r}; write a header of the proxy's own, such as Remote-User")
    return text.lower()


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
    from cryptography.x509 import load_pem_x509_certificates  # a hub for this machine alone starts without it

    try:
        certificate = load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as error:
        raise Invalid(f"the certificate {path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise Invalid(f"{path} is not a certificate in PEM format") from error
    now = clock.now()
    if certificate.not_valid_after_utc <= now:
        raise Invalid(f"the certificate {path} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; renew it")
    if certificate.not_valid_before_utc > now:
        raise Invalid(f"the certificate {path} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}")
    names = _certificate_names(certificate)
    parent = host.partition(".")[2]
    if host not in names and f"*.{parent}" not in names:
        raise Invalid(f"the certificate {path} is for {', '.join(names) or 'no host'}, not for {host} of --public-url")


def _certificate_names(certificate: Certificate) -> list[str]:
    from cryptography.x509 import DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName

    try:
        named = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return []
    addresses = named.get_values_for_type(IPAddress)
    return [name.lower() for name in named.get_values_for_type(DNSName)] + [str(address) for address in addresses]


# PostgreSQL's rule: the owner alone, or root's key for a group.
def _check_key(path: Path) -> None:
    try:
        status = path.stat()
        with path.open("rb"):
            pass
    except OSError as error:
        raise Invalid(f"the key {path} can't be read: {error.strerror}") from error
    allowed = 0o600
    if status.st_uid == 0 and os.geteuid() != 0:
        allowed = 0o640
    if stat.S_IMODE(status.st_mode) & 0o777 & ~allowed & 0o077:
        raise Invalid(f"others may read the key {path}; run: chmod {allowed:o} {path}")
