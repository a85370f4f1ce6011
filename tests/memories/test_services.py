from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import tag

from governance.retention.schemas import HoldPlace
from governance.retention.service import place_hold
from memories import services
from memories.importing import import_markdown
from memories.kinds import number_defaults
from memories.models import KIND_MODELS, ContextPack, Memory
from memories.pack import pack_context
from memories.present import written
from memories.schemas import IfExists, MemoryWrite, WriteResult, WriteStatus
from memories.schemas.query import ContextPackRequest
from memoryhub.core import clock, log, spool
from memoryhub.core.errors import (
    ConfirmationRequired,
    ConflictError,
    Gone,
    HubError,
    Invalid,
    NotFound,
    PreconditionFailed,
)
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from tests import tampering
from tests.memories.base import MemoriesTestCase


class ServicesTestCase(MemoriesTestCase):
    def written(self, title: str = "Use WAL", content: str = "Readers never block.", **fields: Any) -> WriteResult:
        return super().written(title, content, **fields)


class WriteTests(ServicesTestCase):
    def test_a_new_memory_is_created_at_version_one(self):
        result = self.written(tags=["SQLite", "wal ", "wal"])
        memory = Memory.objects.get(id=result.id)
        self.assertEqual((result.status, result.version, memory.version), (WriteStatus.CREATED, 1, 1))
        self.assertEqual(memory.tags, ["sqlite", "wal"])
        self.assertEqual(memory.author, "ada")

    def test_identical_content_is_counted(self):
        first = self.written("One", "the  same\ntext")
        again = self.written("Two", "the same text")
        self.assertEqual((again.id, again.status), (first.id, WriteStatus.SEEN))
        self.assertEqual(Memory.objects.get().seen_count, 2)

    def test_if_exists_decides_on_a_taken_title_until_it_is_freed(self):
        first = self.written(tags=["a"])
        with self.refuses(ConflictError, "exists as #1; update it") as refused:
            self.written(content="other")
        self.assertEqual(refused.exception.data["id"], first.id)
        kept = self.written(content="other", if_exists=IfExists.KEEP)
        self.assertEqual((kept.status, Memory.objects.get().content), (WriteStatus.KEPT, "Readers never block."))
        self.assertEqual(log.head()[0], 1)
        updated = self.written(content="other", if_exists=IfExists.UPDATE)
        memory = Memory.objects.get()
        self.assertEqual((updated.status, updated.version, memory.content), (WriteStatus.UPDATED, 2, "other"))
        self.assertEqual(memory.tags, ["a"], "a field that is not named stays")
        self.delete(first.id)
        self.assertEqual(self.written().status, WriteStatus.CREATED)

    def test_a_topic_is_one_memory_that_is_revised(self):
        first = self.written("Plan", "first", topic_key="plan")
        second = self.written("Plan, new", "second", topic_key="plan")
        same = self.written("Plan, new", "second", topic_key="plan")
        self.assertEqual((second.id, second.status), (first.id, WriteStatus.UPDATED))
        self.assertEqual((same.status, log.head()[0]), (WriteStatus.UNCHANGED, 2))
        self.assertNotEqual(self.written("B", "second", topic_key="other").id, first.id, "the same text")

    def test_a_batch_detects_its_own_duplicates_and_costs_few_queries(self):
        commands = [MemoryWrite(title="T", content=text, topic_key="t") for text in ("one", "two", "two")]
        statuses = [result.status for result in services.write_memories(commands=commands)]
        self.assertEqual(statuses, [WriteStatus.CREATED, WriteStatus.UPDATED, WriteStatus.UNCHANGED])
        with self.assertNumQueries(2, using="store:project:alpha"):  # BEGIN and its end; the others go past Django
            self.write_all({f"T{number}": f"text {number}" for number in range(50)})


class UpdateTests(ServicesTestCase):
    def test_only_given_fields_change_and_the_history_is_complete(self):
        memory = self.written(tags=["a"])
        unchanged = self.update(memory.id, content="Readers never block.")
        self.assertEqual((unchanged.status, log.head()[0]), (WriteStatus.UNCHANGED, 1))
        self.update(memory.id, content="Writers do.", change_reason="measured")
        entry = self.get(memory.id, versions=True)
        self.assertEqual((entry["title"], entry["content"], entry["tags"]), ("Use WAL", "Writers do.", ["a"]))
        versions = [(version["content"], version["reason"]) for version in entry["versions"]]
        self.assertEqual(versions, [("Writers do.", "measured"), ("Readers never block.", "")])
        self.update(memory.id, tags=[])
        self.assertEqual(Memory.objects.get().tags, [])
        self.assertFalse(Memory.objects.all().tagged("a").exists())

    def test_impossible_updates_are_refused(self):
        with self.refuses(NotFound, "no memory #9"):
            self.update(9, content="x")
        taken = self.written("Taken", "1")
        memory = self.written("Mine", "2")
        with self.refuses(ConflictError, f"exists as #{taken.id}"):
            self.update(memory.id, title="Taken")
        self.update(memory.id, base_version=1, content="two")
        later = clock.frozen(clock.now() + timedelta(seconds=6))
        with later, self.refuses(PreconditionFailed, "version 2, but you read version 1") as refused:
            self.update(memory.id, base_version=1, content="three")
        self.assertEqual(refused.exception.data["version"], 2)
        self.delete(memory.id)
        with self.refuses(Gone, "restore it first"):
            self.update(memory.id, content="x")


class DeleteAndRestoreTests(ServicesTestCase):
    def test_a_memory_is_deleted_once_and_restored_once(self):
        memory = self.written(topic_key="t")
        with self.refuses(ConflictError, "not deleted"):
            self.restore(memory.id)
        self.delete(memory.id, reason="wrong")
        self.assertFalse(Memory.objects.live().exists())
        for call in (self.get, self.delete):
            with self.refuses(Gone, "deleted"):
                call(memory.id)
        self.restore(memory.id)
        self.assertTrue(Memory.objects.live().exists())

    def test_a_taken_topic_hinders_the_restore(self):
        memory = self.written(topic_key="t")
        self.delete(memory.id)
        rival = self.written("Other", "text", topic_key="t")
        with self.refuses(ConflictError, "has taken the topic") as refused:
            self.restore(memory.id)
        self.assertEqual(refused.exception.data["id"], rival.id)


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class KindsTestCase(MemoriesTestCase):
    def make(self, kind: str, title: str = "Thing", **fields: Any) -> WriteResult:
        return self.written(title, **{"content": f"About {title}.", "kind": kind, **fields})


class AttributeTests(KindsTestCase):
    def test_each_kind_stores_its_own_attributes(self):
        schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        examples = {"good": ["f()"], "bad": ["x = f()"]}
        for kind, entry_type, attributes in (
            ("guideline", "code_style", {"priority": 90, "rationale": "readers", "examples": examples}),
            ("guideline", "general", {}),
            ("tool", "cli", {"parameters": schema, "constraints": "read only"}),
            ("observation", "note", {"related_chunks": ["c-1"]}),
        ):
            with self.subTest(kind, attributes=attributes):
                written = self.make(kind, title=entry_type, type=entry_type, attributes=attributes)
                entry = self.get(written.id)
                whole = {**number_defaults(kind), **attributes}
                self.assertEqual((entry["kind"], entry["type"], entry["attributes"]), (kind, entry_type, whole))
        priorities = KIND_MODELS["guideline"].objects.order_by("id").values_list("priority", flat=True)
        self.assertEqual(list(priorities), [90, 50], "lists show the default of what is not stored")
        self.assertEqual(self.get(self.make("guideline", title="No type").id)["type"], "general")

    @tag("backend")
    def test_knowledge_has_confidence_and_an_expiry(self):
        self.make("knowledge", attributes={"confidence": 0.4, "valid_until": "2027-01-01T00:00:00+01:00"})
        fact = KIND_MODELS["knowledge"].objects.get()
        self.assertEqual((fact.confidence, fact.valid_until), (0.4, datetime(2026, 12, 31, 23, tzinfo=UTC)))
        self.make("guideline", attributes={"priority": 3})
        self.assert_rebuilds()

    def test_bad_attributes_and_types_are_refused_in_one_sentence_and_write_nothing(self):
        for kind, attributes, sentence in (
            ("guideline", {"priority": 101}, "less than or equal to 100|at most 100"),
            ("guideline", {"prio": 1}, "has no attribute 'prio'; it has: priority"),
            ("tool", {"priority": 1}, "has no attribute 'priority'"),
            ("tool", {"parameters": {"type": "strin"}}, "not a valid JSON schema at type"),
            ("tool", {"examples": ["x" * 9_000] * 8}, "longer than 50,000 characters"),
            ("knowledge", {"confidence": 2}, "confidence"),
            ("knowledge", {"valid_until": "soon"}, "valid_until"),
        ):
            with self.subTest(sentence), self.refuses(Invalid, sentence):
                self.make(kind, attributes=attributes)
        with self.refuses(Invalid, "'type' must be one of mcp, cli, function, api"):
            self.make("tool", type="poem")

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
        self.assertEqual((self.titles("zebras"), self.titles("giraffes")), (["Names"], ["Lint"]))


class NameTests(KindsTestCase):
    @tag("backend")
    def test_a_name_and_a_text_are_unique_within_their_kind(self):
        first = self.make("guideline", title="Deploy", content="Same.")
        self.make("tool", title="Deploy", content="Another text.")
        with self.refuses(ConflictError, f"guideline 'Deploy' of scope project exists as #{first.id}") as refused:
            self.make("guideline", title="Deploy", content="Third text.")
        self.assertEqual(refused.exception.data["id"], first.id)
        self.assertEqual(self.make("knowledge", content="Same.").status, WriteStatus.CREATED)
        self.assertEqual(self.make("guideline", title="Other", content="Same.").status, WriteStatus.SEEN)

    def test_a_topic_keeps_its_kind_and_the_type_and_attributes_that_are_not_named(self):
        self.make("guideline", topic_key="ci", type="testing", attributes={"priority": 70})
        with self.refuses(ConflictError, "topic 'ci' belongs to the guideline #1; write it with kind=guideline"):
            self.make("observation", title="CI", topic_key="ci")
        self.make("guideline", topic_key="ci", content="Shorter.")
        memory = Memory.objects.get()
        self.assertEqual((memory.type, memory.priority, memory.content), ("testing", 70, "Shorter."))


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
    def test_a_similar_text_is_named_and_nothing_is_merged(self):
        first = self.written("Fair waiting", LONG)
        again = self.written("Waiting fairly", LONG.replace("for seconds", "a long time"))
        self.assertEqual([item.id for item in again.similar], [first.id])
        self.assertGreater(again.similar[0].alike, 0.7)
        self.assertNotEqual(again.id, first.id)
        self.assertIn(f"; #{first.id} is nearly the same: Fair waiting", written(again).text)

    def test_a_text_of_some_common_words_or_operators_or_another_project_or_deleted_is_not_named(self):
        first = self.written("Fair waiting", LONG)
        self.written("Operators", 'AND OR NOT NEAR "quoted" title:body (paren) star* - minus ^caret')
        backoff = "Transactions and measurements of another thing, by far."
        self.assertEqual(self.written("Exponential backoff", backoff).similar, [])
        self.assertEqual(self.written("Few", 'NOT "AND" OR').similar, [])
        with self.store("beta"):
            self.assertEqual(self.written("Waiting fairly", LONG + " Again.").similar, [])
        self.delete(first.id)
        self.assertEqual(self.written("Waiting fairly", LONG + " Again.").similar, [])


class PackEchoTests(MemoriesTestCase):
    def test_a_pack_is_not_stored_as_a_memory_but_one_line_may_be_quoted(self):
        for number in range(5):
            self.written(f"Fact {number}", f"The number of this fact is {number}.")
        pack = pack_context(command=ContextPackRequest()).text
        lines = [line for line in pack.split("\n") if line.startswith("- ")]
        for content in (pack, f"Context:\n{pack}\nThat was it.", "\n".join(lines[:3])):
            with self.subTest(content), self.refuses(Invalid, "comes from a Memory Hub context pack"):
                self.written("Learnt", content)
        with self.refuses(Invalid, "comes from a Memory Hub context pack"):
            self.update(1, content=pack)
        self.assertTrue(self.written("Quote", f"It said:\n{lines[0]}").id)
        self.assertTrue(self.written("Issues", "- #12 fix the door\n- #13 paint the door").id)
        (self.home / "a.md").write_text(f"# Saved\n\n{pack}\n\n# Own\n\nWords of mine.\n")
        report = import_markdown(directory=self.home)
        self.assertEqual((report.created, report.skipped), (1, [("a.md › Saved", "a context pack of this hub")]))


WORDS = ["quicksilverish", "xylophonist", "zanzibarian", "kumquatly"]


class EraseTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write_all({f"Note {number}": f"Note {number} on caches and locks. " * 40 for number in range(40)})
        title, first, second, reason = WORDS
        self.memory_id = self.write(title, f"It was {first}. " * 400)
        self.update(self.memory_id, content=f"It became {second}.", change_reason=reason)

    def remove(self, **fields: object) -> WriteStatus:
        return self.delete(self.memory_id, **fields).status

    def token(self) -> str:
        with self.assertRaises(ConfirmationRequired) as caught:
            self.remove(permanent=True)
        return str(caught.exception.data["confirm_token"])

    def erase_now(self) -> None:
        self.assertEqual(self.remove(permanent=True, confirm_token=self.token()), WriteStatus.ERASED)

    def files_with(self, word: str) -> list[str]:
        return tampering.places_with(current_store(), word)

    @tag("backend")
    def test_no_byte_is_left_in_the_files_of_the_store_and_only_that_memory_is_gone(self):
        before = {word: self.files_with(word) for word in WORDS}
        self.assertTrue(all(before.values()), before)
        self.remove()
        self.erase_now()
        for word in WORDS:  # their beginnings: the index keeps stems
            self.assertEqual(self.files_with(word[:7]), [], word)
        self.assertTrue(log.verify().ok)
        self.assert_rebuilds()
        counts = "SELECT count(*), count(payload_json), count(salt) FROM raw_events WHERE stream_id = %s"
        self.assertEqual(rows.fetch(counts, [f"memory:{self.memory_id}"]), [(3, 0, 0)])
        self.assertFalse(Memory.objects.filter(id=self.memory_id).exists())
        self.assertEqual(self.titles("note 7 caches")[0], "Note 7")
        with self.assertRaises(Gone):
            self.get(self.memory_id)

    def test_only_a_deleted_memory_is_erased_with_a_token_of_its_present_state(self):
        with self.assertRaisesRegex(PreconditionFailed, "delete it first"):
            self.remove(permanent=True)
        self.remove()
        question = f"permanently delete #{self.memory_id} '{WORDS[0]}' with its 2"
        with self.assertRaisesRegex(ConfirmationRequired, question):
            self.remove(permanent=True)
        token = self.token()
        self.restore(self.memory_id)
        self.remove()
        for wrong in ("0" * 16, token):
            with self.assertRaises(ConfirmationRequired):
                self.remove(permanent=True, confirm_token=wrong)
        self.assertTrue(Memory.objects.filter(id=self.memory_id).exists())

    def ask(self, query: str) -> int:
        pack_context(command=ContextPackRequest(query=query))
        return int(ContextPack.objects.order_by("-id")[0].id)

    def keep(self, prompt: str, **payload: object) -> None:
        hook = {"session_id": "s-1", "prompt": prompt, **payload}
        fields: dict[str, Any] = {"client": "claude-code", "event": "PostToolUse", "project": "alpha", "payload": hook}
        spool.append(spool.SpooledEvent(id=f"hook-{prompt[:20]}", at=1, **fields))

    @tag("backend")
    def test_packs_whose_question_quotes_the_text_are_erased_and_no_others(self):
        for question in (f"what do we know of the {WORDS[1].upper()}", f"It became\n {WORDS[2]}", WORDS[0]):
            self.ask(question)
        others = {self.ask("caches and locks"), self.ask("a note on locks")}
        self.remove()
        with self.assertRaisesRegex(ConfirmationRequired, "2 versions, 3 context packs whose question quotes it[?]"):
            self.remove(permanent=True)
        self.erase_now()
        self.assertEqual(set(ContextPack.objects.values_list("id", flat=True)), others)
        for word in WORDS:
            self.assertEqual(self.files_with(word[:7]), [], word)
        self.assertTrue(log.verify().ok)
        self.assert_rebuilds()

    def test_the_text_is_removed_from_spooled_events(self):
        call = {"title": WORDS[0], "content": f"It was {WORDS[1]}. " * 15, "tags": []}
        self.keep("Quoted in part", tool_name="memory_write", tool_input=call)
        self.keep("Another, with caches and locks")
        before = sorted(spool.each_line())
        self.remove()
        with self.assertRaisesRegex(ConfirmationRequired, "and its text in 1 spooled event"):
            self.remove(permanent=True)
        self.assertEqual(sorted(spool.each_line()), before)
        self.erase_now()
        other, quoting = sorted(map(spool.parsed, spool.each_line()), key=lambda event: event.id)
        masked = {"title": "[REDACTED:erased]", "content": "[REDACTED:erased]. ", "tags": []}
        self.assertEqual(quoting.payload["tool_input"], masked)
        self.assertIn(spool.line_of(other), before)

    def test_a_hold_protects_spooled_events_too(self):
        self.keep(f"Remember that it was {WORDS[1]}. It was {WORDS[1]}.")
        self.remove()
        token = self.token()
        place_hold(command=HoldPlace(stream_id=f"memory:{self.memory_id}", reason="asked for by the court"))
        before = list(spool.each_line())
        with self.assertRaises(HubError):
            self.remove(permanent=True, confirm_token=token)
        self.assertEqual(list(spool.each_line()), before)

    @tag("backend")
    def test_erasing_from_the_global_scope_erases_packs_of_the_callers_project(self):
        memory = self.write("Wide", "Of the vorpalish blade.", scope="global")
        pack = self.ask("who has the vorpalish blade")
        self.erase(memory, scope="global")
        self.assertFalse(ContextPack.objects.filter(id=pack).exists())
        self.assertEqual(self.files_with("vorpalish"), [])
        self.assertTrue(log.verify().ok)
