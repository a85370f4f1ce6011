"""nginx and Caddy before a real hub, with the examples of deploy/."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.home import run_home
from tests.server_processes import free_port
from tests.web.public_server import HOST, URL, make_certificate, public_hub, trusting
from tests.web.server import DEADLINE_SECONDS, ROOT, Server, poll

DEPLOY = ROOT / "deploy"
# An address of this machine that is not the proxy's
CLIENT = "127.0.0.5"
UPSTREAM = "127.0.0.1:8320"
Running = Callable[[Path, Path, Path, int, str], AbstractContextManager[None]]


class Proxy:
    """A running proxy with an example configuration, before a real hub."""

    def __init__(self, server: Server, port: int, certificate: Path) -> None:
        self.server, self.port = server, port
        self._tls = trusting(certificate)

    def connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection(HOST, self.port, timeout=DEADLINE_SECONDS)
        plain = socket.create_connection(("127.0.0.1", self.port), DEADLINE_SECONDS, source_address=(CLIENT, 0))
        connection.sock = self._tls.wrap_socket(plain, server_hostname=HOST)
        return connection

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        with contextlib.closing(self.connect()) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"Host": HOST, **named})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def is_ready(self) -> bool:
        try:
            return self.request("GET", "/api/v1/health", Authorization="Bearer x")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


@contextlib.contextmanager
def nginx(folder: Path, cert: Path, key: Path, port: int, upstream: str, *, sign_in: str = "") -> Iterator[None]:
    """Run nginx with the example, and with the guide's lines for an authentication service."""
    site = (DEPLOY / "nginx.conf").read_text()
    if sign_in:
        site = _with_sign_in(site, sign_in)
    site = site.replace(UPSTREAM, upstream).replace("listen 443 ", f"listen 127.0.0.1:{port} ")
    site = site.replace("listen 80;", f"listen 127.0.0.1:{free_port()};")
    site = re.sub(r"(ssl_certificate +)\S+;", rf"\g<1>{cert};", site)
    site = re.sub(r"(ssl_certificate_key +)\S+;", rf"\g<1>{key};", site)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    main = f"{user}\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
    (folder / "nginx.conf").write_text(f"{main}http {{\naccess_log off;\n{folders}\n{site}\n}}\n")
    with started(["nginx", "-c", str(folder / "nginx.conf"), "-g", "daemon off;"], folder):
        yield


def _with_sign_in(site: str, sign_in: str) -> str:
    before, _, own = sign_in.partition("    location / {\n")
    lines = own.partition("        # …")[0]
    begin = site.index("    location / {\n")
    location = site[begin : site.index("    }\n", begin) + len("    }\n")]
    signed_in = re.sub(r" +proxy_set_header Remote-User .*\n", "", location).replace("{\n", "{\n" + lines, 1)
    return site.replace(location, before + signed_in + location.replace("location /", "location /api/"))


@contextlib.contextmanager
def caddy(folder: Path, cert: Path, key: Path, port: int, upstream: str) -> Iterator[None]:
    """Run Caddy with the example."""
    site = (DEPLOY / "Caddyfile").read_text()
    site = site.replace(f"{HOST} {{", f"https://{HOST}:{port} {{\n\ttls {cert} {key}\n", 1)
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{site}")
    command = ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    with started(command, folder, MEMORY_HUB_UPSTREAM=upstream):
        yield


@contextlib.contextmanager
def before_a_hub(running: Running) -> Iterator[Proxy]:
    """Run a hub, and a proxy before it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=run_home())))
        cert, key = make_certificate(folder, HOST)
        upstream, port = f"127.0.0.1:{free_port()}", free_port()
        options = ("--no-worker", "--listen", upstream, "--public-url", URL, "--trusted-proxy", "127.0.0.1")
        server = stack.enter_context(public_hub(*options, "--remote-user-header", "Remote-User"))
        server.api("POST", "projects", {"project_id": "alpha"})
        stack.enter_context(running(folder, cert, key, port, upstream))
        proxy = Proxy(server, port, cert)
        poll(proxy.is_ready, what="the proxy's first answer")
        yield proxy


@contextlib.contextmanager
def started(command: list[str], folder: Path, **environment: str) -> Iterator[None]:
    variables = {**os.environ, "HOME": str(folder), **environment}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)
