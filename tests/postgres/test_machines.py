"""Several machines that serve one hub: what changes on one is seen on the others."""

from __future__ import annotations

import http.client
import threading
from contextlib import ExitStack, closing
from functools import partial
from typing import Any
from unittest import TestCase, mock

from django.db import OperationalError
from django.test import tag

from memoryhub import env
from memoryhub.core.stores.store_id import Scope, StoreId
from tests.pgbouncer import PgBouncer
from tests.postgres import machines
from tests.postgresql import hub_template, shared_cluster
from tests.programs import needs
from tests.server_processes import free_port
from tests.web.server import Server, poll

_LEASES = """
from memoryhub.core.backends.selected import machines

with machines.holding("a job") as lease, machines.holding("a job") as second:
    lease.write("begun here")
    with machines.inspect("a job") as looked:
        held = [second is None, looked, machines.texts().get("a job")]
with machines.holding("a job") as lease:
    again = lease.abandoned
child = os.fork()
if child == 0:
    with machines.holding("a job") as lease:
        lease.write("begun by a process that dies")
        os._exit(0)
os.waitpid(child, 0)
with machines.holding("a job") as lease:
    at_once = lease
machines.rows_of_hub("UPDATE hub.leases SET until = until - interval '1 hour'")
with machines.holding("a job") as lease:
    left = lease.abandoned
    machines.rows_of_hub("UPDATE hub.leases SET holder = 'another'")
    try:
        lease.write("too late")
        lost = ""
    except Exception as error:
        lost = type(error).__name__
child = os.fork()
if child == 0:
    with machines.holding("another job"):
        os._exit(0)
os.waitpid(child, 0)
machines.rows_of_hub("UPDATE hub.leases SET until = until + interval '10 years' WHERE name LIKE '%another job'")
with machines.holding("another job") as lease:
    after_set_back = lease is not None
print(json.dumps([held, again, at_once, left, lost, after_set_back]))
"""
_TOKEN = """
from memoryhub.core.secret_files import read_or_create_secret
print(json.dumps(read_or_create_secret("token")))
"""
_SHARED_TAG = """
from memoryhub.core.secrets.sanitize import sanitize_text
with use_store(project_store("alpha")):
    print(json.dumps(sanitize_text("the key is sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc")[0]))
"""


@needs("postgresql")
@tag("attack")
class MachinesTests(TestCase):
    url: str
    one: Server
    other: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        stack = cls.enterClassContext(ExitStack())
        cls.url = stack.enter_context(shared_cluster().database(template=hub_template()))
        cls.one = stack.enter_context(machines.serving(cls.url, "--no-worker"))
        cls.other = stack.enter_context(machines.serving(cls.url, "--no-worker"))
        assert cls.one.api("POST", "projects", {"project_id": "alpha"}).status == 201

    def python(self, program: str) -> Any:
        with machines.new_home() as home:
            return machines.run_python(program, home, self.url)

    def command(self, server: Server, *arguments: str) -> str:
        code, output = machines.run(*arguments, home=server.home, url=self.url)
        self.assertEqual(code, 0, output)
        return output

    def sign_in(self, server: Server) -> tuple[str, str]:
        """Follow a new link of a machine, and return its path and the cookies."""
        path = "/signin/" + self.command(server, "signin").strip().rpartition("/signin/")[2]
        cookies = server.request("GET", path).headers.get_all("Set-Cookie") or []
        return path, "; ".join(cookie.split(";")[0] for cookie in cookies)

    def test_what_one_machine_has_is_on_the_other_at_once(self) -> None:
        written = self.one.api("POST", "projects/alpha/memories", {"title": "Shared", "content": "seen by both"})
        self.assertEqual(written.status, 201)
        read = self.other.api("GET", f"projects/alpha/memories/{written.json()['id']}")
        self.assertEqual((read.status, read.json()["title"]), (200, "Shared"))
        for name in ("token", "secret_key", "redaction.key"):
            self.assertEqual((self.one.home / name).read_text(), (self.other.home / name).read_text(), name)
        self.assertEqual(self.python(_SHARED_TAG), self.python(_SHARED_TAG))
        self.assertNotIn(self.one.token, self.one.text + self.other.text)
        parts = self.other.api("GET", "health").json()["parts"]
        self.assertEqual((parts["the hub's database"], parts["project alpha"]), ("ok", "ok"))
        self.assertNotIn("hub.db", parts)

    def test_a_session_and_a_token_of_one_machine_hold_on_the_other_until_they_end_there(self) -> None:
        path, cookie = self.sign_in(self.one)
        self.assertEqual(self.other.request("GET", "/jobs", Cookie=cookie).status, 200)
        self.assertNotEqual(self.other.request("GET", "/jobs").status, 200)
        self.assertNotEqual(self.other.request("GET", path).status, 302, "a link signs in once")
        token = self.command(self.one, "token", "create", "--name", "ci").strip().splitlines()[-1]
        headers = {"Authorization": f"Bearer {token}"}
        self.assertEqual(self.other.request("GET", "/api/v1/projects", **headers).status, 200)
        self.command(self.other, "token", "revoke", "ci")
        self.assertEqual(self.one.request("GET", "/api/v1/projects", **headers).status, 401)

    def test_a_page_open_on_one_machine_follows_each_write_on_the_other(self) -> None:
        headers = {"Cookie": self.sign_in(self.one)[1], "Accept": "text/event-stream"}
        with closing(http.client.HTTPConnection(*self.one.place, timeout=30)) as connection:
            connection.request("GET", "/p/alpha/admin/live/", headers=headers)
            stream = connection.getresponse()
            self.assertEqual(stream.status, 200)
            before = self.next_version(stream)
            for number in range(3):
                body = {"title": f"live {number}", "content": f"text {number}"}
                self.assertEqual(self.other.api("POST", "projects/alpha/memories", body).status, 201)
                after = self.next_version(stream)
                self.assertNotEqual(before, after)
                before = after

    def next_version(self, stream: http.client.HTTPResponse) -> str:
        while not (line := stream.readline().decode()).startswith("data:"):
            self.assertTrue(line, "the stream ended")
        return line

    def test_a_lease_has_one_holder_and_the_next_learns_what_one_that_died_has_left(self) -> None:
        held, again, at_once, left, lost, after_set_back = self.python(_LEASES)
        self.assertEqual(held, [True, ["begun here", ""], "begun here"])
        self.assertEqual((again, at_once), ("", None))
        self.assertEqual((left, lost), ("begun by a process that dies", "Locked"))
        self.assertTrue(after_set_back)

    def test_commands_name_what_there_is(self) -> None:
        with machines.new_home() as home:
            for arguments in (("status",), ("backup",), ("doctor",), ("restore", "x.db", "--project", "alpha")):
                _, output = machines.run(*arguments, home=self.one.home, url=self.url)
                for name in ("hub.db", "jobs.db", "events.db"):
                    self.assertNotIn(name, output, arguments)
            bundle = next((self.one.home / "backups" / "project-alpha").glob("*.bundle"))
            code, output = machines.run("bundle", "verify", str(bundle), home=home, url=self.url)
        self.assertEqual(code, 0, output)

    def test_doctor_says_that_the_server_cannot_be_reached(self) -> None:
        gone = f"postgresql://hub@127.0.0.1:{free_port()}/hub"
        with machines.new_home() as home:
            code, output = machines.run("doctor", home=home, url=gone)
        self.assertEqual(code, 15, output)
        self.assertIn("it can't be reached", output)


@needs("postgresql", "pgbouncer")
@tag("attack")
class PoolerTests(TestCase):
    def test_leases_and_secrets_need_no_session_of_the_server(self) -> None:
        cluster = shared_cluster()
        with PgBouncer(cluster, pool_size=2) as bouncer:
            url = bouncer.url(cluster.create_database())
            with machines.new_home() as home:
                _, again, at_once, left, lost, _ = machines.run_python(_LEASES, home, url)
                self.assertEqual((again, at_once), ("", None))
                self.assertEqual((left, lost), ("begun by a process that dies", "Locked"))
            with machines.new_home() as home, machines.new_home() as other:
                tokens = {machines.run_python(_TOKEN, place, url) for place in (home, other)}
            self.assertEqual(len(tokens), 1)


@needs("postgresql")
@tag("attack")
class NewHubTests(TestCase):
    def test_an_empty_database_and_one_variable_are_enough(self) -> None:
        with ExitStack() as stack:
            cluster = shared_cluster()
            name = cluster.create_database()
            server = stack.enter_context(machines.serving(cluster.url(name)))
            self.assertEqual(server.api("POST", "projects", {"project_id": "alpha"}).status, 201)
            body = {"title": "First", "content": "kept in PostgreSQL"}
            self.assertEqual(server.api("POST", "projects/alpha/memories", body).status, 201)
            schemas = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information)' ORDER BY 1"
            found = [schema for (schema,) in cluster.execute(schemas, database=name)]
            self.assertEqual(found, ["heads", "hub", "jobs", "project_alpha", "public"])
            runs = "SELECT count(*) FROM hub.memoryhub_jobrun WHERE result = 'ok'"
            poll(lambda: cluster.execute(runs, database=name)[0][0], what="a job that ran")


MAIN, MARS = "postgresql://main/hub", "postgresql://mars/hub"
ALPHA, BETA = StoreId(Scope.PROJECT, "alpha"), StoreId(Scope.PROJECT, "beta")


@needs("postgresql")
class HeadsTests(TestCase):
    def setUp(self) -> None:
        from memoryhub.core.backends.postgresql import locations, machines

        self.anchors: dict[str, Any] = {MAIN: [], MARS: []}
        self.assigned: dict[str, str] = {}
        self.queried: list[str] = []
        for module, name, value in (
            (locations, "all_urls", lambda: [MAIN, MARS]),
            (locations, "assigned", lambda: self.assigned),
            (env, "servers", lambda: {"mars": MARS}),
            (env, "database_url", lambda: MAIN),
            (machines, "Direct", lambda url: mock.Mock(rows=partial(self.rows, url))),
            (threading.Thread, "start", mock.Mock()),  # no thread is started by a question
        ):
            self.enterContext(mock.patch.object(module, name, value))
        self.heads = machines._Heads()

    def rows(self, url: str, _sql: str) -> Any:
        self.queried.append(url)
        if isinstance(self.anchors[url], Exception):
            raise self.anchors[url]
        return self.anchors[url]

    def heads_of(self, *stores: StoreId) -> list[Any]:
        self.heads._look()
        return [self.heads.of(store) for store in stores]

    def test_an_anchor_counts_on_the_server_that_has_the_store(self) -> None:
        self.anchors = {
            MAIN: [("project:alpha", 9, "now"), ("project:beta", 2, "left behind")],
            MARS: [("project:alpha", 5, "left behind"), ("project:beta", 3, "now")],
        }
        self.assigned = {"project:beta": "mars"}
        self.assertEqual(self.heads_of(ALPHA, BETA), [[9, "now"], [3, "now"]])

    def test_a_further_server_that_is_away_is_left_alone_for_a_while(self) -> None:
        self.anchors = {MAIN: [("project:alpha", 9, "now")], MARS: OperationalError("it can't be reached")}
        with self.assertLogs("memoryhub", "WARNING") as logged:
            for _ in range(2):
                self.assertEqual(self.heads_of(ALPHA), [[9, "now"]])
        self.assertEqual(len(logged.output), 1)
        self.assertEqual(self.queried, [MAIN, MARS, MAIN])

    def test_reading_goes_on_after_any_error(self) -> None:
        self.anchors[MAIN] = RuntimeError("unforeseen")
        with self.assertLogs("memoryhub", "WARNING"):
            self.assertEqual(self.heads_of(ALPHA), [None])
        self.anchors[MAIN] = [("project:alpha", 9, "now")]
        self.assertEqual(self.heads_of(ALPHA), [[9, "now"]])
        with mock.patch.object(self.heads, "_look", side_effect=KeyError), self.assertRaises(KeyError):
            self.heads._reads = True
            self.heads._keep_reading()
        self.assertFalse(self.heads._reads)
