"""What a redaction leaves in the files of a PostgreSQL server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import TestCase

import psycopg
from django.test import tag

from tests.postgres.machines import run_python
from tests.postgresql import Cluster
from tests.programs import needs

TEXT = "heron-4711-velvet"
WRITE = f"""
import json
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.stores.store import project_store, use_store
with use_store(project_store("alpha"), create=True):
    for number in range(40):
        text = "{TEXT}" if number % 3 else "harmless"

        write_memory(command=MemoryWrite(title=f"{{text}} {{number}}", content=f"about {{text}}, {{number}}"))
    print(json.dumps(None))
"""
REDACT = f"""
import json
from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memoryhub.core.stores.store import project_store, use_store
with use_store(project_store("alpha")):
    token = preview_redaction(command=RedactionSelect(text="{TEXT}")).confirm_token
    done = redact(command=RedactionRun(text="{TEXT}", confirm_token=token))
    print(json.dumps([done.finds, [kept.where for kept in done.left], [kept.where for kept in done.unproven]]))
"""


NAME = "Zoë Quokkaländer"
# Lower case, slugs and the stems of the text index
NAME_FORMS = ("zoë-quokkaländer", "zoë quokkaländer", "zoe-quokkalander", "quokkaländer", "quokkaland")
WRITE_NAMES = f"""
import json, os, tempfile
from pathlib import Path
from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.importing import import_markdown
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.stores.store import project_store, use_store
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
import json
from memoryhub.core.backends.selected import stores
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.ops.backups.exporting import export_store
with use_store(project_store("alpha")) as store:
    export_store()
    stores.back_up(store, reason="before-upgrade")
print(json.dumps(None))
"""
WIPE = """
import json
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.core.stores.wiping import wipe_free_space
with use_store(project_store("alpha")):
    print(json.dumps(wipe_free_space()))
"""


@needs("postgresql")
@tag("attack")
class RedactionTests(TestCase):
    def setUp(self) -> None:
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory()), "home")
        self.cluster = self.enterContext(Cluster())
        self.database = self.cluster.create_database()
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
