"""The files in deploy/: they name what exists, and nginx and Caddy serve a hub with them."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import TestCase

import yaml
from django.test import tag

from memoryhub.management.commands.serve import Command
from memoryhub.ops.serving.network import Network
from tests.programs import needs
from tests.web.proxies import CLIENT, DEPLOY, Proxy, Running, before_a_hub, caddy, nginx
from tests.web.public_server import HOST, URL
from tests.web.server import DEADLINE_SECONDS, ROOT, Server, run


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
        used = {name for path in DEPLOY.iterdir() for name in re.findall(r"MEMORY_HUB_[A-Z_]+", path.read_text())}
        documented = set(
            re.findall(r"^\| `(MEMORY_HUB_[A-Z_]+)`", (ROOT / "docs/reference/settings.md").read_text(), re.M)
        )
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
        cls.proxy = cls.enterClassContext(before_a_hub(cls.running))
        cls.server = cls.proxy.server
        cls.bearer = {"Authorization": f"Bearer {cls.server.token}", "Content_Type": "application/json"}

    def sign_in(self) -> str:
        link = run("signin", home=self.server.home)[1].strip()
        status, headers, _ = self.proxy.request("GET", link.removeprefix(URL))
        self.assertEqual(status, 302)
        cookies = headers.get_all("Set-Cookie") or []
        self.assertTrue(all("; Secure" in cookie for cookie in cookies))
        return "; ".join(cookie.split(";")[0] for cookie in cookies)

    def test_pages_rest_and_mcp_are_served(self) -> None:
        cookie = self.sign_in()
        status, headers, body = self.proxy.request("GET", "/", Cookie=cookie)
        self.assertEqual((status, headers["Strict-Transport-Security"]), (200, "max-age=31536000"))
        self.assertIn(b"alpha", body)
        self.assertEqual(self.proxy.request("GET", "/static/memoryhub/hub.css")[0], 200)
        self.assertEqual(self.proxy.request("GET", "/api/v1/projects", **self.bearer)[0], 200)
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        accept = {"Accept": "application/json, text/event-stream"}
        self.assertNotIn(self.proxy.request("POST", "/p/alpha/mcp", ping, **accept, **self.bearer)[0], (404, 502))

    def test_a_stream_is_not_buffered(self) -> None:
        with contextlib.closing(self.proxy.connect()) as connection:
            headers = {"Host": HOST, "Cookie": self.sign_in(), "Accept": "text/event-stream"}
            connection.request("GET", "/p/alpha/admin/live/", headers=headers)
            answer = connection.getresponse()
            first = answer.readline()
            answer.readline()
            self.server.api("POST", "projects/alpha/memories", {"title": "New", "content": "text"})
            self.assertNotEqual(answer.readline(), first)

    def test_long_bodies_pass_and_longer_ones_do_not(self) -> None:
        for size, statuses in ((1_900_000, (201, 422)), (4_000_000, (413,))):
            body = json.dumps({"title": "Long", "content": "word " * (size // 5)})
            status, _, answer = self.proxy.request("POST", "/api/v1/projects/alpha/memories", body, **self.bearer)
            self.assertIn(status, statuses, answer[:200])

    def test_what_a_client_makes_up_does_not_reach_the_hub(self) -> None:
        output = run("token", "create", "--name", "seen", "--verbs", "read", home=self.server.home)[1]
        token = next(word for word in output.split() if word.startswith("mh_"))
        made_up = {"X_Forwarded_For": "198.51.100.9", "X_Forwarded_Proto": "http", "Forwarded": "for=198.51.100.9"}
        status, _, _ = self.proxy.request("GET", "/api/v1/projects", Authorization=f"Bearer {token}", **made_up)
        self.assertEqual(status, 200)
        self.assertIn(CLIENT, run("token", "list", home=self.server.home)[1])
        for name in ("Remote-User", "remote-user", "Remote_User"):
            with contextlib.closing(self.proxy.connect()) as connection:
                connection.request("GET", "/", headers={"Host": HOST, name: "owner"})
                answer = connection.getresponse()
                self.assertEqual((answer.status, answer.headers["Location"]), (302, "/admin/login/"))
        status, _, body = self.proxy.request("GET", "/", X_Forwarded_Host="evil.example", Host=HOST)
        self.assertNotIn(b"evil.example", body)


class _Authenticator(BaseHTTPRequestHandler):
    """An authentication service that lets everybody in as the person in a cookie."""

    def do_GET(self) -> None:
        name = (self.headers["Cookie"] or "").partition("who=")[2].partition(";")[0]
        self.send_response(200 if name else 401)
        if name:
            self.send_header("Remote-User", name)
            self.send_header("X-Auth-Request-Preferred-Username", name)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class SignInTests(TestCase):
    """The guide's example of nginx with an authentication service; Caddy's is in ``test_sign_in_proxy``."""

    def setUp(self) -> None:
        service = self.enterContext(ThreadingHTTPServer(("127.0.0.1", 0), _Authenticator))
        threading.Thread(target=service.serve_forever, daemon=True).start()
        self.addCleanup(service.shutdown)
        self.service = f"127.0.0.1:{service.server_port}"

    def example(self, first_line: str) -> str:
        text = (ROOT / "docs/guides/run-for-a-team.md").read_text()
        found = re.search(rf"```\n({re.escape(first_line)}.*?)```", text, re.DOTALL)
        assert found
        return found[1]

    def check(self, proxy: Proxy) -> None:
        self.assertEqual(proxy.request("GET", "/")[0], 401)
        self.assertEqual(proxy.request("GET", "/", Remote_User="owner")[0], 401)
        self.assertEqual(proxy.request("GET", "/", Cookie="who=owner")[0], 200)
        self.assertEqual(proxy.request("GET", "/", Cookie="who=bob")[0], 403)
        self.assertEqual(proxy.request("GET", "/", Cookie="who=bob", Remote_User="owner")[0], 403)
        bearer = {"Authorization": f"Bearer {proxy.server.token}"}
        self.assertEqual(proxy.request("GET", "/api/v1/projects", **bearer)[0], 200)
        self.assertEqual(proxy.request("GET", "/api/v1/projects", Remote_User="owner")[0], 401)

    @needs("nginx")
    @tag("proxy")
    def test_nginx_asks_a_service_and_lets_tokens_through(self):
        lines = self.example("    location /oauth2/").replace("127.0.0.1:4180", self.service)
        with before_a_hub(lambda *given: nginx(*given, sign_in=lines)) as proxy:
            self.check(proxy)


@needs("nginx")
@tag("proxy")
class NginxTests(ProxyTests, TestCase):
    running = staticmethod(nginx)


@needs("caddy")
@tag("proxy")
class CaddyTests(ProxyTests, TestCase):
    running = staticmethod(caddy)
