"""``deploy/sign-in.Caddyfile``: a real Caddy asks an authentication service before a real hub."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import TestCase

from django.test import tag

from tests.home import run_home
from tests.programs import needs
from tests.server_processes import free_port
from tests.web.public_server import HOST, SIGNS_IN, make_certificate, public_hub, trusting
from tests.web.server import DEADLINE_SECONDS, ROOT, Reply, Server, poll

EXAMPLE = ROOT / "deploy/sign-in.Caddyfile"


class Service(BaseHTTPRequestHandler):
    """Stands in for Authelia: a cookie names the person; ``nobody`` is let through without a name."""

    def do_GET(self) -> None:
        name = self.headers.get("Cookie", "").partition("who=")[2].partition(";")[0]
        self.send_response(200 if name else 401)
        if name and name != "nobody":
            self.send_header("Remote-User", name)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def service() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def caddy(server: Server, folder: Path, authentication: str) -> Iterator[tuple[int, Path]]:
    cert, key = make_certificate(folder, HOST)
    port = free_port()
    changes = {
        f"\n{HOST} {{\n": f"\nhttps://{HOST}:{port} {{\n\tbind 127.0.0.1\n\ttls {cert} {key}\n",
        "127.0.0.1:9091": authentication,
        "127.0.0.1:8320": server.address.removeprefix("http://"),
    }
    text = EXAMPLE.read_text()
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{text}")
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, "HOME": str(folder)}, stdout=log, stderr=log)
        try:
            poll(lambda: process.poll() is not None or listens(port), what="Caddy listens")
            assert process.poll() is None, (folder / "log").read_text()
            yield port, cert
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@needs("caddy")
@tag("proxy")
class SignInProxyTests(TestCase):
    server: Server
    port: int
    tls: ssl.SSLContext

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory(dir=run_home())))
        cls.server = cls.enterClassContext(public_hub(*SIGNS_IN))
        cls.port, cert = cls.enterClassContext(caddy(cls.server, folder, cls.enterClassContext(service())))
        cls.tls = trusting(cert)

    def get(self, path: str, **headers: str) -> Reply:
        connection = http.client.HTTPSConnection(HOST, self.port, timeout=DEADLINE_SECONDS)
        plain = socket.create_connection(("127.0.0.1", self.port), DEADLINE_SECONDS)
        connection.sock = self.tls.wrap_socket(plain, server_hostname=HOST)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Host": HOST, **headers})
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())

    def test_the_services_person_is_signed_in(self):
        page = self.get("/", Cookie="who=owner")
        self.assertEqual(page.status, 200)
        self.assertIn("memoryhub_session", str(page.headers))

    def test_without_the_service_nobody_gets_a_page(self):
        for name in ("Remote-User", "remote-user", "Remote_User"):
            self.assertEqual(self.get("/", **{name: "owner"}).status, 401)

    def test_a_client_cannot_add_a_name_where_the_service_gave_none(self):
        for name in ("Remote-User", "remote-user", "Remote_User"):
            # Some versions of Caddy then send the placeholder's own name, which is nobody's.
            page = self.get("/", **{name: "owner", "Cookie": "who=nobody"})
            self.assertIn(page.status, (302, 403))
            self.assertNotIn("memoryhub_session", str(page.headers))
            self.assertNotIn("as owner", page.body.decode())

    def test_a_name_that_a_connection_header_removes_signs_nobody_in(self):
        page = self.get("/", Cookie="who=owner", Connection="close, Remote-User")
        self.assertNotIn("memoryhub_session", str(page.headers.get_all("Set-Cookie")))
        spared = self.get("/", Cookie="who=owner", Connection="close, X-Forwarded-For, X-Forwarded-Proto")
        self.assertEqual(spared.status, 200)

    def test_a_token_needs_no_service_and_is_nobody_but_itself(self):
        token = {"Authorization": f"Bearer {self.server.token}"}
        self.assertEqual(self.get("/api/v1/projects", **token).status, 200)
        wrong = {"Authorization": "Bearer wrong", "Remote-User": "owner"}
        self.assertEqual(self.get("/api/v1/projects", **wrong).status, 401)
        page = self.get("/", **wrong)
        self.assertEqual((page.status, page.headers["Location"]), (302, "/admin/login/"))
