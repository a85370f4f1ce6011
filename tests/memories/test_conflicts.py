from __future__ import annotations

import difflib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import SimpleTestCase, tag
from hypothesis import given
from hypothesis import strategies as st

from memories import selectors, services
from memories.admin.comparing import history_of, sides
from memories.diff import compare, marked_diff, merge_texts
from memories.models import Conflict, Memory, MemoryVersion
from memories.schemas import (
    ConflictResolve,
    ConflictResult,
    MemoryList,
    WriteResult,
    WriteStatus,
)
from memories.schemas.query import ConflictGet, ConflictList, ConflictSettle
from memories.selectors import versions_of
from memories.selectors.versions import MAX_DIFF, conflict_text, get_conflict, list_conflicts
from memories.tools import resolved_text
from memoryhub.core import clock, errors, log
from memoryhub.core.errors import NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.schemas import Listing
from tests.home import UNMEASURED
from tests.memories.base import MemoriesTestCase, QueryTestCase, pages

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class ConflictsTestCase(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.now = NOON
        self.memory_id = self.write("Port", "The hub listens on 8321.")

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def revise(self, actor: str, content: str, base: int | None = 1, **fields: object) -> WriteResult:
        with clock.frozen(self.now), use_origin(actor=actor):
            return self.update(self.memory_id, base_version=base, content=content, **fields)

    def at_once(self) -> int:
        self.revise("ada", "It listens on 9000.")
        self.later(1)
        result = self.revise("bob", "It listens on 7000.")
        assert result.conflict is not None
        return result.conflict

    def memory(self) -> dict[str, Any]:
        return self.get(self.memory_id, versions=True)

    def settle(self, conflict: int, resolution: str, **fields: Any) -> ConflictResult:
        command = ConflictResolve.model_validate({"id": conflict, "resolution": resolution, **fields})
        with use_origin(actor="eve"):
            return services.resolve_conflict(command=command)


class DetectionTests(ConflictsTestCase):
    @tag("backend")
    def test_both_versions_are_kept_and_the_later_is_flagged(self):
        self.revise("ada", "It listens on 9000.", tags=["net"])
        self.later(1)
        result = self.revise("bob", "It listens on 7000.")
        self.assertEqual((result.status, result.version), (WriteStatus.CONFLICT, 3))
        versions = MemoryVersion.objects.order_by("version").values_list("version", "base_version", "conflicts_with")
        self.assertEqual(list(versions), [(1, None, None), (2, 1, None), (3, 1, 2)])
        conflict = Conflict.objects.get()
        self.assertEqual((conflict.id, conflict.resolution), (result.conflict, ""))
        memory = self.memory()
        self.assertEqual((memory["content"], memory["tags"]), ("It listens on 7000.", []), "the tags that bob read")
        self.revise("cyd", "It listens on 5000.")
        pairs = Conflict.objects.order_by("id").values_list("version_a", "version_b")
        self.assertEqual(list(pairs), [(2, 3), (3, 4)])

    @tag("backend")
    def test_after_the_window_the_later_write_is_refused(self):
        self.revise("ada", "It listens on 9000.")
        with self.assertRaises(errors.PreconditionFailed):
            self.revise("bob", "It listens on 7000.", must_be_current=True)
        self.later(5)
        with self.assertRaisesRegex(errors.PreconditionFailed, "at version 2, but you read version 1"):
            self.revise("bob", "It listens on 7000.")
        self.assertFalse(Conflict.objects.exists())
        with mock.patch.dict("os.environ", MEMORY_HUB_CONFLICT_WINDOW_SECONDS="30"):
            self.assertEqual(self.revise("bob", "It listens on 7000.").status, WriteStatus.CONFLICT)

    def test_an_equal_write_or_one_from_the_current_or_no_version_makes_no_conflict(self):
        self.revise("ada", "It listens on 9000.")
        for content, base, status in (
            ("It listens on 9000.", 1, WriteStatus.UNCHANGED),
            ("It listens on 7000.", 2, WriteStatus.UPDATED),
            ("It listens on 6000.", None, WriteStatus.UPDATED),
        ):
            self.assertEqual(self.revise("bob", content, base=base).status, status, content)

    def test_every_answer_with_the_memory_names_the_conflict_until_it_is_resolved(self):
        conflict = self.at_once()
        for expected in ([conflict], []):
            hit = self.search("port").results[0]
            listed = selectors.list_memories(command=MemoryList()).results[0]
            for answer in (self.memory(), hit, listed):
                self.assertEqual(answer["conflicts"], expected)
            if expected:
                self.settle(conflict, "keep_b")


class ResolutionTests(ConflictsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.conflict = self.at_once()

    def test_a_conflict_is_resolved_once_by_the_earlier_the_later_or_a_merged_text(self):
        merged = "It listens on 9000, behind 7000."
        for resolution, fields, version, content in (
            ("keep_b", {}, 3, "It listens on 7000."),
            ("keep_a", {"reason": "Ada measured it"}, 4, "It listens on 9000."),
            ("merge", {"content": merged}, 4, merged),
        ):
            with self.subTest(resolution):
                self.memory_id = self.write(f"Port {resolution}", f"{resolution}: the hub listens on 8321.")
                conflict = self.at_once()
                result = self.settle(conflict, resolution, **fields)
                self.assertEqual((result.version, self.memory()["content"]), (version, content))
                resolved = Conflict.objects.get(id=conflict)
                self.assertEqual((resolved.resolution, resolved.resolved_by), (resolution, "eve"))
                self.assertEqual(resolved.reason, fields.get("reason", ""))
                if version == 4:
                    reason = fields.get("reason", f"conflict #{conflict}: {resolution}")
                    self.assertEqual(self.memory()["versions"][0]["reason"], reason)
                with self.refuses(errors.ConflictError, f"was resolved with {resolution} by eve"):
                    self.settle(conflict, "keep_a")

    @tag("backend")
    def test_keeping_both_makes_the_earlier_a_memory_of_its_own(self):
        result = self.settle(self.conflict, "both", idempotency_key="k-1")
        split = Memory.objects.get(id=result.split_id)
        self.assertEqual(split.title, f"Port (version 2 of #{self.memory_id})")
        self.assertEqual((split.content, self.memory()["content"]), ("It listens on 9000.", "It listens on 7000."))
        self.assertEqual(self.settle(self.conflict, "both", idempotency_key="k-1"), result)
        self.assertIn(f"the earlier version is now #{result.split_id}", resolved_text(result))
        self.assert_rebuilds()

    def test_a_memory_of_a_session_is_split_into_one_of_the_project(self):
        for scope, split_scope in (("session", "project"), ("project", "project")):
            with self.subTest(scope), use_origin(session_id="s-1"):
                self.memory_id = self.write(f"Port of a {scope}", f"{scope}: the hub listens on 8321.", scope=scope)
                split = self.settle(self.at_once(), "both").split_id
                self.assertEqual(Memory.objects.get(id=split).scope, split_scope)

    def test_a_title_that_is_taken_is_refused(self):
        self.write("Socket", "The hub listens on a socket.")
        for resolution, fields in (("both", {}), ("merge", {"content": "9000 and 7000"})):
            with self.subTest(resolution), self.refuses(errors.ConflictError, "exists as #"):
                self.settle(self.conflict, resolution, title="Socket", **fields)

    def test_bad_calls_are_refused_and_change_nothing(self):
        refused: list[tuple[type[errors.HubError], str, dict[str, Any]]] = [
            (errors.Invalid, "needs 'content'", {"resolution": "merge"}),
            (errors.Invalid, "is for resolution merge", {"resolution": "keep_a", "content": "x"}),
            (errors.NotFound, "there is no conflict #999", {"conflict": 999, "resolution": "keep_a"}),
        ]
        for error, sentence, fields in refused:
            with self.subTest(sentence), self.refuses(error, sentence):
                self.settle(**{"conflict": self.conflict, **fields})
        self.delete(self.memory_id)
        with self.refuses(errors.Gone, "restore it first"):
            self.settle(self.conflict, "keep_a")


class VersionTests(ConflictsTestCase):
    def test_any_version_can_be_restored_and_the_history_shows_who_when_why_and_what_changed(self):
        self.assertEqual(self.restore(self.memory_id, version=1).status, WriteStatus.UNCHANGED)
        with self.assertRaisesRegex(errors.NotFound, f"#{self.memory_id} has no version 9"):
            self.restore(self.memory_id, version=9)
        self.revise("bob", "The hub listens on 9000.", change_reason="moved")
        newest = self.memory()["versions"][0]
        self.assertEqual((newest["actor"], newest["reason"], newest["base_version"]), ("bob", "moved", 1))
        self.assertEqual(newest["diff"], "The hub listens on [-8321-]{+9000+}.")
        self.assertEqual(newest["created_at"], "2026-11-20T12:00:00Z")
        result = self.restore(self.memory_id, version=1)
        self.assertEqual((result.version, self.memory()["content"]), (3, "The hub listens on 8321."))
        reasons = [version["reason"] for version in self.memory()["versions"]]
        self.assertEqual(reasons, ["version 1 restored", "moved", ""])


class ConflictListTests(QueryTestCase):
    def dispute(self, title: str = "Rule", scope: str = "project", **texts: str) -> int:
        memory_id = self.write(title, scope)
        for actor, text in (texts or {"bob": "Use tabs here.", "eve": "Use spaces here."}).items():
            with use_origin(actor=actor):
                self.update(memory_id, scope=scope, base_version=1, content=text, change_reason=f"so says {actor}")
        return memory_id

    def listed(self, **question: Any) -> Listing:
        return list_conflicts(command=ConflictList.model_validate(question))

    def test_a_conflict_shows_both_versions_with_who_when_why_and_what_differs(self):
        memory_id = self.dispute()
        self.dispute("Other")
        (item,) = self.listed(memory_id=memory_id).results
        self.assertEqual(get_conflict(command=ConflictGet(id=item["id"])), item)
        sides = [(item[side]["version"], item[side]["base_version"], item[side]["actor"]) for side in "ab"]
        self.assertEqual(sides, [(2, 1, "bob"), (3, 1, "eve")])
        self.assertEqual((item["a"]["content"], item["b"]["content"]), ("Use tabs here.", "Use spaces here."))
        text = conflict_text(item)
        self.assertIn(f"conflict #{item['id']} (open) of #{memory_id} Rule\n", text)
        self.assertIn("a: v2 from v1 ", text)
        self.assertIn(f"by eve session=s-1 event #{item['id']}: so says eve", text)
        self.assertIn("Use [-tabs-]{+spaces+} here.", text)
        with self.assertRaisesRegex(NotFound, "no conflict #99"):
            get_conflict(command=ConflictGet(id=99))

    def test_a_long_diff_is_cut_with_a_pointer_to_the_rest(self):
        self.dispute(bob="tabs " * 2_000, eve="spaces " * 2_000)
        text = conflict_text(self.listed().results[0])
        self.assertLess(len(text), MAX_DIFF + 400)
        self.assertIn("versions=true shows the rest)", text)

    def test_resolved_conflicts_are_listed_on_request_and_old_names_of_resolutions_accepted(self):
        for name, old_name, content in (
            ("keep_a", "kept_version_a", "Use tabs here."),
            ("keep_b", "kept_version_b", "Use spaces here."),
        ):
            with self.subTest(name):
                memory_id = self.dispute(f"Rule {name}")
                (item,) = self.listed().results
                command = ConflictSettle.model_validate(
                    {"id": item["id"], "resolution": old_name, "reason": "so be it"}
                )
                text = resolved_text(services.resolve_conflict(command=command))
                self.assertIn(f"resolved conflict #{item['id']} with {name}", text)
                self.assertEqual(Memory.objects.get(id=memory_id).content, content)
                self.assertEqual(self.listed().meta.total_count, 0)
                (resolved,) = self.listed(all=True, memory_id=memory_id).results
                self.assertIn(f"(resolved: {name} by ada)", conflict_text(resolved))
                self.assertEqual(resolved["reason"], "so be it")

    def test_visible_scopes_are_listed_nearest_first_in_pages(self):
        for scope in ("global", "org", "project"):
            self.dispute(f"First of {scope}", scope)
            self.dispute(f"Second of {scope}", scope)
        self.dispute("Of this session", "session")
        titles = [f"{order} of {scope}" for scope in ("project", "org", "global") for order in ("Second", "First")]
        answers = pages(self.listed, limit=2)
        self.assertEqual({answer.meta.total_count for answer in answers}, {7})
        listed = [item["title"] for answer in answers for item in answer.results]
        self.assertEqual(listed, ["Of this session", *titles])
        of_org = self.listed(scope="org").results
        self.assertEqual([item["scope"] for item in of_org], ["org", "org"])
        self.assertEqual(get_conflict(command=ConflictGet(id=of_org[0]["id"], scope="org")), of_org[0])
        with self.store("beta"):
            self.assertEqual({item["scope"] for item in self.listed().results}, {"org", "global"})


UPDATES = int(os.environ.get("MEMORY_HUB_TEST_UPDATES", "200"))
"""By each process."""
MEMORIES = 10
DEADLINE_SECONDS = 300
WRITER = """
import django, json, random, sys
django.setup()
from importlib import import_module
from memoryhub.core.backends.selected import ENGINE
base = import_module(f"memoryhub.core.backends.{ENGINE}.base")
base.BUSY_TIMEOUT_SECONDS = 60.0  # what is tested is that nothing is lost, not how long it takes
from memories.models import Memory
from memories.schemas import MemoryUpdate
from memories.services import update_memory
from memoryhub.core.errors import PreconditionFailed
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
name, count, ids = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
choose = random.Random(name).choice
with use_store(project_store("alpha")), use_origin(actor=name):
    read = dict(Memory.objects.values_list("id", "version"))
    for number in range(count):
        memory = choose(ids)
        text = f"{name} {number}"
        command = MemoryUpdate(id=memory, base_version=read[memory], content=text)
        result = update_memory(command=command)
        read = dict(Memory.objects.values_list("id", "version"))
        print(json.dumps([result.id, result.version, text, result.conflict]), flush=True)
"""


@tag("attack")
class TwoProcessesTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ids = self.write_all({f"Memory {number}": f"first {number}" for number in range(MEMORIES)})

    def spawn(self, name: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **UNMEASURED, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        # However slow the machine is, what is stale is a conflict
        environment["MEMORY_HUB_CONFLICT_WINDOW_SECONDS"] = "3600"
        command = [sys.executable, "-c", WRITER, name, str(UPDATES), json.dumps(self.ids)]
        pipe, root = subprocess.PIPE, Path(__file__).parents[2]
        return subprocess.Popen(command, env=environment, cwd=root, stdout=pipe, stderr=pipe, text=True)

    def test_no_version_is_lost_and_every_conflict_is_reported_once(self):
        acknowledged = []
        writers = [self.spawn(name) for name in ("ada", "bob")]
        for writer in writers:
            output, errors = writer.communicate(timeout=DEADLINE_SECONDS)
            self.assertEqual((writer.returncode, errors), (0, ""))
            acknowledged += [json.loads(line) for line in output.splitlines()]
        self.assertEqual(len(acknowledged), 2 * UPDATES)
        payloads = dict(RawEvent.objects.values_list("position", "payload_json"))
        versions = MemoryVersion.objects.filter(version__gt=1).values_list("memory_id", "version", "id")
        stored = [(memory, version, json.loads(payloads[event])["content"]) for memory, version, event in versions]
        self.assertEqual(sorted(stored), sorted((memory, version, text) for memory, version, text, _ in acknowledged))
        reported = [conflict for *_, conflict in acknowledged if conflict is not None]
        self.assertEqual(sorted(reported), list(Conflict.objects.order_by("id").values_list("id", flat=True)))
        self.assertGreater(len(reported), 0)
        self.assertTrue(log.verify().ok)
        self.assertEqual(sum(Memory.objects.values_list("version", flat=True)), MEMORIES + 2 * UPDATES)


@contextmanager
def _limited(case: SimpleTestCase) -> Iterator[None]:
    """Check that difflib visits at most 5 million pairs of equal tokens, in one comparison or all of a page."""
    steps, original = 0, difflib.SequenceMatcher.find_longest_match

    def find(self: Any, alo: int, ahi: int, blo: int, bhi: int) -> Any:
        nonlocal steps
        steps += sum(len(self.b2j.get(token, ())) for token in self.a[alo:ahi])
        return original(self, alo, ahi, blo, bhi)

    with mock.patch.object(difflib.SequenceMatcher, "find_longest_match", find):
        yield
    case.assertLessEqual(steps, 5_000_000)


def _letters(seed: int, separator: str = "\n", count: int = 1_500) -> str:
    return separator.join(random.Random(seed).choices("ab", k=count))


class DiffTests(SimpleTestCase):
    def test_lines_and_words_that_repeat_are_compared_within_a_limit(self) -> None:
        for separator in ("\n", " "):
            with self.subTest(separator=separator), _limited(self):
                pieces = list(compare(_letters(1, separator), _letters(2, separator)))
            if not any(piece.hidden_lines for piece in pieces):
                self.assertEqual("".join(piece.text + piece.removed for piece in pieces), _letters(1, separator))

    def test_lines_that_repeat_are_merged_within_a_limit(self) -> None:
        with _limited(self):
            merge_texts(_letters(1), _letters(2), _letters(3))

    def test_long_documents_are_still_compared(self) -> None:
        lines = [line for number in range(1_000) for line in (f"paragraph {number}\n", "\n")]
        changed = [*lines[:900], "one more\n", *lines[900:]]
        self.assertEqual(marked_diff("".join(lines), "".join(changed)).count("{+"), 1)


class VersionDiffTests(MemoriesTestCase):
    def test_a_history_is_compared_within_one_limit_and_two_versions_without_the_others(self) -> None:
        memory_id = self.write("A text", _letters(0))
        for seed in range(1, 4):
            self.update(memory_id, content=_letters(seed))
        with _limited(self):
            versions_of([memory_id])
        with mock.patch("memories.selectors.versions.marked_diff") as compared:
            newest, *_, oldest = history_of(Memory.objects.get(id=memory_id))
        sides(oldest, newest)
        compared.assert_not_called()


texts = st.lists(st.sampled_from(["one two\n", "three\n", "four five six\n", "\n"]), max_size=6).map("".join)


class MergeTests(SimpleTestCase):
    def test_changes_are_merged_by_lines_and_words_and_conflicting_lines_both_kept(self) -> None:
        for base, first, second, merged in (
            ("1\n2\n3\n", "one\n2\n3\n", "1\n2\nthree\n", "one\n2\nthree\n"),
            ("take red now\n", "take blue now\n", "take red later\n", "take blue later\n"),
            (
                "retry three times\nwait\n",
                "retry five times\nwait\n",
                "retry four times\nwait 1 s\n",
                "retry five times\nretry four times\nwait 1 s\n",
            ),
            ("", "one", "two", "one\ntwo"),
        ):
            with self.subTest(base):
                self.assertEqual(merge_texts(base, first, second), merged)

    @given(texts, texts)
    def test_an_unchanged_side_is_ignored(self, base: str, changed: str) -> None:
        self.assertEqual(merge_texts(base, base, changed), changed)
        self.assertEqual(merge_texts(base, changed, base), changed)
        self.assertEqual(merge_texts(base, changed, changed), changed)
