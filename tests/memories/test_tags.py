from __future__ import annotations

from typing import Any

from memories import selectors, services
from memories.models import Memory
from memories.schemas import MemoryGet, MemoryTouch, MemoryWrite, WriteStatus
from memories.schemas.links import TagAttach, TagCreate, TagDetach, TagList, TagResult, TagsChanged
from memories.selectors.tags import list_tags
from memories.services.tags import attach_tags, create_tag, detach_tags
from memories.vocabulary import CATEGORIES, PREDEFINED
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Gone, HubError, Invalid, NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import org_store, use_store
from sessions_app.schemas import ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe
from tests.support import HubTestCase

GITHUB_TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class LinksTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with use_store(org_store("acme"), create=True):
            pass
        self.enterContext(self.store("alpha", actor="ada", session_id="s-1"))
        describe(command=ProjectDescribe(org_id="acme"))
        self.memory = self.write("Use WAL", tags=["sqlite"])

    def write(self, title: str, **fields: Any) -> int:
        command = MemoryWrite.model_validate({"title": title, "content": f"about {title}", **fields})
        return services.write_memory(command=command).id

    def delete(self, memory_id: int) -> None:
        services.delete_memory(command=MemoryTouch(id=memory_id))

    def refuses(self, error: type[HubError], pattern: str, call: Any) -> HubError:
        before = log.head()
        with self.assertRaisesRegex(error, pattern) as caught:
            call()
        self.assertEqual(log.head(), before)
        return caught.exception


class TagsTestCase(LinksTestCase):
    def create(self, name: str, **fields: Any) -> TagResult:
        return create_tag(command=TagCreate.model_validate({"name": name, **fields}))

    def attach(self, target: object, *tags: str | int, **fields: Any) -> TagsChanged:
        return attach_tags(command=TagAttach.model_validate({"id": target, "tags": list(tags), **fields}))

    def detach(self, target: object, *tags: str | int, **fields: Any) -> TagsChanged:
        return detach_tags(command=TagDetach.model_validate({"id": target, "tags": list(tags), **fields}))

    def listed(self, **filters: Any) -> dict[str, dict[str, Any]]:
        found = list_tags(command=TagList.model_validate({"limit": 100, **filters}))
        return {tag["name"]: tag for tag in found.results}


class VocabularyTests(TagsTestCase):
    def test_every_store_knows_the_predefined_tags_without_an_event(self) -> None:
        with self.store("beta"):
            known = {name: tag["category"] for name, tag in self.listed().items()}
            self.assertEqual(log.head()[0], 0)
        self.assertEqual(known, dict(PREDEFINED))
        self.assertEqual(
            {name: len(tags) for name, tags in CATEGORIES.items()},
            {"language": 9, "domain": 9, "category": 6, "meta": 5},
        )

    def test_a_described_tag_has_its_category_and_description(self) -> None:
        made = self.create("Billing", category="Domain", description="what costs money")
        tag = self.listed()["billing"]
        self.assertEqual(
            (tag["id"], tag["category"], tag["description"], tag["predefined"]),
            (made.id, "domain", "what costs money", False),
        )
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(self.listed()["billing"], tag)

    def test_a_tag_that_is_merely_used_may_be_described(self) -> None:
        self.assertEqual(self.listed()["sqlite"]["category"], "custom")
        self.assertEqual(self.create("sqlite", category="database").memories, 1)

    def test_a_known_tag_is_a_conflict_that_says_what_to_do(self) -> None:
        first = self.create("billing")
        self.refuses(Conflict, "'python' is predefined in category language; use it", lambda: self.create("Python "))
        error = self.refuses(Conflict, "described already.*use it as it is", lambda: self.create("billing"))
        self.assertEqual(error.data["id"], first.id)

    def test_a_repeated_key_returns_the_first_answer(self) -> None:
        first = self.create("billing", idempotency_key="k")
        head = log.head()
        self.assertEqual(self.create("billing", idempotency_key="k"), first)
        self.assertEqual(log.head(), head)

    def test_a_secret_in_a_description_is_redacted(self) -> None:
        result = self.create("billing", description=f"see {GITHUB_TOKEN}")
        self.assertTrue(result.redacted)
        self.assertNotIn(GITHUB_TOKEN, result.description)


class ListTests(TagsTestCase):
    def test_only_live_visible_memories_are_counted(self) -> None:
        gone = self.write("Gone", tags=["sqlite", "fleeting"])
        self.delete(gone)
        self.write("Mine", scope="session", tags=["sqlite"])
        with use_origin(session_id="s-2"):
            self.write("Another's", scope="session", tags=["sqlite", "other"])
        used = self.listed(used=True)
        self.assertEqual({name: tag["memories"] for name, tag in used.items()}, {"sqlite": 2})

    def test_filters_by_category_and_beginning(self) -> None:
        self.assertEqual(list(self.listed(category="meta", prefix="St")), ["stable"])
        self.assertEqual(list(self.listed(prefix="sql")), ["sql", "sqlite"])

    def test_pages_neither_skip_nor_repeat(self) -> None:
        seen, cursor = [], None
        while True:
            page = list_tags(command=TagList(limit=7, cursor=cursor, compact=True))
            seen += [tag["name"] for tag in page.results]
            cursor = page.meta.next_cursor
            if not cursor:
                break
        self.assertEqual(seen, sorted({*PREDEFINED, "sqlite"}))
        self.assertEqual(page.meta.total_count, len(seen))

    def test_past_states_have_their_tags(self) -> None:
        position = log.head()[0]
        self.attach(self.memory, "later")
        self.assertIn("later", self.listed(used=True))
        self.assertNotIn("later", self.listed(used=True, as_of=position))

    def test_each_scope_has_its_own(self) -> None:
        self.create("house", scope="org", category="style")
        self.assertNotIn("house", self.listed())
        self.assertEqual(self.listed(scope="org")["house"]["category"], "style")
        with self.store("beta"):
            self.assertNotIn("sqlite", self.listed())


class AttachTests(TagsTestCase):
    def versions(self) -> list[dict[str, Any]]:
        (found,) = selectors.get_memories(command=MemoryGet(ids=[self.memory], versions=True))
        history: list[dict[str, Any]] = found["versions"]
        return history

    def test_attaching_and_detaching_make_versions_with_a_reason(self) -> None:
        added = self.attach(self.memory, "Python", "billing", "sqlite")
        self.assertEqual(
            (added.version, added.changed, added.tags), (2, ["python", "billing"], ["billing", "python", "sqlite"])
        )
        taken = self.detach(f"#{self.memory}", "sqlite", "absent")
        self.assertEqual((taken.version, taken.changed, taken.tags), (3, ["sqlite"], ["billing", "python"]))
        reasons = [version["reason"] for version in self.versions()]
        self.assertEqual(reasons, ["tags detached: sqlite", "tags attached: python, billing", ""])
        self.assertTrue(Memory.objects.all().tagged("billing").exists())

    def test_redundant_changes_do_nothing(self) -> None:
        head = log.head()
        self.assertEqual(self.attach(self.memory, "sqlite").status, WriteStatus.UNCHANGED)
        self.assertEqual(self.detach(self.memory, "absent").status, WriteStatus.UNCHANGED)
        self.assertEqual(log.head(), head)

    def test_a_described_tag_may_be_named_by_its_id(self) -> None:
        made = self.create("billing")
        self.assertEqual(self.attach(self.memory, made.id or 0).tags, ["billing", "sqlite"])
        self.refuses(NotFound, "no described tag #999", lambda: self.attach(self.memory, 999))

    def test_a_repeated_key_returns_the_first_answer(self) -> None:
        first = self.attach(self.memory, "billing", idempotency_key="k")
        self.detach(self.memory, "billing")
        again = self.attach(self.memory, "billing", idempotency_key="k")
        self.assertEqual((again.status, again.changed), (first.status, first.changed))
        self.assertEqual((again.version, again.tags), (3, ["sqlite"]))

    def test_the_project_has_tags_too(self) -> None:
        for target, fields in (("project", {}), (0, {}), ("alpha", {"entry_type": "project"})):
            self.assertEqual(self.attach(target, "python", **fields).tags, ["python"])
        self.assertEqual(profile().tags, ["python"])
        self.assertTrue(self.listed(used=True)["python"]["on_project"])
        self.assertEqual(self.detach("project", "python").status, WriteStatus.UPDATED)
        self.assertEqual(profile().tags, [])

    def test_a_memory_of_another_scope_is_named_with_it(self) -> None:
        house = self.write("Rule", scope="org")
        changed = self.attach(f"org#{house}", "style", scope="org")
        self.assertEqual((changed.scope, changed.tags), ("org", ["style"]))
        self.refuses(Invalid, "is of scope org, but this call.*scope=org", lambda: self.attach(f"org#{house}", "style"))

    def test_impossible_changes_are_refused_in_a_sentence(self) -> None:
        self.refuses(Invalid, "33 tags are too many", lambda: self.attach(self.memory, *(f"t{n}" for n in range(32))))
        self.refuses(NotFound, "no memory #999", lambda: self.attach(999, "a"))
        self.refuses(Invalid, "'id' must be an id such as 412, or project", lambda: self.attach("that one", "a"))
        self.refuses(Invalid, "#2 is observation, not tool", lambda: self.attach(self.memory, "a", entry_type="tool"))
        self.refuses(
            Invalid,
            "'id' names 'beta', and this is project 'alpha'",
            lambda: self.attach("beta", "a", entry_type="project"),
        )
        self.delete(self.memory)
        self.refuses(Gone, "restore it first", lambda: self.attach(self.memory, "a"))
