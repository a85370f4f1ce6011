"""`serve` as a process: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest import TestCase

from django.test import tag

from memoryhub.core.errors import Invalid
from memoryhub.ops.serving import web
from memoryhub.ops.serving.listener import UVICORN_OPTIONS
from tests.web.server import DEADLINE_SECONDS, Server, alive, command, poll, run, serving, temporary_home

# The server, with more patience at its end than a slow machine can use up
PATIENT_SERVER = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.ops.serving import web
web._GRACE_SECONDS = 60
sys.exit(main(sys.argv))
"""
# The server, which gets a signal before it handles any, in a callback where Python drops exceptions.
_SIGNALLED_BEFORE_SERVING = """
import os, sys, weakref, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.ops.serving import web

class Module:
    pass

def signal_self(_):
    os.kill(os.getpid(), {number})
    for _ in range(2):
        pass

def import_signalled(name, import_module=web.import_module):
    module = Module()
    reference = weakref.ref(module, signal_self)
    del module
    return import_module(name)

web.import_module = import_signalled
sys.exit(main(sys.argv))
"""


@tag("process")
class FreshHomeTests(TestCase):
    def test_a_fresh_home_is_served_and_its_files_are_private(self) -> None:
        with temporary_home(fresh=True) as home, serving("--no-worker", home=home) as server:
            self.assertEqual(server.request("GET", "/api/v1/health").json(), {"status": "ok"})
            self.assertIn(f"Memory Hub serves {server.home} at http://127.0.0.1:", server.output[0])
            self.assertEqual(len(server.output), 2)
            for path in server.home.rglob("*"):
                with self.subTest(path=path.name):
                    mode = stat.S_IMODE(path.stat().st_mode)
                    self.assertEqual(mode, 0o700 if path.is_dir() else 0o600)

    def test_a_hub_that_is_behind_is_backed_up_before_it_is_migrated(self) -> None:
        with temporary_home() as home:
            code, output = run("migrate", "memoryhub", "zero", home=home)
            self.assertEqual(code, 0, output)
            with serving("--no-worker", home=home) as server:
                self.assertIn("Backed up before the upgrade:", server.text)
                self.assertEqual(server.request("GET", "/api/v1/health").status, 200)
            backups = list((home / "backups").glob("*-hub-before-upgrade.db"))
            self.assertEqual(len(backups), 1)
            with closing(sqlite3.connect(backups[0])) as backup:
                self.assertEqual(backup.execute("PRAGMA integrity_check").fetchone(), ("ok",))

    def test_signin_without_a_running_hub_says_how_to_start_one(self) -> None:
        with temporary_home() as home:
            code, output = run("signin", home=home)
        self.assertEqual(code, 8)
        self.assertIn("Memory Hub is not running; start it with `memory-hub serve`", output)


@tag("process")
class RunningTests(TestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = cls.enterClassContext(serving("--no-worker"))

    def test_the_link_signs_in_once_even_when_four_follow_it_together(self) -> None:
        path = self.server.link.removeprefix(self.server.address)
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda _: self.server.request("GET", path), range(4)))
        self.assertEqual(sorted(reply.status for reply in replies), [302, 410, 410, 410])
        cookies = next(reply for reply in replies if reply.status == 302).headers.get_all("Set-Cookie") or []
        session = next(each for each in cookies if each.startswith("memoryhub_session="))
        self.assertIn("HttpOnly", session)
        self.assertIn("SameSite=Lax", session)
        self.assertEqual(self.server.request("GET", "/", Cookie=session.split(";")[0]).status, 200)

    def test_a_request_for_a_foreign_host_is_refused_with_one_line_in_the_log(self) -> None:
        before = len(self.server.output)
        hosts = {"/": "evil.example", "/api/v1/health": "evil2.example", "/p/alpha/": "evil 3", "/admin/": "x" * 300}
        for path, host in hosts.items():
            self.assertEqual(self.server.request("GET", path, Host=host).status, 400)
        # Each line is written before its answer, but this process's reader may lag behind.
        said = poll(lambda: self.server.output[before : before + 4][3:] and self.server.output[before:], what="the log")
        self.assertEqual(len(said), 4, said)
        for line, host in zip(said, hosts.values(), strict=True):
            self.assertIn(
                f"WARNING django.security.DisallowedHost: refused a request for the host {host[:100]!r}: ", line
            )

    def test_signin_prints_a_new_link_to_the_running_hub(self) -> None:
        code, output = run("signin", home=self.server.home)
        self.assertEqual(code, 0)
        path = output.strip().removeprefix(self.server.address)
        self.assertEqual(self.server.request("GET", path).status, 302)
        self.assertEqual(self.server.request("GET", path).status, 410)

    def test_files_of_packages_are_served_and_may_be_kept(self) -> None:
        for path in ("/static/admin/css/base.css", "/static/memoryhub/hub.css"):
            reply = self.server.request("GET", path)
            self.assertEqual(reply.status, 200)
            self.assertIn("max-age=300", reply.headers["Cache-Control"])
            again = self.server.request("GET", path, If_Modified_Since=reply.headers["Last-Modified"])
            self.assertEqual((again.status, again.body), (304, b""))

    def test_files_are_kept_from_other_hosts_names_and_no_sign_in_server_is_offered(self) -> None:
        self.assertEqual(self.server.request("GET", "/static/admin/css/base.css", Host="evil.example").status, 400)
        reply = self.server.request("GET", "/.well-known/oauth-protected-resource")
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (404, "text/plain"))

    def test_a_second_server_of_one_home_is_refused_and_names_the_first(self) -> None:
        port = self.server.address.rpartition(":")[2]
        code, output = run("serve", "--port", port, home=self.server.home)
        self.assertEqual(code, 5)
        self.assertIn(f"already running at {self.server.address} (process {self.server.process.pid})", output)
        self.assertEqual(len(output.strip().splitlines()), 1)

    def test_a_connection_is_kept_for_longer_than_clients_and_proxies_leave_theirs_idle(self) -> None:
        longest_of_others = 120  # Caddy's; httpx has 5 s, nginx 60
        self.assertGreater(UVICORN_OPTIONS["timeout_keep_alive"], longest_of_others)
        with closing(http.client.HTTPConnection(*self.server.place, timeout=DEADLINE_SECONDS)) as client:
            for _ in range(2):
                client.request("GET", "/api/v1/health")
                client.auto_open = 0
                with client.getresponse() as response:
                    response.read()
                self.assertEqual(response.status, 200)

    def test_a_project_made_by_one_request_is_seen_by_all_threads(self) -> None:
        self.server.api("POST", "projects", {"project_id": "alpha"})
        with ThreadPoolExecutor(8) as pool:
            writes = [
                pool.submit(
                    self.server.api, "POST", "projects/alpha/memories", {"title": f"Note {n}", "content": f"text {n}"}
                )
                for n in range(24)
            ]
            self.assertEqual({write.result().status for write in writes}, {201})
        listed = self.server.api("GET", "projects/alpha/memories?limit=100").json()
        self.assertEqual(listed["meta"]["total_count"], 24)


# A command that can create files and write nothing into them, as on a full disk
_WITHOUT_ROOM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from memoryhub.cli import main
sys.exit(main(sys.argv))
"""
_SECRETS = ("token", "secret_key", "redaction.key")


@tag("process")
class SecretFileTests(TestCase):
    def refused(self, home: Path, *, program: str = "") -> str:
        """Start a hub that must not start, and return the one sentence that it says instead."""
        with command("serve", "--port", "0", "--no-worker", home=home, program=program) as process:
            try:
                output, _ = process.communicate(timeout=DEADLINE_SECONDS)
            finally:
                process.kill()
        self.assertEqual((process.returncode, len(output.splitlines())), (8, 1), output)
        return output

    def status(self, server: Server, authorization: str) -> int:
        headers = {"Authorization": authorization}
        return server.request("POST", "/api/v1/projects", {"project_id": "intruder"}, **headers).status

    def test_empty_secret_files_admit_nobody_and_get_new_secrets(self) -> None:
        with temporary_home() as home:
            (home / "token").touch(0o600)
            (home / "token").write_text("\0" * 43)  # other empty files: tests.core.test_secret_files
            (home / "secret_key").write_text("")
            with serving("--no-worker", home=home) as server:
                self.assertRegex(server.text, r"the secret file \S+/token was empty; it gets another secret")
                for authorization in ("Bearer ", "Bearer", "Bearer \t", "bearer  "):
                    self.assertEqual(self.status(server, authorization), 401)
                self.assertGreaterEqual(len(server.token), 32)
                self.assertEqual(server.api("GET", "projects").json()["meta"]["total_count"], 0)
                self.assertEqual(stat.S_IMODE((home / "token").stat().st_mode), 0o600)
                link = server.link.removeprefix(server.address)
                self.assertEqual(server.request("GET", link).status, 302)
                self.empty_the_token(server)

    def empty_the_token(self, server: Server) -> None:
        """Empty the file while the hub runs: it admits nobody until there is a new token."""
        before = server.token
        (server.home / "token").write_text("")
        self.assertEqual(self.status(server, "Bearer "), 401)
        self.assertEqual(self.status(server, f"Bearer {before}"), 401)
        self.assertEqual(server.api("GET", "projects").status, 200)
        (server.home / "token").write_text("short\n")
        refused = server.api("GET", "projects")
        self.assertEqual((refused.status, refused.json()["code"]), (503, "unavailable"))
        self.assertIn("token holds 5 characters, and a secret needs at least 32; remove it", refused.body.decode())

    def test_a_secret_that_is_too_short_stops_the_start_with_one_sentence(self) -> None:
        for name in _SECRETS:
            with self.subTest(name=name), temporary_home() as home:
                (home / name).write_text("abc\n")
                said = self.refused(home)
                self.assertIn(f"{home / name} holds 3 characters, and a secret needs at least 32; remove it", said)

    def test_a_full_disk_at_the_first_start_leaves_no_secret_behind(self) -> None:
        with temporary_home(fresh=True) as home:
            self.refused(home, program=_WITHOUT_ROOM)
            self.assertEqual([name for name in _SECRETS if (home / name).exists()], [])
            with serving("--no-worker", home=home) as server:
                self.assertEqual(server.api("GET", "projects").status, 200)


@tag("process")
class RefusalTests(TestCase):
    def test_a_port_in_use_is_one_sentence(self) -> None:
        with temporary_home() as home, closing(socket.create_server(("127.0.0.1", 0))) as taken:
            port = taken.getsockname()[1]
            code, output = run("serve", "--port", str(port), home=home)
        self.assertEqual(code, 8)
        self.assertEqual(
            output.strip(),
            f"memory-hub: can't listen on 127.0.0.1 port {port} (Address already in use); choose another with --port",
        )

    def test_only_this_machine_is_served(self) -> None:
        for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
            with self.subTest(host=host), self.assertRaisesRegex(Invalid, "would open this hub to other machines"):
                web.listen(host, 0)


@tag("process")
class EndTests(TestCase):
    def _worker_of(self, server: Server) -> list[int]:
        # The queue's guard starts a worker, a pusher and a monitor beside itself.
        found: list[int] = poll(
            lambda: pids if len(pids := server.worker_pids()) >= 5 else None, what="the worker's processes"
        )
        return found

    def _end(self, number: int) -> None:
        with serving() as server:
            pids = self._worker_of(server)
            code = server.end(number)
            self.assertEqual(code, 0, server.text)
            poll(lambda: not alive(pids), what="the end of the worker, which was killed")
            self.assertNotIn("Traceback", server.text)

    def test_a_signal_ends_the_web_and_the_worker(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                self._end(number)

    def test_the_worker_ends_by_itself_when_the_server_is_killed(self) -> None:
        with serving() as server:
            pids = self._worker_of(server)
            server.end(signal.SIGKILL)
            poll(lambda: not alive(pids), what="the end of the worker")


@tag("process")
class EndWithoutWorkerTests(TestCase):
    def test_a_signal_before_the_first_request_can_be_answered_ends_it_too(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            program = _SIGNALLED_BEFORE_SERVING.format(number=int(number))
            with self.subTest(signal=number), serving("--no-worker", program=program) as server:
                self.assertEqual(server.process.wait(DEADLINE_SECONDS), 0, server.text)

    def test_a_request_that_is_being_answered_is_finished(self) -> None:
        with serving("--no-worker", program=PATIENT_SERVER) as server:
            server.api("POST", "projects", {"project_id": "alpha"})
            with closing(socket.create_connection(server.place, DEADLINE_SECONDS)) as client:
                body = self._begin_to_write(client, server)
                server.process.send_signal(signal.SIGTERM)
                poll(lambda: not takes_callers(server), what="a server that takes no more requests")
                client.sendall(body)
                self.assertIn(b"201 Created", client.makefile("rb").readline())
            self.assertEqual(server.process.wait(DEADLINE_SECONDS), 0)

    def _begin_to_write(self, client: socket.socket, server: Server) -> bytes:
        """Send a request but for its body; return that once the server has asked for it, and so is at work on it."""
        body = json.dumps({"title": "Late", "content": "still answered"}).encode()
        headers = ["Host: localhost", f"Authorization: Bearer {server.token}", "Content-Type: application/json"]
        lines = ["POST /api/v1/projects/alpha/memories HTTP/1.1", *headers, f"Content-Length: {len(body)}"]
        client.sendall("\r\n".join([*lines, "Expect: 100-continue", "", ""]).encode())
        self.assertIn(b"100 Continue", client.recv(1000))
        return body


def takes_callers(server: Server) -> bool:
    try:
        socket.create_connection(server.place, DEADLINE_SECONDS).close()
    except ConnectionError:
        return False
    return True


@tag("process")
class WorkerTests(TestCase):
    def test_the_worker_checks_every_store_and_a_broken_one_does_not_stop_it(self) -> None:
        with serving() as server:
            for project in ("alpha", "beta"):
                server.api("POST", "projects", {"project_id": project})
            server.api("POST", "projects/beta/memories", {"title": "t", "content": "kept"})
            (server.home / "projects/alpha/events.db").write_bytes(b"this is no database" * 1000)
            enqueue = (
                "from django_q.tasks import async_task; async_task('memoryhub.ops.jobs.run_scheduled', 'verify stores')"
            )
            code, output = run("shell", "--verbosity", "0", "--command", enqueue, home=server.home)
            self.assertEqual(code, 0, output)

            def checked() -> list[dict[str, object]] | None:
                found = server.api("GET", "projects").json()["results"]
                return found if all(each["chain_finding"] for each in found) else None

            alpha, beta = poll(checked, what="the check of both stores")
            self.assertFalse(alpha["chain_ok"])
            self.assertIn("memory database unavailable", alpha["chain_finding"])
            self.assertTrue(beta["chain_ok"])
            self.assertIn("the chain holds: 1 event,", beta["chain_finding"])
