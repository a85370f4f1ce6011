"""A hub behind a proxy on this machine, and requests as that proxy forwards them."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from unittest import mock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from memoryhub.core import clock
from tests.server_processes import free_port
from tests.web.server import DEADLINE_SECONDS, Reply, Server, run, serving, until_this_process_ends

HOST = "hub.example.org"
URL = f"https://{HOST}"
CLIENT = "203.0.113.7"
OPTIONS = ("--no-worker", "--public-url", URL, "--trusted-proxy", "127.0.0.1")
SIGNS_IN = (*OPTIONS, "--remote-user-header", "Remote-User")


@contextlib.contextmanager
def public_hub(*options: str, limits: str = "{}", home: Path | None = None) -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        with mock.patch.dict(os.environ, MEMORY_HUB_LIMITS=limits):
            server = stack.enter_context(serving(*(options or OPTIONS), home=home))
        yield server


@cache
def team_hub() -> Server:
    """Return the hub that all tests of this process share, with the project alpha; it has a socket for proxies."""
    upstream = f"127.0.0.1:{free_port()}"
    server = until_this_process_ends(public_hub(*SIGNS_IN, "--listen", upstream))
    server.upstream = upstream
    server.api("POST", "projects", {"project_id": "alpha"})
    server.api("POST", "projects/alpha/memories", {"title": "Kept", "content": "a private text"})
    return server


@cache
def team_owner() -> dict[str, str]:
    return sign_in(team_hub())


def create_token(server: Server, name: str = "ci") -> str:
    code, output = run("token", "create", "--name", name, "--verbs", "read", home=server.home)
    assert code == 0, output
    return next(word for word in output.split() if word.startswith("mh_"))


def cookie_of(reply: Reply) -> str:
    return (reply.headers.get_all("Set-Cookie") or [])[-1].split(";")[0]


def forwarded(client: str = CLIENT, **headers: str) -> dict[str, str]:
    """Return the headers that a proxy adds to a client's."""
    return {"Host": HOST, "X_Forwarded_For": client, "X_Forwarded_Proto": "https", **headers}


def send(server: Server, method: str, path: str, body: Any = None, *, client: str = CLIENT, **headers: str) -> Reply:
    return server.request(method, path, body, **forwarded(client, **headers))


def send_raw(server: Server, *lines: str, body: bytes = b"", **headers: str) -> bytes:
    """Send a request as it is, and return all that comes until the server closes the connection."""
    head = [*lines, *_lines(headers), "Connection: close", "", ""]
    return exchange(server, "\r\n".join(head).encode("latin-1") + body)


def exchange(server: Server, content: bytes) -> bytes:
    with socket.create_connection(server.place, DEADLINE_SECONDS) as client:
        client.sendall(content)
        return read_all(client)


def begin_request(server: Server, method: str, path: str, *, body: bytes = b"", **headers: str) -> socket.socket:
    """Send a request, and return its connection, which stays open."""
    client = socket.create_connection(server.place, DEADLINE_SECONDS)
    with contextlib.suppress(ConnectionError):  # refused before all of it is sent
        client.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *_lines(headers), "", ""]).encode() + body)
    return client


def _lines(headers: dict[str, str]) -> list[str]:
    return [f"{name.replace('_', '-')}: {value}" for name, value in forwarded(**headers).items()]


def read_all(client: socket.socket) -> bytes:
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            received += part
    return bytes(received)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def sign_in(server: Server, user: str = "owner", *, role: str = "owner") -> dict[str, str]:
    """Return the headers of a person who has signed in by a link: the cookie, and the CSRF token."""
    options = ["--role", role] if user != "owner" else []
    code, output = run("signin", "--user", user, *options, home=server.home)
    assert code == 0, output
    reply = send(server, "GET", output.strip().removeprefix(URL))
    assert reply.status == 302, reply.body
    cookies = _cookies(reply)
    cookies |= _cookies(send(server, "GET", "/", Cookie=_header(cookies)))
    return {"Cookie": _header(cookies), "X_CSRFToken": cookies["memoryhub_csrf"]}


def _cookies(reply: Reply) -> dict[str, str]:
    pairs = [value.split(";")[0].partition("=") for value in reply.headers.get_all("Set-Cookie") or []]
    return {name: value for name, _, value in pairs}


def _header(cookies: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


def make_certificate(folder: Path, *names: str, days: int = 30) -> tuple[Path, Path]:
    """Write a self-signed certificate and its key; one of ``days`` < 0 has expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = clock.now()
    known = [_name(text) for text in names]
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(known), critical=False)
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    pem = serialization.PrivateFormat.PKCS8
    key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, serialization.NoEncryption()))
    key_path.chmod(0o600)
    return cert_path, key_path


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))
