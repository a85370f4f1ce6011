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
from urllib.parse import urlsplit

from django.test import tag

from memoryhub import __version__
from memoryhub.core.errors import Invalid
from memoryhub.ops.serving import web
from memoryhub.ops.serving.listener import UVICORN_OPTIONS
from tests.server_processes import free_port
from tests.web.server import DEADLINE_SECONDS, Server, alive, command, poll, run, serving, temporary_home

_SERVER = """
import os, sys, weakref, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.ops.serving import web
{changes}
sys.exit(main(sys.argv))
"""
# The server, with more patience at its end than a slow machine can use up
PATIENT_SERVER = _SERVER.format(changes="web._GRACE_SECONDS = 60")
# The server of a version that this one has replaced
_SINCE_UPGRADED = """
import sys, memoryhub
memoryhub.__version__ = "0.0.9"
from memoryhub.cli import main
sys.exit(main())
"""
# The server, which gets a signal before it handles any, in a callback where Python drops exceptions.
_SIGNALLED_BEFORE_SERVING = """
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
class OnDemandTests(TestCase):
    def start(self, home: Path, *, program: str = "") -> Server:
        process = command("serve", "--on-demand", "--no-worker", "--port", "0", home=home, program=program)
        server = Server(home, process=process)
        self.addCleanup(server.close)
        lock = home / "serve.lock"
        poll(lambda: lock.exists() and b"http" in lock.read_bytes(), what="the hub's address")
        return server

    def test_it_ends_when_its_program_was_upgraded(self) -> None:
        with temporary_home() as home:
            server = self.start(home, program=_SINCE_UPGRADED)
            self.assertEqual(server.process.wait(DEADLINE_SECONDS), 0)
            self.assertIn(f"upgraded to version {__version__}: ending", (home / "serve.log").read_text())

    def test_stop_ends_it_and_returns_when_it_has_ended(self) -> None:
        with temporary_home() as home:
            server = self.start(home)
            code, output = run("stop", home=home)
            self.assertEqual((code, server.process.wait(DEADLINE_SECONDS)), (0, 0), output)
            self.assertIn(f"Stopped the hub (process {server.process.pid}).", output)
            self.assertEqual(run("stop", home=home), (0, "No hub runs in this home.\n"))

    def test_it_goes_on_and_is_named_where_the_port_of_another_is_taken(self) -> None:
        with temporary_home() as home, socket.create_server(("127.0.0.1", 0)) as other:
            server = self.start(home)
            code, output = run("serve", "--port", str(other.getsockname()[1]), home=home)
            self.assertEqual((code, server.process.poll()), (8, None), output)
            self.assertRegex(
                output,
                r"can't listen on 127\.0\.0\.1 port \d+ \(Address already in use\); choose another with --port; this "
                rf"home's hub runs at http://127\.0\.0\.1:\d+ \(process {server.process.pid}\): `memory-hub signin` ",
            )


@tag("process")
class DjangosCommandsTests(TestCase):
    def test_they_work_in_a_home_that_does_not_exist_yet(self) -> None:
        person = ("--noinput", "--username", "ada", "--email", "ada@example.org")
        for arguments, sentence in (
            (("showmigrations", "memoryhub"), "[ ] 0001_squashed"),
            (("migrate",), "Applying memoryhub.0001_squashed... OK"),
            (("createsuperuser", *person), "Superuser created successfully."),
        ):
            with self.subTest(arguments[0]), temporary_home(fresh=True) as home:
                code, output = run(*arguments, home=home)
                self.assertEqual((code, sentence in output), (0, True), output)
                self.assertEqual(stat.S_IMODE(home.stat().st_mode), 0o700)

    def test_the_development_server_prints_a_link_that_leads_to_the_admin(self) -> None:
        port = free_port()
        with temporary_home(fresh=True) as home:
            process = command("runserver", "--noreload", str(port), home=home)
            server = Server(home, process=process)
            try:
                server.wait_until_ready()
                with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)) as connection:
                    connection.request("GET", urlsplit(server.link).path)
                    reply = connection.getresponse()
                    reply.read()
                    cookie = "; ".join(one.split(";")[0] for one in reply.headers.get_all("Set-Cookie") or [])
                    places = []
                    for path in ("/admin/", "/"):
                        connection.request("GET", path, headers={"Cookie": cookie})
                        reply = connection.getresponse()
                        reply.read()
                        places.append((reply.status, reply.headers["Location"]))
                self.assertEqual(places, [(302, "/"), (200, None)])
            finally:
                server.close()


@tag("process")
class RunningTests(TestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = cls.enterClassContext(serving("--no-worker"))

    def test_a_link_signs_in_once_even_when_four_follow_it_together(self) -> None:
        code, output = run("signin", home=self.server.home)
        self.assertEqual(code, 0)
        for link in (self.server.link, output.strip()):
            path = link.removeprefix(self.server.address)
            with ThreadPoolExecutor(4) as pool:
                replies = list(pool.map(lambda path: self.server.request("GET", path), [path] * 4))
            self.assertEqual(sorted(reply.status for reply in replies), [302, 410, 410, 410])
        cookies = next(reply for reply in replies if reply.status == 302).headers.get_all("Set-Cookie") or []
        session = next(cookie for cookie in cookies if cookie.startswith("memoryhub_session="))
        self.assertRegex(session, "(?=.*HttpOnly).*SameSite=Lax")
        self.assertEqual(self.server.request("GET", "/", Cookie=session.split(";")[0]).status, 200)

    def test_a_request_for_a_foreign_host_is_refused_with_one_line_in_the_log(self) -> None:
        before = len(self.server.output)
        hosts = {"/": "evil.example", "/static/admin/css/base.css": "evil2.example", "/p/alpha/": "evil 3"}
        hosts["/admin/"] = "x" * 300
        for path, host in hosts.items():
            self.assertEqual(self.server.request("GET", path, Host=host).status, 400)
        # Each line is written before its answer, but this process's reader may lag behind.
        poll(lambda: len(self.server.output) >= before + 4, what="the log")
        for line, host in zip(self.server.output[before:], hosts.values(), strict=True):
            refusal = f"refused a request for the host {host[:100]!r}: "
            self.assertIn(f"WARNING django.security.DisallowedHost: {refusal}", line)

    def test_files_may_be_cached_and_headers_of_a_proxy_and_sign_in_servers_are_none(self) -> None:
        for path in ("/static/admin/css/base.css", "/static/memoryhub/hub.css"):
            reply = self.server.request("GET", path)
            self.assertEqual(reply.status, 200)
            self.assertIn("max-age=300", reply.headers["Cache-Control"])
            again = self.server.request("GET", path, If_Modified_Since=reply.headers["Last-Modified"])
            self.assertEqual((again.status, again.body), (304, b""))
        reply = self.server.request("GET", "/.well-known/oauth-protected-resource")
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (404, "text/plain"))
        forged = {"Remote_User": "owner", "X_Forwarded_Proto": "https", "X_Forwarded_For": "203.0.113.7"}
        headers = self.server.request("GET", "/", **forged).headers
        self.assertEqual((headers["Location"], headers["Strict-Transport-Security"]), ("/admin/login/", None))

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
            notes = [{"title": f"Note {number}", "content": f"text {number}"} for number in range(24)]
            replies = pool.map(lambda note: self.server.api("POST", "projects/alpha/memories", note), notes)
            self.assertEqual({reply.status for reply in replies}, {201})
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
        home = self.enterContext(temporary_home())
        (home / "token").touch(0o600)
        (home / "token").write_text("\0" * 43)  # other empty files: tests.core.test_secret_files
        (home / "secret_key").write_text("")
        server = self.enterContext(serving("--no-worker", home=home))
        self.assertRegex(server.text, r"the secret file \S+/token was empty; it gets another secret")
        before = server.token
        self.assertGreaterEqual(len(before), 32)
        self.assertEqual(stat.S_IMODE((home / "token").stat().st_mode), 0o600)
        self.assertEqual(server.request("GET", server.link.removeprefix(server.address)).status, 302)
        empty = ("Bearer ", "Bearer", "Bearer \t", "bearer  ")
        self.assertEqual([self.status(server, text) for text in empty], [401] * 4)
        self.assertEqual(server.api("GET", "projects").json()["meta"]["total_count"], 0)
        (home / "token").write_text("")  # while the hub runs: it admits nobody until there is a new token
        self.assertEqual([self.status(server, text) for text in ("Bearer ", f"Bearer {before}")], [401] * 2)
        self.assertEqual(server.api("GET", "projects").status, 200)
        (home / "token").write_text("short\n")
        refusal = server.api("GET", "projects")
        self.assertEqual((refusal.status, refusal.json()["code"]), (503, "unavailable"))
        self.assertIn("token holds 5 characters, and a secret needs at least 32; remove it", refusal.body.decode())

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
        with temporary_home() as home, closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = listener.getsockname()[1]
            code, output = run("serve", "--port", str(port), home=home)
        sentence = f"can't listen on 127.0.0.1 port {port} (Address already in use); choose another with --port"
        self.assertEqual((code, output.strip()), (8, f"memory-hub: {sentence}"))

    def test_only_this_machine_is_served(self) -> None:
        for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
            with self.subTest(host=host), self.assertRaisesRegex(Invalid, "would open this hub to other machines"):
                web.listen(host, 0)


@tag("process")
class EndTests(TestCase):
    def test_a_signal_ends_the_web_and_the_worker_which_also_ends_by_itself_when_the_server_is_killed(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(signal=number), serving() as server:
                self.assertEqual(server.worker_pids(), [])
                task = "from django_q.tasks import async_task; async_task('time.sleep', 600)"
                self.assertEqual(run("shell", "--verbosity", "0", "--command", task, home=server.home)[0], 0)
                # The queue's guard starts a worker, a pusher and a monitor beside itself.
                poll(lambda: len(server.worker_pids()) >= 5, what="the worker's processes")
                pids = server.worker_pids()
                code = server.end(number)
                self.assertEqual(code, -number if number == signal.SIGKILL else 0, server.text)
                poll(lambda: not alive(pids), what="the end of the worker")  # noqa: B023 - at once
                self.assertNotIn("Traceback", server.text)


@tag("process")
class EndWithoutWorkerTests(TestCase):
    def test_a_signal_before_the_first_request_can_be_answered_ends_it_too(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            program = _SERVER.format(changes=_SIGNALLED_BEFORE_SERVING.format(number=int(number)))
            with self.subTest(signal=number), serving("--no-worker", program=program) as server:
                self.assertEqual(server.process.wait(DEADLINE_SECONDS), 0, server.text)

    def test_a_request_that_is_being_answered_is_finished(self) -> None:
        body = json.dumps({"title": "Late", "content": "still answered"}).encode()
        with serving("--no-worker", program=PATIENT_SERVER) as server:
            server.api("POST", "projects", {"project_id": "alpha"})
            with closing(socket.create_connection(server.place, DEADLINE_SECONDS)) as client:
                headers = ["Host: localhost", f"Authorization: Bearer {server.token}", "Content-Type: application/json"]
                headers += [f"Content-Length: {len(body)}", "Expect: 100-continue", "", ""]
                client.sendall("\r\n".join(["POST /api/v1/projects/alpha/memories HTTP/1.1", *headers]).encode())
                # The server asks for the body, and so is at work on the request
                self.assertIn(b"100 Continue", client.recv(1000))
                server.process.send_signal(signal.SIGTERM)
                poll(lambda: not takes_callers(server), what="a server that takes no more requests")
                client.sendall(body)
                self.assertIn(b"201 Created", client.makefile("rb").readline())
            self.assertEqual(server.process.wait(DEADLINE_SECONDS), 0)


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
            task = "async_task('memoryhub.ops.jobs.run_scheduled', 'verify stores')"
            program = f"from django_q.tasks import async_task; {task}"
            code, output = run("shell", "--verbosity", "0", "--command", program, home=server.home)
            self.assertEqual(code, 0, output)

            def checked() -> list[dict[str, object]] | None:
                found = server.api("GET", "projects").json()["results"]
                return found if all(each["chain_finding"] for each in found) else None

            alpha, beta = poll(checked, what="the check of both stores")
            self.assertFalse(alpha["chain_ok"])
            self.assertIn("memory database unavailable", alpha["chain_finding"])
            self.assertTrue(beta["chain_ok"])
            self.assertIn("the chain holds: 1 event,", beta["chain_finding"])
