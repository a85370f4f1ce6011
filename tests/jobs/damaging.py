"""Base of the tests of damaged stores: a store with a backup, and what came after it."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing, suppress
from io import StringIO
from typing import Any

from django.core.management import call_command

from memories import services
from memories.schemas import MemoryUpdate, MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store
from memoryhub.ops.backups.making import back_up_store
from tests.pages import page_map
from tests.support import HubTestCase, forget_all_stores

ALPHA = project_store("alpha")


class DamageTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            written = [
                services.write_memory(
                    command=MemoryWrite(title=f"m{number}", content=f"text {number} " * 120, tags=["a", f"t{number}"])
                ).id
                for number in range(60)
            ]
            rows.execute("CREATE TABLE junk (content)")
            rows.execute("INSERT INTO junk SELECT zeroblob(5000) FROM raw_events")
            rows.execute("DROP TABLE junk")
            self.backup = back_up_store().path
            for memory_id in written[:5]:
                services.update_memory(command=MemoryUpdate(id=memory_id, content=f"after the backup {memory_id}"))
            self.written = log.head(), log.table_digests()
        self.close()
        self.pages = page_map(path_of(ALPHA))
        self.whole = path_of(ALPHA).read_bytes()

    def close(self) -> None:
        forget_all_stores()
        for end in ("-wal", "-shm"):
            path_of(ALPHA).with_name(f"events.db{end}").unlink(missing_ok=True)

    def put_whole_file_back(self) -> None:
        self.close()
        path_of(ALPHA).write_bytes(self.whole)

    def change(self, *statements: str) -> None:
        with closing(sqlite3.connect(path_of(ALPHA))) as connection:
            connection.execute("PRAGMA writable_schema=ON")
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def doctor(self) -> list[dict[str, Any]]:
        forget_all_stores()
        output = StringIO()
        with suppress(SystemExit):
            call_command("doctor", "--json", "--project", "alpha", stdout=output, stderr=StringIO())
        found: list[dict[str, Any]] = json.loads(output.getvalue())
        return found

    def run_proposed(self, repair: str) -> None:
        command = re.search(r"`memory-hub ([^`]+)`", repair)
        assert command, repair
        try:
            call_command(*shlex.split(command[1]), stdout=StringIO(), stderr=StringIO())
        except SystemExit as ended:
            self.assertIn(ended.code, (0, 12), repair)  # 12: a table came out different

    def assert_repaired(self) -> None:
        forget_all_stores()
        with self.store("alpha", create=False):
            self.assertEqual((log.head(), log.table_digests()), self.written)
            self.assertTrue(log.verify().ok, log.verify().reason)
            self.assertTrue(log.rebuild().identical)
        self.assertEqual(self.doctor(), [])
