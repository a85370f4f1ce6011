"""The files in deploy/: they name what exists, and nginx and Caddy serve a hub with them, and ask who signs in."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import TestCase

import yaml
from django.test import tag

from memoryhub.management.commands.serve import Command
from memoryhub.ops.serving.network import Network
from tests.home import run_home
from tests.programs import needs
from tests.server_processes import free_port
from tests.web.public_server import HOST, URL, create_token, make_certificate, team_hub, trusting
from tests.web.server import DEADLINE_SECONDS, ROOT, Reply, Server, poll, run

DEPLOY = ROOT / "deploy"
# An address of this machine that is not the proxy's
OTHER_ADDRESS = "127.0.0.5"
UPSTREAM = "127.0.0.1:8320"
REMOTE_USER = ("Remote-User", "remote-user", "Remote_User")
Running = Callable[[Path, Path, Path, int, str], AbstractContextManager[None]]


class Proxy:
    """A running proxy with an example configuration, before a real hub."""

    def __init__(self, server: Server, port: int, certificate: Path) -> None:
        self.server, self.port = server, port
        self._tls = trusting(certificate)

    def connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection(HOST, self.port, timeout=DEADLINE_SECONDS)
        plain = socket.create_connection(("127.0.0.1", self.port), DEADLINE_SECONDS, source_address=(OTHER_ADDRESS, 0))
        connection.sock = self._tls.wrap_socket(plain, server_hostname=HOST)
        return connection

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send(method, path, body, named)

    def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Reply:
        """Send headers as they are written."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, {"Host": HOST, **headers})
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())

    def is_ready(self) -> bool:
        try:
            return self.request("GET", "/api/v1/health", Authorization="Bearer x").status == 200
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
    with caddy_of(folder, site, MEMORY_HUB_UPSTREAM=upstream):
        yield


@contextlib.contextmanager
def caddy_of(folder: Path, site: str, **environment: str) -> Iterator[None]:
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{site}")
    command = ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    with started(command, folder, **environment):
        yield


@contextlib.contextmanager
def before_the_hub(running: Running) -> Iterator[Proxy]:
    """Run a proxy before the hub that the tests of this process share."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=run_home(), ignore_cleanup_errors=True)))
        cert, key = make_certificate(folder, HOST)
        port = free_port()
        stack.enter_context(running(folder, cert, key, port, team_hub().upstream))
        proxy = Proxy(team_hub(), port, cert)
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


def options_of(words: list[str], **environment: str) -> Network:
    """Parse the options of ``serve`` as the command does."""
    options = vars(Command().create_parser("memory-hub", "serve").parse_args(words))
    return Network.from_options(options, environment)


class FileTests(TestCase):
    def text(self, name: str) -> str:
        return (DEPLOY / name).read_text()

    def test_the_unit_serves_behind_a_proxy_of_the_machine(self):
        unit = self.text("memory-hub.service")
        command = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        assert command
        program, verb, *words = shlex.split(command[1])
        self.assertEqual((Path(program).name, verb), ("memory-hub", "serve"))
        network = options_of(words)
        self.assertEqual(network.public_url, URL)
        self.assertTrue(network.is_proxy("127.0.0.1"))
        self.assertEqual(network.listen, ("127.0.0.1", 8320))

    @needs("systemd-analyze")
    def test_systemd_knows_every_line_of_the_unit(self):
        command = ["systemd-analyze", "verify", "--man=no", str(DEPLOY / "memory-hub.service")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
        problems = [line for line in (done.stdout + done.stderr).splitlines() if "memory-hub.service" in line]
        self.assertEqual([line for line in problems if "is not executable" not in line], [])

    def test_the_containers_trust_each_other_by_address(self):
        compose = yaml.safe_load(self.text("compose.yaml"))
        hub, proxy = compose["services"]["hub"], compose["services"]["proxy"]
        words = json.loads(re.search(r"^CMD (\[.*\])$", self.text("Containerfile"), re.MULTILINE)[1])  # type: ignore[index]
        self.assertEqual(words[0], "serve")
        network = options_of(words[1:], **hub["environment"])
        self.assertEqual((network.listen, network.public_url), (("0.0.0.0", 8320), URL))
        self.assertTrue(network.is_proxy(proxy["networks"]["inside"]["ipv4_address"]))
        upstream = f"{hub['networks']['inside']['ipv4_address']}:8320"
        self.assertEqual(proxy["environment"]["MEMORY_HUB_UPSTREAM"], upstream)
        self.assertTrue((DEPLOY / hub["build"]["context"] / hub["build"]["dockerfile"]).exists())

    def test_every_variable_is_documented(self):
        files = filter(Path.is_file, DEPLOY.iterdir())
        used = {name for path in files for name in re.findall(r"MEMORY_HUB_[A-Z_]+", path.read_text())}
        reference = (ROOT / "docs/reference/settings.md").read_text()
        documented = set(re.findall(r"^\| `(MEMORY_HUB_[A-Z_]+)`", reference, re.M))
        self.assertEqual(used - documented - {"MEMORY_HUB_UPSTREAM"}, set())


# The runner would run a TestCase by itself.
if TYPE_CHECKING:
    Shared = TestCase
else:
    Shared = object


class ProxyTests(Shared):
    """What every example must do; the classes below run it."""

    proxy: Proxy
    server: Server
    running: Running
    bearer: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.proxy = cls.enterClassContext(before_the_hub(cls.running))
        cls.server = cls.proxy.server
        cls.bearer = {"Authorization": f"Bearer {cls.server.token}", "Content_Type": "application/json"}

    def sign_in(self) -> str:
        link = run("signin", home=self.server.home)[1].strip()
        reply = self.proxy.request("GET", link.removeprefix(URL))
        self.assertEqual(reply.status, 302)
        cookies = reply.headers.get_all("Set-Cookie") or []
        self.assertTrue(all("; Secure" in cookie for cookie in cookies))
        return "; ".join(cookie.split(";")[0] for cookie in cookies)

    def test_pages_rest_and_mcp_are_served(self) -> None:
        page = self.proxy.request("GET", "/", Cookie=self.sign_in())
        self.assertEqual((page.status, page.headers["Strict-Transport-Security"]), (200, "max-age=31536000"))
        self.assertIn(b"alpha", page.body)
        self.assertEqual(self.proxy.request("GET", "/static/memoryhub/hub.css").status, 200)
        self.assertEqual(self.proxy.request("GET", "/api/v1/projects", **self.bearer).status, 200)
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        accept = {"Accept": "application/json, text/event-stream"}
        self.assertNotIn(self.proxy.request("POST", "/p/alpha/mcp", ping, **accept, **self.bearer).status, (404, 502))

    def test_a_stream_is_not_buffered(self) -> None:
        with contextlib.closing(self.proxy.connect()) as connection:
            headers = {"Host": HOST, "Cookie": self.sign_in(), "Accept": "text/event-stream"}
            connection.request("GET", "/p/alpha/admin/live/", headers=headers)
            answer = connection.getresponse()
            first = answer.readline()
            answer.readline()
            note = {"title": f"New {self.id()}", "content": f"text of {self.id()}"}
            self.server.api("POST", "projects/alpha/memories", note)
            self.assertNotEqual(answer.readline(), first)

    def test_long_bodies_pass_and_longer_ones_do_not(self) -> None:
        for size, statuses in ((1_900_000, (201, 422)), (4_000_000, (413,))):
            body = json.dumps({"title": f"Long {self.id()}", "content": f"{self.id()} " + "word " * (size // 5)})
            reply = self.proxy.request("POST", "/api/v1/projects/alpha/memories", body, **self.bearer)
            self.assertIn(reply.status, statuses, reply.body[:200])

    def test_what_a_client_makes_up_does_not_reach_the_hub(self) -> None:
        token = create_token(self.server, type(self).__name__.lower())
        forged = {"X_Forwarded_For": "198.51.100.9", "X_Forwarded_Proto": "http", "Forwarded": "for=198.51.100.9"}
        reply = self.proxy.request("GET", "/api/v1/projects", Authorization=f"Bearer {token}", **forged)
        self.assertEqual(reply.status, 200)
        self.assertIn(OTHER_ADDRESS, run("token", "list", home=self.server.home)[1])
        for name in REMOTE_USER:
            reply = self.proxy.send("GET", "/", None, {name: "owner"})
            self.assertEqual((reply.status, reply.headers["Location"]), (302, "/admin/login/"))
        reply = self.proxy.request("GET", "/", X_Forwarded_Host="evil.example", Host=HOST)
        self.assertNotIn(b"evil.example", reply.body)


@needs("nginx")
@tag("proxy")
class NginxTests(ProxyTests, TestCase):
    running = staticmethod(nginx)


@needs("caddy")
@tag("proxy")
class CaddyTests(ProxyTests, TestCase):
    running = staticmethod(caddy)


class Service(BaseHTTPRequestHandler):
    """Stands in for an authentication service: a cookie names the person; ``nobody`` is let through without a name."""

    def do_GET(self) -> None:
        name = self.headers.get("Cookie", "").partition("who=")[2].partition(";")[0]
        self.send_response(200 if name else 401)
        if name and name != "nobody":
            self.send_header("Remote-User", name)
            self.send_header("X-Auth-Request-Preferred-Username", name)
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
def asking_caddy(folder: Path, cert: Path, key: Path, port: int, upstream: str, *, asked: str) -> Iterator[None]:
    """Run Caddy with the example that asks an authentication service."""
    site = (DEPLOY / "sign-in.Caddyfile").read_text()
    changes = {
        f"\n{HOST} {{\n": f"\nhttps://{HOST}:{port} {{\n\tbind 127.0.0.1\n\ttls {cert} {key}\n",
        "127.0.0.1:9091": asked,
        UPSTREAM: upstream,
    }
    for before, after in changes.items():
        assert before in site, before
        site = site.replace(before, after)
    with caddy_of(folder, site):
        yield


@tag("proxy")
class SignInTests(TestCase):
    """The guide's example of nginx with an authentication service, and Caddy's."""

    def example(self, first_line: str) -> str:
        text = (ROOT / "docs/guides/run-for-a-team.md").read_text()
        lines = re.search(rf"```\n({re.escape(first_line)}.*?)```", text, re.DOTALL)
        assert lines
        return lines[1]

    def check(self, proxy: Proxy) -> None:
        """The service alone says who gets a page; a token needs no service, and is nobody but itself."""
        bearer = {"Authorization": f"Bearer {proxy.server.token}"}
        wrong = {"Authorization": "Bearer wrong", "Remote_User": "owner"}
        for path, headers, status in (
            ("/", {}, 401),
            ("/", {"Cookie": "who=owner"}, 200),
            ("/", {"Cookie": "who=bob"}, 403),
            ("/", {"Cookie": "who=bob", "Remote_User": "owner"}, 403),
            ("/api/v1/projects", bearer, 200),
            ("/api/v1/projects", {"Remote_User": "owner"}, 401),
            ("/api/v1/projects", wrong, 401),
        ):
            with self.subTest(path=path, headers=headers):
                self.assertEqual(proxy.request("GET", path, **headers).status, status)
        for name in REMOTE_USER:
            self.assertEqual(proxy.send("GET", "/", None, {name: "owner"}).status, 401)
        self.assertIn("memoryhub_session", str(proxy.request("GET", "/", Cookie="who=owner").headers))

    @needs("nginx")
    def test_nginx_asks_a_service_and_lets_tokens_through(self):
        lines = self.example("    location /oauth2/").replace("127.0.0.1:4180", self.enterContext(service()))
        with before_the_hub(partial(nginx, sign_in=lines)) as proxy:
            self.check(proxy)

    @needs("caddy")
    def test_caddy_asks_a_service_and_lets_tokens_through(self):
        asked = self.enterContext(service())
        proxy = self.enterContext(before_the_hub(partial(asking_caddy, asked=asked)))
        self.check(proxy)
        for name in REMOTE_USER:
            # Some versions of Caddy then send the placeholder's own name, which is nobody's.
            page = proxy.send("GET", "/", None, {name: "owner", "Cookie": "who=nobody"})
            self.assertIn(page.status, (302, 403))
            self.assertNotIn("memoryhub_session", str(page.headers))
            self.assertNotIn("as owner", page.body.decode())
        # A name that a Connection header removes signs nobody in
        page = proxy.request("GET", "/", Cookie="who=owner", Connection="close, Remote-User")
        self.assertNotIn("memoryhub_session", str(page.headers.get_all("Set-Cookie")))
        page = proxy.request("GET", "/", Cookie="who=owner", Connection="close, X-Forwarded-For, X-Forwarded-Proto")
        self.assertEqual(page.status, 200)
        page = proxy.request("GET", "/", Authorization="Bearer wrong", Remote_User="owner")
        self.assertEqual((page.status, page.headers["Location"]), (302, "/admin/login/"))
