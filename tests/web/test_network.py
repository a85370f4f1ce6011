"""A hub beyond loopback: the options it refuses, TLS, sign-in by a proxy, and the connections it holds."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import resource
import select
import socket
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import TestCase, mock

from django.test import tag

from memoryhub.core.backends.sqlite import wiping
from memoryhub.core.errors import HubError, Invalid, Unavailable
from memoryhub.ops.serving import network as tls
from memoryhub.ops.serving import web
from memoryhub.ops.serving.edge import Buckets, Limits
from memoryhub.ops.serving.listener import Connections, Listener, bind, most_connections, raise_file_limit
from memoryhub.ops.serving.network import Network
from tests.home import run_home
from tests.server_processes import free_port
from tests.web.public_server import (
    CLIENT,
    HOST,
    URL,
    cookie_of,
    make_certificate,
    read_all,
    send,
    sign_in,
    status_of,
    team_hub,
    team_owner,
    trusting,
)
from tests.web.server import DEADLINE_SECONDS, Reply, run, serving, temporary_home

FORM = "application/x-www-form-urlencoded"
OPEN = {"listen": "0.0.0.0:8443"}
PROXY = {"trusted_proxy": ["10.0.0.5"]}


HEADERS = (
    *("Host", "Remote_User", "Cookie", "X-CSRFToken", "Accept-Language", "Cache-Control", "Mcp-Session-Id"),
    *("User-Agent", "X-Forwarded-For", "X-CSRF-Token", "a b"),
)
# What is refused, and the options that are
REFUSED: dict[str, list[dict[str, Any]]] = {
    "write scheme and host alone": [
        {"public_url": text, **PROXY}
        for text in (
            HOST,
            f"{URL}/hub",
            f"{URL}?a=1",
            f"https://ann@{HOST}",
            "ftp://x.org",
            "https://a:b",
            f"https://.{HOST}",
        )
    ],
    "would send tokens and memories unencrypted": [{"public_url": URL, **OPEN}],
    "use https://": [{"public_url": f"http://{HOST}", **OPEN, **PROXY}],
    "is reached from this one only": [{"public_url": "http://127.0.0.1:8443", **OPEN, **PROXY}],
    "needs? --public-url": [OPEN, {**OPEN, **PROXY}],
    "needs --tls-cert and --tls-key, or --trusted-proxy": [{"public_url": URL}],
    "would trust everybody": [
        {"public_url": URL, "trusted_proxy": [network]}
        for network in ("0.0.0.0/0", "128.0.0.0/8", "10.0.0.0/15", "::/0", "fd00::/16")
    ],
    "write an address or a network": [
        {"public_url": URL, "trusted_proxy": [text]} for text in ("proxy.example.org", "10.0.0.1/8", "*")
    ],
    "needs --trusted-proxy": [{"remote_user_header": "Remote-User"}],
    "a header of the proxy's own": [{"public_url": URL, "remote_user_header": name, **PROXY} for name in HEADERS],
    "--listen": [
        {"listen": text, "public_url": URL, **PROXY}
        for text in ("8443", "0.0.0.0", "example.org:8443", "[::1]", "0.0.0.0:port")
    ],
}


class OptionTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(dir=run_home())))

    def assert_refused(self, sentence: str, **options: object) -> None:
        with self.subTest(options=options), self.assertRaisesRegex(Invalid, sentence):
            Network.from_options(options, {})

    def test_nothing_leaves_the_machine_unencrypted_and_only_named_proxies_are_trusted(self):
        for sentence, rows in REFUSED.items():
            for options in rows:
                self.assert_refused(sentence, **options)

    def test_hosts_and_origins_come_from_the_address_and_the_public_url_alone(self):
        network = Network.from_options({}, {})
        self.assertEqual(network, Network())
        self.assertEqual(network.hosts, ["127.0.0.1", "[::1]", "localhost"])
        self.assertFalse(network.is_public)
        network = Network.from_options({"listen": "192.0.2.4:8443", "public_url": f"{URL}:443/", **PROXY}, {})
        self.assertEqual(network.hosts, ["127.0.0.1", "192.0.2.4", "[::1]", HOST, "localhost"])
        self.assertEqual((network.origins, network.public_url), ([URL], URL))
        self.assertNotIn("0.0.0.0", Network.from_options({**OPEN, "public_url": URL, **PROXY}, {}).hosts)

    def test_a_certificate_must_be_usable(self):
        cert, key = make_certificate(self.folder, HOST)
        options = {"public_url": URL, **OPEN, "tls_cert": str(cert), "tls_key": str(key)}
        self.assertIsNotNone(Network.from_options(options, {}).certificate)
        for sentence, change in (
            ("need each other", {"tls_cert": ""}),
            ("need each other", {"tls_key": ""}),
            ("can't be read", {"tls_cert": str(self.folder / "none")}),
            ("is not a certificate", {"tls_cert": str(key)}),
            (f"is for {HOST}, not for", {"public_url": "https://other.example.org"}),
        ):
            self.assert_refused(sentence, **{**options, **change})
        key.chmod(0o644)
        self.assert_refused("others may read the key .* chmod 600", **options)
        cert, key = make_certificate(self.folder, HOST, days=-1)
        with self.assertRaisesRegex(Invalid, "expired on"):
            tls.load(cert, key, host=HOST)
        (self.folder / "other").mkdir()
        other, _ = make_certificate(self.folder / "other", HOST)
        with self.assertRaisesRegex(Invalid, "give the certificate's own private key"):
            tls.load(other, key, host=HOST)

    def test_the_environment_is_read_and_an_option_wins(self):
        environment = {"MEMORY_HUB_PUBLIC_URL": URL, "MEMORY_HUB_TRUSTED_PROXIES": "10.0.0.5, 172.18.0.0/16"}
        network = Network.from_options({}, environment)
        self.assertEqual((network.public_url, len(network.proxies)), (URL, 2))
        addresses = ("172.18.3.4", "::ffff:10.0.0.5", "10.0.0.6", "not an address")
        self.assertEqual([network.is_proxy(address) for address in addresses], [True, True, False, False])
        other = Network.from_options({"public_url": "https://other.org"}, environment)
        self.assertEqual(other.public_url, "https://other.org")

    def test_a_port_in_use_names_the_option_and_the_default_port_of_this_machine_s_hubs(self) -> None:
        busy = OSError(errno.EADDRINUSE, "Address already in use")
        self.enterContext(mock.patch.object(socket.socket, "bind", side_effect=busy))
        for port, sentence in (
            (8321, "with --listen 0.0.0.0:8320: 8321 is the default port of every"),
            (8443, r"port 8443 \(Address already in use\); choose another with --listen$"),
        ):
            with self.assertRaisesRegex(Unavailable, sentence):
                web.listen_publicly(Network(listen=("0.0.0.0", port)))


class LimitTests(TestCase):
    def test_unknown_limits_and_values_that_are_none_are_refused(self):
        for text in ("[]", "no json", '{"streams": 0}', '{"streams": "1"}', '{"streams": true}', '{"speed": 1}'):
            with self.subTest(text=text), self.assertRaises(HubError):
                Limits.from_text(text)
        self.assertEqual(Limits.from_text('{"streams": 3}').streams, 3)

    def test_fifty_clients_of_one_address_never_meet_the_defaults(self):
        now, limits = 0.0, Limits()
        buckets = Buckets(limits.requests_per_second, limits.requests_burst, now=lambda: now)
        for _ in range(10 * 60):
            for _ in range(50 * 5):
                self.assertEqual(buckets.wait_for(CLIENT), 0)
                buckets.take(CLIENT)
            now += 1

    def test_a_bucket_is_filled_again(self):
        now = 0.0
        buckets = Buckets(0.5, 2, now=lambda: now)
        for _ in range(2):
            buckets.take("a")
        self.assertEqual((buckets.wait_for("a"), buckets.wait_for("b")), (2.0, 0.0))
        now = 2.0
        self.assertEqual(buckets.wait_for("a"), 0.0)


@tag("process")
class StartTests(TestCase):
    def test_a_refusal_is_one_sentence_of_the_command(self):
        with temporary_home() as home:
            code, output = run("serve", "--port", "0", "--listen", "0.0.0.0:0", home=home)
        sentence = "--listen 0.0.0.0 needs --public-url, the address that people and clients use"
        self.assertEqual((code, output.strip()), (2, f"memory-hub: {sentence}"))

    def test_people_use_tls_and_this_machine_its_own_address(self):
        """Handshakes that are not made count as connections, and leave the machine its own."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory(dir=run_home())))
        cert, key = make_certificate(folder, "127.0.0.1")
        place = ("127.0.0.1", free_port())
        url = f"https://127.0.0.1:{place[1]}"
        options = ("--listen", f"127.0.0.1:{place[1]}", "--tls-cert", str(cert), "--tls-key", str(key))
        self.enterContext(mock.patch.dict(os.environ, MEMORY_HUB_LIMITS='{"connections": 3}'))
        server = self.enterContext(serving("--no-worker", "--public-url", url, *options))
        self.assertTrue(server.link.startswith(f"{url}/signin/"))
        with closing(http.client.HTTPSConnection(*place, context=trusting(cert))) as connection:
            connection.request("GET", server.link.removeprefix(url))
            answer = connection.getresponse()
            answer.read()
        cookies = answer.headers.get_all("Set-Cookie") or []
        self.assertEqual(answer.status, 302)
        self.assertTrue(cookies and all("; Secure" in cookie for cookie in cookies))
        self.assertEqual(answer.headers["Strict-Transport-Security"], "max-age=31536000")
        self.assertNotIn("Strict-Transport-Security", server.request("GET", "/").headers)
        self.assertIn(server.address, run("status", home=server.home)[1])
        self.assertTrue(run("signin", home=server.home)[1].startswith(f"{url}/signin/"))
        silent = [self.enterContext(socket.create_connection(place, DEADLINE_SECONDS)) for _ in range(4)]
        self.assertEqual(select.select(silent, [], [], DEADLINE_SECONDS)[0], [silent[3]])
        self.assertEqual(read_all(silent[3]), b"")
        self.assertEqual(server.api("GET", "projects").status, 200)

    def test_a_hub_that_a_client_starts_ignores_the_network(self):
        network = {"MEMORY_HUB_LISTEN": "0.0.0.0:1", "MEMORY_HUB_PUBLIC_URL": URL, "MEMORY_HUB_IDLE_SECONDS": "0.1"}
        with mock.patch.dict(os.environ, network), temporary_home() as home:
            self.assertEqual(run("serve", "--port", "0", home=home)[0], 2)
            code, output = run("serve", "--no-worker", "--on-demand", home=home)
            self.assertEqual(code, 0, output)


@tag("process")
class ProxySignInTests(TestCase):
    def setUp(self) -> None:
        self.server = team_hub()

    def get(self, path: str, **headers: str) -> Reply:
        return send(self.server, "GET", path, **headers)

    def test_a_person_whom_the_proxy_names_is_signed_in_and_out_and_refused_once_deactivated(self):
        sign_in(self.server, "bea", role="viewer")
        page = self.get("/", Remote_User="bea")
        self.assertEqual(page.status, 200)
        cookie = {"Cookie": cookie_of(page)}
        # The session ends when the header is gone, or names somebody else.
        self.assertEqual(self.get("/", **cookie).headers["Location"], "/admin/login/")
        for path, headers, status in (
            ("/", {**cookie, "Remote_User": "bea"}, 200),
            ("/api/v1/projects", cookie, 401),
            ("/", {**cookie, "Remote_User": "bob"}, 403),
            ("/people", {"Remote_User": "bea"}, 403),
        ):
            with self.subTest(path=path, headers=headers):
                self.assertEqual(self.get(path, **headers).status, status)
        form = {"Content_Type": FORM, "Origin": URL, **team_owner()}
        self.assertEqual(send(self.server, "POST", "/people/bea/deactivate", b"", **form).status, 302)
        self.assertEqual(self.get("/", Remote_User="bea").status, 403)

    def test_an_unknown_person_sees_whom_to_ask_and_is_not_created(self):
        for name in ("bob", "Owner", "owner ", "../owner", "a" * 300):
            page = self.get("/", Remote_User=f"{name}x")
            self.assertEqual(page.status, 403)
            self.assertRegex(page.body, rb"Ask owner[\w ]* to invite you")  # other tests of the hub add owners
            self.assertNotIn("memoryhub_session", str(page.headers))
        self.assertEqual(self.get("/api/v1/projects", Remote_User="bob").status, 401)
        people = self.get("/people", Remote_User="owner")
        self.assertIn(b'action="/people/owner/link"', people.body)
        self.assertNotIn(b'action="/people/bobx/link"', people.body)

    def test_who_signs_out_stays_out_until_they_sign_in_again(self):
        home = self.get("/", Remote_User="owner")
        cookies = dict(value.split(";")[0].split("=", 1) for value in home.headers.get_all("Set-Cookie") or [])
        sent = {"Cookie": "; ".join(map("=".join, cookies.items())), "Remote_User": "owner", "Origin": URL}
        self.assertEqual(send(self.server, "POST", "/signout", b"", **sent).status, 403)
        form = {"Content_Type": FORM, "X_CSRFToken": cookies["memoryhub_csrf"]}
        out = send(self.server, "POST", "/signout", b"", **sent, **form)
        self.assertEqual(out.headers["Location"], "/admin/login/")
        self.assertIn(b"Sign in as owner", self.get("/admin/login/", **sent).body)


class ListenerTests(TestCase):
    def listen(self, connections: Connections) -> Listener:
        listener = self.enterContext(bind("127.0.0.1", 0, option="--port"))
        listener.setblocking(False)
        listener.connections = connections
        return listener

    def connect(self, listener: Listener, source: str = "127.0.0.1") -> socket.socket:
        place = listener.getsockname()
        return self.enterContext(socket.create_connection(place, DEADLINE_SECONDS, source_address=(source, 0)))

    def test_a_connection_counts_from_its_acceptance_to_its_end(self):
        connections = Connections(2)
        listener = self.listen(connections)
        clients = [self.connect(listener) for _ in range(3)]
        held = [listener.accept()[0] for _ in range(2)]
        with self.assertRaises(BlockingIOError):
            listener.accept()
        self.assertEqual(status_of(read_all(clients[2])), 503)
        self.assertEqual(connections.total, 2)
        held[0].close()
        held[0].close()
        self.assertEqual(connections.total, 1)
        self.connect(listener)
        listener.accept()[0].close()
        held[1].close()
        self.assertEqual(connections.total, 0)

    def test_one_address_cannot_have_all_of_them(self):
        exempt = "127.0.0.9"
        connections = Connections(10, most_of_an_address=1, address_of=lambda peer: "" if peer == exempt else peer)
        listener = self.listen(connections)
        sources = ("127.0.0.2", "127.0.0.2", "127.0.0.3", exempt, exempt)
        for source in sources:
            self.connect(listener, source)
        with contextlib.ExitStack() as held:
            accepted = [listener.accept() for _ in range(4)]
            for connection, _ in accepted:
                held.enter_context(connection)
            self.assertEqual([address[0] for _, address in accepted], ["127.0.0.2", "127.0.0.3", exempt, exempt])
        self.assertEqual(connections.total, 0)


class FileLimitTests(TestCase):
    def test_connections_leave_files_for_databases(self):
        self.assertEqual(most_connections(2_000, 1_024), 256)
        self.assertEqual(most_connections(2_000, 65_536), 2_000)

    def test_the_soft_limit_of_files_is_raised(self):
        with (
            mock.patch.object(resource, "getrlimit", return_value=(1_024, 4_096)),
            mock.patch.object(resource, "setrlimit") as changed,
        ):
            self.assertEqual(raise_file_limit(), 4_096)
        changed.assert_called_once_with(resource.RLIMIT_NOFILE, (4_096, 4_096))

    def test_the_write_ahead_logs_are_kept_short_after_files_ran_out(self):
        stop = mock.Mock()
        stop.wait.side_effect = [False, False, True]
        failure = OSError(errno.EMFILE, "Too many open files")
        with (
            mock.patch.object(wiping, "shorten_all", side_effect=[failure, []]) as shorten_all,
            self.assertLogs("memoryhub.core.backends.sqlite.wiping", "ERROR"),
        ):
            wiping.keep(stop)
        self.assertEqual(shorten_all.call_count, 2)
