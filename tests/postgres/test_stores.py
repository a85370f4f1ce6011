"""Stores as schemas of PostgreSQL: names, connections, locks, and what a redaction leaves in the server's files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import TestCase

import psycopg
from django.test import tag

from tests.postgres.machines import begin_python, run_python
from tests.postgresql import Cluster, shared_cluster
from tests.programs import needs

_WRITE = """

def write(project, title):
    with use_store(project_store(project), create=True):
        return write_memory(command=MemoryWrite(title=title, content=f"about {title}"))

def titles(project):
    with use_store(project_store(project)):
        return [title for (title,) in rows.fetch("SELECT title FROM memories_memory ORDER BY id")]

def refusal(work, *arguments):
    try:
        work(*arguments)
    except HubError as error:
        return error.message
    return ""
"""
# Ids with all that an id may have, and with what statements are rewritten by
_NAMES = ("plain", "app-2.0", "2.5", "v1.5.rc-1", "my-live.site", "a-main.b", "x" * 64)
_MANY_NAMES = f"""{_WRITE}
from memoryhub.core.log import rebuild
from memoryhub.core.log.erase import wipe_free_space
for name in {_NAMES!r}:
    write(name, "heron")
    with use_store(project_store(name)):
        rebuild()
        wipe_free_space()
        write_memory(command=MemoryWrite(title="swan", content="after the rebuild"))
        assert rows.fetch("SELECT 0.5, 'main.x', 'live.x'") == [(0.5, "main.x", "live.x")]
print(json.dumps([list_projects(), {{name: titles(name) for name in {_NAMES!r}}}]))
"""
_COLLISION = f"""{_WRITE}
from memoryhub.core.backends.postgresql import locations, stores
long = "victim-" + "a" * 50
write(long, "heron")
name = locations.schema_of(project_store(long))
same = name.removeprefix("project_")
found = [locations.schema_of(project_store(same)) != name]
# A schema that has another store's name, however it came to have it
locations.direct().rows(f"COMMENT ON SCHEMA {{locations.quote(name)}} IS 'project:another'")
stores.forget_schema(project_store(long))
print(json.dumps([*found, refusal(write, long, "swan")]))
"""
_AFTER_RESTART = f"""{_WRITE}
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from memoryhub.core.backends.postgresql import locations
write("alpha", "heron")
barrier = Barrier(4)

def occupy(_):
    barrier.wait()
    return locations.direct().rows("SELECT pg_sleep(0.2)")

with ThreadPoolExecutor(4) as threads:
    list(threads.map(occupy, range(4)))
print("idle", flush=True)
sys.stdin.readline()
# The first statements after a restart: a lock, a write outside a transaction, one within
with locations.locked("a lock", locations.all_urls()[0]):
    locations.direct().rows("CREATE TABLE made_after (id bigint)")
write("alpha", "swan")
print(json.dumps(titles("alpha")))
"""
_FORKED = f"""{_WRITE}
write("alpha", "heron")
with use_store(project_store("alpha")):
    rows.fetch("SELECT 1")
    child = os.fork()
    if child == 0:
        os._exit(0 if all(rows.fetch("SELECT %s::int", [number]) == [(number,)] for number in range(300)) else 1)
    mine = all(rows.fetch("SELECT %s::int", [-number]) == [(-number,)] for number in range(300))
    _, code = os.waitpid(child, 0)
print(json.dumps([mine, code]))
"""
_WIPE_BESIDE_A_READER = f"""{_WRITE}
import psycopg
from memoryhub import env
from memoryhub.core.backends.postgresql import locations, wiping
write("alpha", "heron")
wiping._WAIT_SECONDS = 0.2
with psycopg.connect(env.database_url()) as reader, use_store(project_store("alpha")):
    reader.execute(f"SELECT * FROM {{locations.quote(locations.current_schema())}}.raw_events")
    wiped = wiping.rewrite()
    during = rows.fetch("SELECT count(*) FROM raw_events")[0][0]
with use_store(project_store("alpha")):
    print(json.dumps([wiped, during > 0, wiping.rewrite()]))
"""
# One more than it sends: a second after it was looked for, the schema is looked for once more
_MOST_ROUND_TRIPS = 12
_SEARCH = f"""{_WRITE}
import psycopg
from memories.schemas import MemorySearch
from memories.selectors import search
for number in range(12):
    write("alpha", f"the heron of pond {{number}}")
sent, execute = [], psycopg.ClientCursor.execute

def counting(cursor, *arguments, **options):
    sent.append(str(arguments[0]))
    return execute(cursor, *arguments, **options)

with use_store(project_store("alpha")):
    first = search(command=MemorySearch(query="heron of the pond")).results
    psycopg.ClientCursor.execute = counting
    again = search(command=MemorySearch(query="heron of the pond")).results
print(json.dumps([len(again), first == again, len(sent)]))
"""
_REFUSED = f"""{_WRITE}
print(json.dumps(refusal(write, "alpha", "heron")))
"""


@needs("postgresql")
class SchemaTests(TestCase):
    def setUp(self) -> None:
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory()), "home")
        self.cluster = shared_cluster()
        self.database = self.cluster.create_database()
        self.url = self.cluster.url(self.database)

    def python(self, program: str) -> Any:
        return run_python(program, self.home, self.url)

    def test_every_id_of_a_project_can_be_a_schema(self) -> None:
        names, titles = self.python(_MANY_NAMES)
        self.assertEqual(names, sorted(_NAMES))
        self.assertEqual(titles, {name: ["heron", "swan"] for name in _NAMES})

    def test_no_id_opens_the_schema_of_another(self) -> None:
        differs, refusal = self.python(_COLLISION)
        self.assertTrue(differs)
        self.assertRegex(refusal, r"can't be used: another store's schema has the same short name$")

    def test_connections_that_a_restart_has_ended_fail_nothing(self) -> None:
        with Cluster(durable=False) as cluster, cluster.database() as url:
            process = begin_python(_AFTER_RESTART, self.home, url)
            self.assertEqual(process.stdout.readline(), "idle\n")
            cluster.kill()
            output, _ = process.communicate("\n")
        self.assertEqual(output, '["heron", "swan"]\n')

    def test_a_forked_process_has_connections_of_its_own(self) -> None:
        self.assertEqual(self.python(_FORKED), [True, 0])

    def test_a_search_sends_its_independent_queries_together(self) -> None:
        hits, is_same, round_trips = self.python(_SEARCH)
        self.assertTrue(is_same and hits)
        self.assertLessEqual(round_trips, _MOST_ROUND_TRIPS)

    def test_a_rewrite_that_waits_for_a_reader_gives_way(self) -> None:
        wiped, was_readable, wiped_later = self.python(_WIPE_BESIDE_A_READER)
        self.assertEqual((wiped, was_readable, wiped_later), (False, True, True))

    def test_without_the_right_to_create_schemas_a_sentence_says_so(self) -> None:
        self.cluster.execute(f"ALTER DATABASE {self.database} OWNER TO postgres")
        self.cluster.execute(f"REVOKE CREATE ON DATABASE {self.database} FROM hub, PUBLIC")
        self.assertRegex(self.python(_REFUSED), r"refuses to create a store \(permission denied for database \S+\)")


TEXT = "heron-4711-velvet"
WRITE = f"""
with use_store(project_store("alpha"), create=True):
    for number in range(40):
        text = "{TEXT}" if number % 3 else "harmless"
        write_memory(command=MemoryWrite(title=f"{{text}} {{number}}", content=f"about {{text}}, {{number}}"))
    print(json.dumps(None))
"""
REDACT = f"""
from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
with use_store(project_store("alpha")):
    token = preview_redaction(command=RedactionSelect(text="{TEXT}")).confirm_token
    done = redact(command=RedactionRun(text="{TEXT}", confirm_token=token))
    print(json.dumps([done.finds, [kept.where for kept in done.left], [kept.where for kept in done.unproven]]))
"""

NAME = "Zoë Quokkaländer"
# Lower case, slugs and the stems of the text index
NAME_FORMS = ("zoë-quokkaländer", "zoë quokkaländer", "zoe-quokkalander", "quokkaländer", "quokkaland")
WRITE_NAMES = f"""
import tempfile
from pathlib import Path
from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.importing import import_markdown
with use_store(project_store("alpha"), create=True), tempfile.TemporaryDirectory() as folder:
    Path(folder, "people.md").write_text("# {NAME}\\n\\nKeeps the keys.\\n")
    import_markdown(directory=Path(folder))
    for number in range(40):
        write_memory(command=MemoryWrite(title=f"Ask {NAME} {{number}}", content=f"{{number}}", tags=["{NAME}"]))
    write_memory(command=MemoryWrite(title="Link", content="see decisions/zoe-quokkalander.md"))
    record_decision(command=DecisionRecord(title="{NAME}", chosen="Call", rationale="It is quicker"))
    print(json.dumps(None))
"""

BACK_UP = """
from memoryhub.core.backends.selected import stores
from memoryhub.ops.backups.service import export_store
with use_store(project_store("alpha")) as store:
    export_store()
    stores.back_up(store, reason="before-upgrade")
print(json.dumps(None))
"""
WIPE = """
from memoryhub.core.log.erase import wipe_free_space
with use_store(project_store("alpha")):
    print(json.dumps(wipe_free_space()))
"""


@needs("postgresql")
class ServerTests(TestCase):
    def test_the_role_of_the_hub_is_no_superuser(self) -> None:
        with shared_cluster().database() as url, psycopg.connect(url) as connection:
            role = connection.execute("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user")
            self.assertEqual(role.fetchall(), [(False, True)])


@needs("postgresql")
@tag("attack")
class RedactionTests(TestCase):
    # Its files are read, and no other test may have a transaction open in it
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cluster = cls.enterClassContext(Cluster())

    def setUp(self) -> None:
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory()), "home")
        self.database = self.cluster.create_database()
        self.addCleanup(self.cluster.drop_database, self.database)
        self.url = self.cluster.url(self.database)
        run_python(WRITE, self.home, self.url)

    def test_no_data_file_has_the_text_and_what_may_have_it_is_named(self) -> None:
        self.cluster.execute("ANALYZE", database=self.database)
        self.assertNotEqual(self.files_with_text(), [])
        finds, left, unproven = run_python(REDACT, self.home, self.url)
        self.assertGreater(finds, 26)
        self.assertEqual(left, [])
        self.assertEqual(self.files_with_text(), [])
        self.assertEqual(unproven, ["the server's write-ahead log", "base backups and dumps of the server"])

    def test_no_data_file_has_a_name_that_was_derived_from_the_text(self) -> None:
        run_python(WRITE_NAMES, self.home, self.url)
        self.cluster.execute("ANALYZE", database=self.database)
        before = {form: self.files_with_text(form) for form in NAME_FORMS}
        self.assertTrue(all(before.values()), before)
        _, left, _ = run_python(REDACT.replace(TEXT, NAME), self.home, self.url)
        self.assertEqual(left, [])
        self.assertEqual({form: self.files_with_text(form) for form in NAME_FORMS}, {form: [] for form in NAME_FORMS})
        homes = [path.name for path in self.home.rglob("*") if path.is_file()]
        self.assertFalse([name for name in homes if "quokka" in name])

    def test_rows_that_an_open_transaction_keeps_are_named_and_removed_later(self) -> None:
        for where in (self.database, "postgres"):
            with self.subTest(database=where), psycopg.connect(self.cluster.url(where)) as other:
                other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                other.execute("SELECT pg_current_xact_id()")
                run_python(WRITE, self.home, self.url)
                _, left, _ = run_python(REDACT, self.home, self.url)
                self.assertEqual(left, ["deleted rows of the server's data files"])
                self.assertNotEqual(self.files_with_text(), [])
            self.assertIs(run_python(WIPE, self.home, self.url), True)
            self.assertEqual(self.files_with_text(), [])

    def test_compressed_copies_in_the_home_are_named(self) -> None:
        run_python(BACK_UP, self.home, self.url)
        _, left, _ = run_python(REDACT, self.home, self.url)
        self.assertEqual(sorted(Path(where).suffix for where in left), [".bundle", ".gz"])

    def files_with_text(self, text: str = TEXT) -> list[str]:
        """Return the files of the whole server, but for its write-ahead log, that contain the text."""
        self.cluster.execute("CHECKPOINT")
        files = (path for path in self.cluster.data.rglob("*") if path.is_file() and "pg_wal" not in path.parts)
        return sorted(path.name for path in files if text.encode() in path.read_bytes())
