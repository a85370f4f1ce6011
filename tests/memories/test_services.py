from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import tag

from memories import services
from memories.importing import import_markdown
from memories.models import KIND_MODELS, Memory
from memories.pack import pack_context
from memories.present import write_text
from memories.schemas import (
    IfExists,
    MemoryWrite,
    WriteResult,
    WriteStatus,
)
from memories.schemas.query import ContextPackRequest
from memoryhub.core import clock, log
from memoryhub.core.errors import Conflict, Gone, Invalid, NotFound, PreconditionFailed
from tests.memories.base import MemoriesTestCase


class ServicesTestCase(MemoriesTestCase):
    def written(self, title: str = "Use WAL", content: str = "Readers never block.", **fields: Any) -> WriteResult:
        return super().written(title, content, **fields)


class WriteTests(ServicesTestCase):
    def test_a_new_memory_is_created_at_version_one(self):
        result = self.written(tags=["SQLite", "wal ", "wal"])
        memory = Memory.objects.get(id=result.id)
        self.assertEqual((result.status, memory.version, memory.tags), (WriteStatus.CREATED, 1, ["sqlite", "wal"]))
        self.assertEqual(memory.author, "ada")

    def test_identical_content_is_counted(self):
        first = self.written("One", "the  same\ntext")
        again = self.written("Two", "the same text")
        self.assertEqual((again.id, again.status), (first.id, WriteStatus.SEEN))
        self.assertEqual(Memory.objects.get().seen_count, 2)

    def test_a_taken_title_is_a_conflict_that_names_the_memory(self):
        first = self.written()
        with self.refuses(Conflict, "exists as #1; update it") as refused:
            self.written(content="other")
        self.assertEqual(refused.exception.data["id"], first.id)

    def test_if_exists_update_makes_a_version(self):
        self.written(tags=["a"])
        result = self.written(content="other", if_exists=IfExists.UPDATE)
        memory = Memory.objects.get()
        self.assertEqual((result.status, result.version, memory.content), (WriteStatus.UPDATED, 2, "other"))
        self.assertEqual(memory.tags, ["a"], "what was not said stays")

    def test_if_exists_keep_changes_nothing(self):
        self.written()
        result = self.written(content="other", if_exists=IfExists.KEEP)
        self.assertEqual((result.status, Memory.objects.get().content), (WriteStatus.KEPT, "Readers never block."))
        self.assertEqual(log.head()[0], 1)

    def test_a_topic_is_one_memory_that_is_revised(self):
        first = self.written("Plan", "first", topic_key="plan")
        second = self.written("Plan, new", "second", topic_key="plan")
        same = self.written("Plan, new", "second", topic_key="plan")
        self.assertEqual((second.id, second.status), (first.id, WriteStatus.UPDATED))
        self.assertEqual(same.status, WriteStatus.UNCHANGED)
        self.assertEqual(log.head()[0], 2)

    def test_topics_with_the_same_text_stay_apart(self):
        first, second = self.written("A", "same", topic_key="a"), self.written("B", "same", topic_key="b")
        self.assertNotEqual(first.id, second.id)

    def test_a_batch_detects_its_own_duplicates(self):
        commands = [MemoryWrite(title="T", content=text, topic_key="t") for text in ("one", "two", "two")]
        results = services.write_memories(commands=commands)
        statuses = [result.status for result in results]
        self.assertEqual(statuses, [WriteStatus.CREATED, WriteStatus.UPDATED, WriteStatus.UNCHANGED])

    def test_a_batch_costs_few_queries(self):
        commands = [MemoryWrite(title=f"T{number}", content=f"text {number}") for number in range(50)]
        with self.assertNumQueries(2, using="store:project:alpha"):  # BEGIN and its end; the rest goes past Django
            services.write_memories(commands=commands)

    def test_a_deleted_memory_frees_its_title(self):
        first = self.written()
        self.delete(first.id)
        self.assertEqual(self.written().status, WriteStatus.CREATED)


class UpdateTests(ServicesTestCase):
    def test_only_given_fields_change_and_the_history_is_complete(self):
        memory = self.written(tags=["a"])
        self.update(memory.id, content="Writers do.", change_reason="measured")
        found = self.get(memory.id, versions=True)
        self.assertEqual((found["title"], found["content"], found["tags"]), ("Use WAL", "Writers do.", ["a"]))
        contents = [version["content"] for version in found["versions"]]
        self.assertEqual(contents, ["Writers do.", "Readers never block."])
        self.assertEqual([version["reason"] for version in found["versions"]], ["measured", ""])

    def test_an_old_base_is_refused_and_the_present_version_named(self):
        memory = self.written()
        self.update(memory.id, base_version=1, content="two")
        later = clock.frozen(clock.now() + timedelta(seconds=6))
        with later, self.refuses(PreconditionFailed, "version 2, but you read version 1") as refused:
            self.update(memory.id, base_version=1, content="three")
        self.assertEqual(refused.exception.data["version"], 2)

    def test_a_change_that_changes_nothing_makes_no_version(self):
        memory = self.written()
        result = self.update(memory.id, content="Readers never block.")
        self.assertEqual((result.status, log.head()[0]), (WriteStatus.UNCHANGED, 1))

    def test_tags_can_be_emptied(self):
        memory = self.written(tags=["a"])
        self.update(memory.id, tags=[])
        self.assertEqual(Memory.objects.get().tags, [])
        self.assertFalse(Memory.objects.all().tagged("a").exists())

    def test_a_title_of_another_memory_is_refused(self):
        self.written("Taken", "1")
        memory = self.written("Mine", "2")
        with self.refuses(Conflict, "exists as #1"):
            self.update(memory.id, title="Taken")

    def test_an_unknown_or_deleted_memory_is_refused(self):
        with self.refuses(NotFound, "no memory #9"):
            self.update(9, content="x")
        memory = self.written()
        self.delete(memory.id)
        with self.refuses(Gone, "restore it first"):
            self.update(memory.id, content="x")


class DeleteAndRestoreTests(ServicesTestCase):
    def test_deleted_memories_leave_lists_and_come_back(self):
        memory = self.written()
        self.delete(memory.id, reason="wrong")
        self.assertFalse(Memory.objects.live().exists())
        with self.refuses(Gone, "restore"):
            self.get(memory.id)
        self.restore(memory.id)
        self.assertTrue(Memory.objects.live().exists())

    def test_deleting_twice_is_refused(self):
        memory = self.written()
        self.delete(memory.id)
        with self.refuses(Gone, "deleted"):
            self.delete(memory.id)

    def test_restoring_a_live_memory_or_a_taken_title_is_refused(self):
        memory = self.written(topic_key="t")
        with self.refuses(Conflict, "not deleted"):
            self.restore(memory.id)
        self.delete(memory.id)
        rival = self.written("Other", "text", topic_key="t")
        with self.refuses(Conflict, "has taken the topic") as refused:
            self.restore(memory.id)
        self.assertEqual(refused.exception.data["id"], rival.id)


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class KindsTestCase(MemoriesTestCase):
    def make(self, kind: str, title: str = "Thing", **fields: Any) -> WriteResult:
        return self.written(title, **{"content": f"About {title}.", "kind": kind, **fields})


class AttributeTests(KindsTestCase):
    def test_a_guideline_has_priority_rationale_and_examples(self):
        own = {"priority": 90, "rationale": "readers", "examples": {"good": ["f()"], "bad": ["x = f()"]}}
        written = self.make("guideline", type="code_style", attributes=own)
        found = self.get(written.id)
        self.assertEqual((found["kind"], found["type"], found["attributes"]), ("guideline", "code_style", own))
        self.assertEqual(KIND_MODELS["guideline"].objects.get().priority, 90)

    def test_missing_attributes_have_defaults_in_lists_but_are_not_stored(self):
        written = self.make("guideline")
        self.assertEqual(
            (KIND_MODELS["guideline"].objects.get().priority, self.get(written.id)["attributes"]), (50, {})
        )
        self.assertEqual(self.get(written.id)["type"], "general")

    def test_a_tool_has_parameters_that_are_a_json_schema(self):
        schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        written = self.make("tool", type="cli", attributes={"parameters": schema, "constraints": "read only"})
        self.assertEqual(self.get(written.id)["attributes"]["parameters"], schema)
        self.assertEqual(KIND_MODELS["tool"].objects.count(), 1)

    @tag("backend")
    def test_knowledge_has_confidence_and_an_expiry(self):
        self.make("knowledge", attributes={"confidence": 0.4, "valid_until": "2027-01-01T00:00:00+01:00"})
        found = KIND_MODELS["knowledge"].objects.get()
        self.assertEqual((found.confidence, found.valid_until), (0.4, datetime(2026, 12, 31, 23, tzinfo=UTC)))

    def test_an_observation_may_name_pieces_of_code(self):
        written = self.make("observation", attributes={"related_chunks": ["c-1"]})
        self.assertEqual(self.get(written.id)["attributes"], {"related_chunks": ["c-1"]})

    def test_bad_attributes_and_types_are_refused_in_one_sentence_and_write_nothing(self):
        refused: dict[str, tuple[dict[str, Any], str]] = {
            "priority": (
                {"kind": "guideline", "attributes": {"priority": 101}},
                "less than or equal to 100|at most 100",
            ),
            "unknown": ({"kind": "guideline", "attributes": {"prio": 1}}, "has no attribute 'prio'; it has: priority"),
            "other kind's": ({"kind": "tool", "attributes": {"priority": 1}}, "has no attribute 'priority'"),
            "schema": (
                {"kind": "tool", "attributes": {"parameters": {"type": "strin"}}},
                "not a valid JSON schema at type",
            ),
            "confidence": ({"kind": "knowledge", "attributes": {"confidence": 2}}, "confidence"),
            "time": ({"kind": "knowledge", "attributes": {"valid_until": "soon"}}, "valid_until"),
            "type": ({"kind": "tool", "type": "poem"}, "'type' must be one of mcp, cli, function, api"),
            "size": ({"kind": "tool", "attributes": {"examples": ["x" * 9_000] * 8}}, "longer than 50,000 characters"),
        }
        for name, (fields, sentence) in refused.items():
            with self.subTest(name), self.assertRaisesRegex(Invalid, sentence):
                self.make(**fields)
        self.assertEqual(log.head()[0], 0)

    def test_an_update_replaces_named_attributes_and_null_removes_one(self):
        written = self.make("guideline", attributes={"priority": 10, "rationale": "old"})
        change = {"rationale": None, "priority": 20}
        self.update(written.id, attributes=change)
        self.assertEqual(self.get(written.id)["attributes"], {"priority": 20})
        with self.assertRaisesRegex(Invalid, "has no attribute 'confidence'"):
            self.update(written.id, attributes={"confidence": 1})

    def test_secrets_in_attributes_are_replaced(self):
        token = "ghp_" + "a1B2" * 9
        written = self.make("tool", attributes={"constraints": f"send {token}", "examples": [{"auth": token}]})
        self.assertTrue(written.redacted)
        self.assertNotIn(token, str(self.get(written.id)))

    def test_rationale_and_constraints_are_found(self):
        self.make("guideline", title="Names", attributes={"rationale": "strangers read zebras"})
        self.make("tool", title="Lint", attributes={"constraints": "giraffes only"})
        for word, title in {"zebras": "Names", "giraffes": "Lint"}.items():
            found = self.search(word).results
            self.assertEqual([hit["title"] for hit in found], [title])

    @tag("backend")
    def test_a_rebuild_gives_the_same_rows(self):
        self.make("guideline", attributes={"priority": 3})
        self.make("knowledge", attributes={"valid_until": "2027-01-01"})
        self.assertTrue(log.rebuild().identical)


class NameTests(KindsTestCase):
    @tag("backend")
    def test_a_name_is_unique_within_its_kind(self):
        first = self.make("guideline", title="Deploy")
        self.make("tool", title="Deploy", content="Another text.")
        with self.assertRaisesRegex(Conflict, f"guideline 'Deploy' of scope project exists as #{first.id}") as caught:
            self.make("guideline", title="Deploy", content="Third text.")
        self.assertEqual(caught.exception.data["id"], first.id)

    def test_the_same_text_is_another_memory_in_another_kind(self):
        self.make("guideline", content="Same.")
        self.assertEqual(self.make("knowledge", content="Same.").status, WriteStatus.CREATED)
        self.assertEqual(self.make("guideline", title="Other", content="Same.").status, WriteStatus.SEEN)

    def test_a_topic_keeps_its_kind(self):
        self.make("guideline", topic_key="ci")
        with self.assertRaisesRegex(Conflict, "topic 'ci' belongs to the guideline #1; write it with kind=guideline"):
            self.make("observation", title="CI", topic_key="ci")

    def test_a_topic_written_again_keeps_the_type_and_attributes_that_are_not_named(self):
        self.make("guideline", topic_key="ci", type="testing", attributes={"priority": 70})
        self.make("guideline", topic_key="ci", content="Shorter.")
        found = Memory.objects.get()
        self.assertEqual((found.type, found.priority, found.content, found.version), ("testing", 70, "Shorter.", 2))


class ExpiryTests(KindsTestCase):
    def test_expired_knowledge_is_marked_and_ranked_lower(self):
        with clock.frozen(NOON):
            until = (NOON + timedelta(hours=1)).isoformat()
            old = self.make("knowledge", title="Port of the hub", attributes={"valid_until": until})
            self.make("knowledge", title="Port of the hub now", content="It has a port, and words beside it.")
            best = self.search("port of the hub").results[0]
            self.assertEqual((best["id"], self.get(old.id)["expired"]), (old.id, False))
        with clock.frozen(NOON + timedelta(hours=2)):
            found = self.search("port of the hub").results
            self.assertEqual([hit["id"] == old.id for hit in found], [False, True])
            self.assertTrue(self.get(old.id)["expired"])


LONG = (
    "The store retries with jitter because transactions that wait in line for SQLite's write lock are woken in bursts; "
    "exponential backoff starved the slowest writer for seconds in the measurements."
)


class SimilarTests(MemoriesTestCase):
    def similar(self, title: str, content: str) -> list[int]:
        return [item.id for item in self.written(title, content).similar]

    def test_a_similar_text_is_named_and_nothing_is_merged(self):
        first = self.written("Fair waiting", LONG)
        again = self.written("Waiting fairly", LONG.replace("for seconds", "a long time"))
        self.assertEqual([item.id for item in again.similar], [first.id])
        self.assertGreater(again.similar[0].alike, 0.7)
        self.assertNotEqual(again.id, first.id)
        self.assertIn(f"; #{first.id} is nearly the same: Fair waiting", write_text(again))

    def test_a_text_that_shares_some_words_is_not_named(self):
        self.written("Fair waiting", LONG)
        self.assertEqual(
            self.similar("Exponential backoff", "Transactions and measurements of another thing, by far."), []
        )

    def test_a_deleted_memory_is_not_named(self):
        first = self.written("Fair waiting", LONG)
        self.delete(first.id)
        self.assertEqual(self.similar("Waiting fairly", LONG + " Again."), [])

    def test_words_that_are_operators_break_nothing(self):
        self.written("Operators", 'AND OR NOT NEAR "quoted" title:body (paren) star* - minus ^caret')
        self.assertEqual(self.similar("Few", 'NOT "AND" OR'), [])

    def test_another_project_is_never_named(self):
        self.written("Fair waiting", LONG)
        with self.store("beta"):
            self.assertEqual(self.similar("Waiting fairly", LONG + " Again."), [])


class ToldTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(5):
            self.written(f"Fact {number}", f"The number of this fact is {number}.")
        self.pack = pack_context(command=ContextPackRequest()).text

    def refuses_text(self, content: str) -> None:
        with self.refuses(Invalid, "comes from a Memory Hub context pack"):
            self.written("Learnt", content)

    def test_a_pack_is_refused_as_a_memory(self):
        self.refuses_text(self.pack)
        self.refuses_text(f"Context:\n{self.pack}\nThat was it.")

    def test_lines_of_a_pack_are_refused(self):
        lines = [line for line in self.pack.split("\n") if line.startswith("- ")]
        self.refuses_text("\n".join(lines[:3]))

    def test_one_line_may_be_quoted_and_lists_of_other_numbers_are_no_pack(self):
        line = next(line for line in self.pack.split("\n") if line.startswith("- "))
        self.assertTrue(self.written("Quote", f"It said:\n{line}").id)
        self.assertTrue(self.written("Issues", "- #12 fix the door\n- #13 paint the door").id)

    def test_an_update_is_refused_too(self):
        with self.assertRaisesRegex(Invalid, "comes from a Memory Hub context pack"):
            self.update(1, content=self.pack)

    def test_an_import_skips_a_pack_and_reports_it(self):
        folder = self.home / "notes"
        folder.mkdir()
        (folder / "a.md").write_text(f"# Saved\n\n{self.pack}\n\n# Own\n\nWords of mine.\n")
        report = import_markdown(directory=folder)
        self.assertEqual((report.created, report.skipped), (1, [("a.md › Saved", "a context pack of this hub")]))
