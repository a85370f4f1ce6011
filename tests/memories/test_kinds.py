from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from memories import selectors, services
from memories.models import KIND_MODELS, Memory
from memories.schemas import MemoryGet, MemorySearch, MemoryUpdate, MemoryWrite, WriteResult, WriteStatus
from memoryhub.core import clock, log
from memoryhub.core.errors import Conflict, Invalid
from tests.support import HubTestCase

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class KindsTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    def write(self, kind: str, title: str = "Thing", **fields: Any) -> WriteResult:
        command = MemoryWrite.model_validate({"kind": kind, "title": title, "content": f"About {title}.", **fields})
        return services.write_memory(command=command)

    def get(self, memory_id: int) -> dict:
        return selectors.get_memories(command=MemoryGet(ids=[memory_id]))[0]


class AttributeTests(KindsTestCase):
    def test_a_guideline_has_priority_rationale_and_examples(self):
        own = {"priority": 90, "rationale": "readers", "examples": {"good": ["f()"], "bad": ["x = f()"]}}
        written = self.write("guideline", type="code_style", attributes=own)
        found = self.get(written.id)
        self.assertEqual((found["kind"], found["type"], found["attributes"]), ("guideline", "code_style", own))
        self.assertEqual(KIND_MODELS["guideline"].objects.get().priority, 90)

    def test_missing_attributes_have_defaults_in_lists_but_are_not_stored(self):
        written = self.write("guideline")
        self.assertEqual(
            (KIND_MODELS["guideline"].objects.get().priority, self.get(written.id)["attributes"]), (50, {})
        )
        self.assertEqual(self.get(written.id)["type"], "general")

    def test_a_tool_has_parameters_that_are_a_json_schema(self):
        schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        written = self.write("tool", type="cli", attributes={"parameters": schema, "constraints": "read only"})
        self.assertEqual(self.get(written.id)["attributes"]["parameters"], schema)
        self.assertEqual(KIND_MODELS["tool"].objects.count(), 1)

    def test_knowledge_has_confidence_and_an_expiry(self):
        self.write("knowledge", attributes={"confidence": 0.4, "valid_until": "2027-01-01T00:00:00+01:00"})
        found = KIND_MODELS["knowledge"].objects.get()
        self.assertEqual((found.confidence, found.valid_until), (0.4, datetime(2026, 12, 31, 23, tzinfo=UTC)))

    def test_an_observation_may_name_pieces_of_code(self):
        written = self.write("observation", attributes={"related_chunks": ["c-1"]})
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
                self.write(**fields)
        self.assertEqual(log.head()[0], 0)

    def test_an_update_replaces_named_attributes_and_null_removes_one(self):
        written = self.write("guideline", attributes={"priority": 10, "rationale": "old"})
        change = {"rationale": None, "priority": 20}
        services.update_memory(command=MemoryUpdate(id=written.id, attributes=change))
        self.assertEqual(self.get(written.id)["attributes"], {"priority": 20})
        with self.assertRaisesRegex(Invalid, "has no attribute 'confidence'"):
            services.update_memory(command=MemoryUpdate(id=written.id, attributes={"confidence": 1}))

    def test_secrets_in_attributes_are_replaced(self):
        token = "ghp_" + "a1B2" * 9
        written = self.write("tool", attributes={"constraints": f"send {token}", "examples": [{"auth": token}]})
        self.assertTrue(written.redacted)
        self.assertNotIn(token, str(self.get(written.id)))

    def test_rationale_and_constraints_are_found(self):
        self.write("guideline", title="Names", attributes={"rationale": "strangers read zebras"})
        self.write("tool", title="Lint", attributes={"constraints": "giraffes only"})
        for word, title in {"zebras": "Names", "giraffes": "Lint"}.items():
            found = selectors.search(command=MemorySearch(query=word)).results
            self.assertEqual([hit["title"] for hit in found], [title])

    def test_a_rebuild_gives_the_same_rows(self):
        self.write("guideline", attributes={"priority": 3})
        self.write("knowledge", attributes={"valid_until": "2027-01-01"})
        self.assertTrue(log.rebuild().identical)


class NameTests(KindsTestCase):
    def test_a_name_is_unique_within_its_kind(self):
        first = self.write("guideline", title="Deploy")
        self.write("tool", title="Deploy", content="Another text.")
        with self.assertRaisesRegex(Conflict, f"guideline 'Deploy' of scope project exists as #{first.id}") as caught:
            self.write("guideline", title="Deploy", content="Third text.")
        self.assertEqual(caught.exception.data["id"], first.id)

    def test_the_same_text_is_another_memory_in_another_kind(self):
        self.write("guideline", content="Same.")
        self.assertEqual(self.write("knowledge", content="Same.").status, WriteStatus.CREATED)
        self.assertEqual(self.write("guideline", title="Other", content="Same.").status, WriteStatus.SEEN)

    def test_a_topic_keeps_its_kind(self):
        self.write("guideline", topic_key="ci")
        with self.assertRaisesRegex(Conflict, "topic 'ci' belongs to the guideline #1; write it with kind=guideline"):
            self.write("observation", title="CI", topic_key="ci")

    def test_a_topic_written_again_keeps_the_type_and_attributes_that_are_not_named(self):
        self.write("guideline", topic_key="ci", type="testing", attributes={"priority": 70})
        self.write("guideline", topic_key="ci", content="Shorter.")
        found = Memory.objects.get()
        self.assertEqual((found.type, found.priority, found.content, found.version), ("testing", 70, "Shorter.", 2))


class ExpiryTests(KindsTestCase):
    def test_expired_knowledge_is_marked_and_ranked_lower(self):
        with clock.frozen(NOON):
            until = (NOON + timedelta(hours=1)).isoformat()
            old = self.write("knowledge", title="Port of the hub", attributes={"valid_until": until})
            self.write("knowledge", title="Port of the hub now", content="It has a port, and words beside it.")
            best = selectors.search(command=MemorySearch(query="port of the hub")).results[0]
            self.assertEqual((best["id"], self.get(old.id)["expired"]), (old.id, False))
        with clock.frozen(NOON + timedelta(hours=2)):
            found = selectors.search(command=MemorySearch(query="port of the hub")).results
            self.assertEqual([hit["id"] == old.id for hit in found], [False, True])
            self.assertTrue(self.get(old.id)["expired"])
