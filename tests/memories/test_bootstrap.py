from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import call_command

from memories import bootstrap, selectors, services
from memories.bootstrap import Done, guidelines, load_guidelines, remove_guidelines
from memories.models import KIND_MODELS, Memory
from memories.schemas import MemoryDelete, MemoryGet, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.vocabulary import PREDEFINED
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import ConfirmationRequired
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, use_store
from tests.support import HubTestCase

MANAGE = Path(__file__).parents[2] / "manage.py"
RULE = "Keep times in UTC"


class BootstrapTestCase(HubTestCase):
    def loaded(self) -> dict[str, Done]:
        return {outcome.name: outcome.done for outcome in load_guidelines()}

    def removed(self) -> dict[str, Done]:
        return {outcome.name: outcome.done for outcome in remove_guidelines()}

    def names(self) -> set[str]:
        with use_store(GLOBAL_STORE):
            return set(KIND_MODELS["guideline"].objects.live().values_list("title", flat=True))

    def act(self, service: Any, schema: Any, **fields: Any) -> None:
        with use_store(GLOBAL_STORE), use_origin(source="mcp", actor="ada"):
            memory = Memory.objects.get(title=RULE)
            service(command=schema(id=memory.id, scope="global", **fields))

    def head(self) -> int:
        with use_store(GLOBAL_STORE):
            return log.head()[0]


class DataTests(BootstrapTestCase):
    def test_every_guideline_is_whole(self):
        found = guidelines().values()
        self.assertEqual(len(found), 13)
        for item in found:
            attributes: dict[str, Any] = item.attributes
            self.assertTrue(
                attributes["rationale"] and attributes["examples"]["good"] and attributes["examples"]["bad"]
            )
            self.assertTrue(set(item.tags) <= set(PREDEFINED), item.tags)
            self.assertTrue(item.tags and item.type)
        self.assertEqual(len({memory.title for memory in found}), len(found))

    def test_no_guideline_looks_like_a_secret(self):
        load_guidelines()
        with use_store(GLOBAL_STORE):
            kept = {row.title: (row.content, row.attributes) for row in KIND_MODELS["guideline"].objects.all()}
        self.assertEqual(kept, {value.title: (value.content, value.attributes) for value in guidelines().values()})


class LoadTests(BootstrapTestCase):
    def test_a_project_inherits_the_guidelines(self):
        self.assertEqual(set(self.loaded().values()), {Done.ADDED})
        with self.store("alpha"):
            found = selectors.get_memories(command=MemoryGet(name=RULE))[0]
        self.assertEqual((found["scope"], found["kind"], found["author"]), ("global", "guideline", bootstrap.ACTOR))
        self.assertEqual(found["attributes"]["priority"], 65)

    def test_loading_again_changes_nothing(self):
        load_guidelines()
        before = self.head()
        self.assertEqual(set(self.loaded().values()), {Done.UNCHANGED})
        self.assertEqual(self.head(), before)

    def test_an_edited_guideline_is_kept(self):
        load_guidelines()
        self.act(services.update_memory, MemoryUpdate, content="Keep times in Zurich's time.")
        self.assertEqual(self.loaded()[RULE], Done.EDITED)
        with use_store(GLOBAL_STORE):
            self.assertIn("Zurich", Memory.objects.get(title=RULE).content)

    def test_an_existing_guideline_of_the_same_name_is_kept(self):
        with use_store(GLOBAL_STORE, create=True), use_origin(actor="ada"):
            mine = MemoryWrite(title=RULE, content="Mine.", kind="guideline", scope="global")
            services.write_memory(command=mine)
        for _ in range(2):
            self.assertEqual(self.loaded()[RULE], Done.TAKEN)
        self.assertNotIn(RULE, self.removed())
        with use_store(GLOBAL_STORE):
            self.assertEqual(Memory.objects.get(title=RULE).content, "Mine.")

    def test_a_new_text_replaces_an_unedited_guideline(self):
        load_guidelines()
        better = {**guidelines()}
        key = next(key for key, item in better.items() if item.title == RULE)
        better[key] = better[key].model_copy(update={"content": "Keep them in UTC, always."})
        with mock.patch.object(bootstrap, "guidelines", lambda: better):
            done = self.loaded()
        self.assertEqual((done.pop(RULE), set(done.values())), (Done.RENEWED, {Done.UNCHANGED}))
        with use_store(GLOBAL_STORE):
            self.assertEqual(Memory.objects.get(title=RULE).content, "Keep them in UTC, always.")


class RemoveTests(BootstrapTestCase):
    def test_removing_without_a_global_store_creates_none(self):
        self.assertEqual(self.removed(), {})
        self.assertFalse(stores.exists(GLOBAL_STORE))

    def test_removed_guidelines_are_restored_with_their_ids(self):
        first = {outcome.name: outcome.id for outcome in load_guidelines()}
        self.assertEqual(set(self.removed().values()), {Done.REMOVED})
        self.assertEqual((self.names(), self.removed()), (set(), {}))
        again = load_guidelines()
        self.assertEqual({entry.name: entry.id for entry in again}, first)
        self.assertEqual({item.done for item in again}, {Done.RESTORED})

    def test_an_edited_guideline_is_not_removed_but_reported(self):
        load_guidelines()
        self.act(services.update_memory, MemoryUpdate, tags=["mine"])
        done = self.removed()
        self.assertEqual((done.pop(RULE), set(done.values())), (Done.EDITED, {Done.REMOVED}))
        self.assertEqual(self.names(), {RULE})

    def test_a_guideline_deleted_by_a_person_is_not_restored(self):
        load_guidelines()
        self.act(services.delete_memory, MemoryTouch)
        self.assertEqual(self.loaded()[RULE], Done.DELETED)
        self.removed()
        self.assertEqual(self.loaded()[RULE], Done.DELETED)
        self.assertNotIn(RULE, self.names())

    def test_a_guideline_erased_by_a_person_is_not_restored(self):
        load_guidelines()
        self.act(services.delete_memory, MemoryTouch)
        with self.assertRaises(ConfirmationRequired) as asked:
            self.act(services.delete_memory, MemoryDelete, permanent=True)
        token = asked.exception.data["confirm_token"]
        self.act(services.delete_memory, MemoryDelete, permanent=True, confirm_token=token)
        self.assertEqual(self.loaded()[RULE], Done.DELETED)
        self.assertNotIn(RULE, self.names())


class CommandTests(BootstrapTestCase):
    def run_process(self) -> list[str]:
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        command = [sys.executable, str(MANAGE), "bootstrap"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def run_command(self, *arguments: str) -> list[str]:
        output = StringIO()
        call_command("bootstrap", *arguments, stdout=output)
        return output.getvalue().splitlines()

    def test_the_command_reports_what_it_did(self):
        first = self.run_process()
        self.assertEqual(len(first), 14)
        self.assertRegex(first[0], r"^global#1 Never write secrets down: added$")
        self.assertEqual(first[-1], "guidelines in the global scope: 13 added")
        self.assertEqual(self.run_command(), ["guidelines in the global scope: 13 unchanged"])
        self.act(services.update_memory, MemoryUpdate, content="Mine.")
        removed = self.run_command("--remove")
        self.assertIn(f"{RULE}: kept, edited since", "\n".join(removed))
        self.assertEqual(removed[-1], "guidelines in the global scope: 12 removed; 1 kept, edited since")
