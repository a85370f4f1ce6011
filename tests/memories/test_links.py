from __future__ import annotations

from typing import Any, ClassVar

from django.test import tag
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from decisions.schemas import DecisionMark, DecisionRecord
from decisions.services import mark_decision, record_decision
from memories import services
from memories.models import Memory, Relation
from memories.present import hit_line, memory_text
from memories.schemas import MemoryTouch, MemoryWrite, WriteStatus
from memories.schemas.links import (
    CATEGORIES,
    PREDEFINED,
    LinkStatus,
    RelationCreate,
    RelationDelete,
    RelationList,
    RelationResult,
    TagAttach,
    TagCreate,
    TagDetach,
    TagList,
    TagResult,
    TagsChanged,
)
from memories.selectors.memories import list_tags
from memories.selectors.relations import list_relations
from memories.services.links import attach_tags, create_relation, create_tag, delete_relation, detach_tags
from memoryhub.core import clock, log
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import ConflictError, Gone, HubError, Invalid, NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.schemas import Listing
from memoryhub.core.stores.store import org_store, project_store, use_store
from sessions_app.models import Commit
from sessions_app.schemas import CommitRecord, ProjectDescribe, SessionStart
from sessions_app.selectors import profile
from sessions_app.services import record_commits, start_session
from sessions_app.services.profile import describe
from tests.memories.base import MemoriesTestCase, erase_deleted, pages
from tests.support import HubTestCase

GITHUB_TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class LinksTestCase(MemoriesTestCase):
    origin: ClassVar[dict[str, Any]] = {"actor": "ada", "session_id": "s-1"}

    def setUp(self) -> None:
        super().setUp()
        with use_store(org_store("acme"), create=True):
            pass
        describe(command=ProjectDescribe(org_id="acme"))
        self.memory = self.write("Use WAL", tags=["sqlite"])


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
        self.assertTrue(all(CATEGORIES.values()), "a category without tags")

    def test_a_tag_gets_a_category_and_a_description_without_secrets(self) -> None:
        created = self.create("Billing", category="Domain", description=f"costs {GITHUB_TOKEN}", idempotency_key="k")
        self.assertTrue(created.redacted)
        self.assertNotIn(GITHUB_TOKEN, created.description)
        tag = self.listed()["billing"]
        self.assertEqual((tag["id"], tag["category"], tag["predefined"]), (created.id, "domain", False))
        self.assertEqual(tag["description"], created.description)
        head = log.head()
        self.assertEqual(self.create("billing", idempotency_key="k").id, created.id)
        self.assertEqual(log.head(), head)
        self.assert_rebuilds()
        self.assertEqual(self.listed()["billing"], tag)
        self.assertEqual(self.listed()["sqlite"]["category"], "custom")
        self.assertEqual(self.create("sqlite", category="database").memories, 1)

    def test_a_known_tag_is_a_conflict_that_says_what_to_do(self) -> None:
        first = self.create("billing")
        with self.refuses(ConflictError, "'python' is predefined in category language; use it"):
            self.create("Python ")
        with self.refuses(ConflictError, "described already.*use it as it is") as error:
            self.create("billing")
        self.assertEqual(error.exception.data["id"], first.id)


class TagListTests(TagsTestCase):
    def test_only_live_visible_memories_are_counted(self) -> None:
        gone = self.write("Gone", tags=["sqlite", "fleeting"])
        self.delete(gone)
        self.write("Mine", scope="session", tags=["sqlite"])
        with use_origin(session_id="s-2"):
            self.write("Another's", scope="session", tags=["sqlite", "other"])
        used = self.listed(used=True)
        self.assertEqual({name: tag["memories"] for name, tag in used.items()}, {"sqlite": 2})

    @tag("backend")
    def test_tags_are_listed_by_category_beginning_time_and_page(self) -> None:
        self.assertEqual(list(self.listed(category="meta", prefix="St")), ["stable"])
        self.assertEqual(list(self.listed(prefix="sql")), ["sql", "sqlite"])
        answers = pages(lambda **page: list_tags(command=TagList(compact=True, **page)), limit=7)
        seen = [tag["name"] for answer in answers for tag in answer.results]
        self.assertEqual(seen, sorted({*PREDEFINED, "sqlite"}))
        self.assertEqual(answers[-1].meta.total_count, len(seen))
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
    def test_attaching_and_detaching_make_versions_with_a_reason(self) -> None:
        head = log.head()
        self.assertEqual(self.attach(self.memory, "sqlite").status, WriteStatus.UNCHANGED)
        self.assertEqual(self.detach(self.memory, "absent").status, WriteStatus.UNCHANGED)
        self.assertEqual(log.head(), head)
        attached = self.attach(self.memory, "Python", "billing", "sqlite")
        self.assertEqual((attached.version, attached.changed), (2, ["python", "billing"]))
        self.assertEqual(attached.tags, ["billing", "python", "sqlite"])
        detached = self.detach(f"#{self.memory}", "sqlite", "absent")
        self.assertEqual((detached.version, detached.changed), (3, ["sqlite"]))
        self.assertEqual(detached.tags, ["billing", "python"])
        reasons = [version["reason"] for version in self.get(self.memory, versions=True)["versions"]]
        self.assertEqual(reasons, ["tags detached: sqlite", "tags attached: python, billing", ""])
        self.assertTrue(Memory.objects.all().tagged("billing").exists())
        described = self.create("costly").id
        self.assertIn("costly", self.attach(self.memory, described or 0).tags)
        house = self.write("Rule", scope="org")
        changed = self.attach(f"org#{house}", "style", scope="org")
        self.assertEqual((changed.scope, changed.tags), ("org", ["style"]))

    def test_the_project_has_tags_too_and_a_repeated_key_changes_nothing(self) -> None:
        for target, fields in (("project", {}), (0, {}), ("alpha", {"entry_type": "project"})):
            self.assertEqual(self.attach(target, "python", **fields).tags, ["python"])
        self.assertEqual(profile().tags, ["python"])
        self.assertTrue(self.listed(used=True)["python"]["on_project"])
        self.assertEqual(self.detach("project", "python").status, WriteStatus.UPDATED)
        self.assertEqual(profile().tags, [])
        first = self.attach(self.memory, "billing", idempotency_key="k")
        self.detach(self.memory, "billing")
        again = self.attach(self.memory, "billing", idempotency_key="k")
        self.assertEqual((again.status, again.changed), (first.status, first.changed))
        self.assertEqual((again.version, again.tags), (3, ["sqlite"]))

    def test_impossible_changes_are_refused_in_a_sentence(self) -> None:
        deleted = self.write("Deleted")
        self.delete(deleted)
        for error, sentence, target, tags, fields in (
            (Invalid, "33 tags are too many", self.memory, [f"t{number}" for number in range(32)], {}),
            (NotFound, "no described tag #999", self.memory, [999], {}),
            (NotFound, "no memory #999", 999, ["a"], {}),
            (Invalid, "'id' must be an id such as 412, or project", "that one", ["a"], {}),
            (Invalid, "#2 is observation, not tool", self.memory, ["a"], {"entry_type": "tool"}),
            (Invalid, "'id' names 'beta', and this is project 'alpha'", "beta", ["a"], {"entry_type": "project"}),
            (Invalid, "is of scope org, but this call.*scope=org", "org#1", ["a"], {}),
            (Gone, "restore it first", deleted, ["a"], {}),
        ):
            with self.subTest(sentence), self.refuses(error, sentence):
                self.attach(target, *tags, **fields)


def relate(source: object, relation: str, target: object, **fields: Any) -> RelationResult:
    command = {"source": source, "relation": relation, "target": target, **fields}
    return create_relation(command=RelationCreate.model_validate(command))


def unrelate(**fields: Any) -> RelationResult:
    return delete_relation(command=RelationDelete.model_validate(fields))


def listing(**filters: Any) -> Listing:
    return list_relations(command=RelationList.model_validate(filters))


def related(**filters: Any) -> list[tuple[int, str, int]]:
    found = listing(**filters).results
    return [(relation["source"]["id"], relation["relation"], relation["target"]["id"]) for relation in found]


class RelationsTestCase(LinksTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.one, self.two, self.three = (self.write(title) for title in ("One", "Two", "Three"))


class CreateTests(RelationsTestCase):
    def test_a_relation_shows_its_ends_its_author_and_its_time_in_its_own_store(self) -> None:
        rule_id = self.write("Rule", kind="guideline")
        created = relate(rule_id, "applies_to", f"#{self.one}")
        self.assertEqual(created.status, LinkStatus.CREATED)
        (relation,) = listing().results
        self.assertEqual(relation, created.model_dump(mode="json", exclude={"status"}))
        ends = [(end["type"], end["kind"], end["title"]) for end in (relation["source"], relation["target"])]
        self.assertEqual(ends, [("memory", "guideline", "Rule"), ("memory", "observation", "One")])
        self.assertEqual((relation["id"], relation["actor"], relation["session_id"]), (log.head()[0], "ada", "s-1"))
        first, second = (self.write(title, scope="org") for title in ("House rule", "House style"))
        self.assertEqual(relate(f"org#{first}", "depends_on", second, scope="org").scope, "org")
        self.assertEqual((related(scope="org"), len(related())), ([(first, "depends_on", second)], 1))
        with self.store("beta"):
            self.assertEqual(listing().results, [])
            with self.assertRaises(NotFound):
                relate(self.one, "depends_on", self.two)

    def test_decisions_commits_sessions_and_the_project_can_be_ends(self) -> None:
        decision = record_decision(command=DecisionRecord(title="One file a store", chosen="SQLite")).id
        record_commits(commits=[CommitRecord(sha="a" * 40, message="Fix it\n\nat last", committed_at=clock.now())])
        commit = Commit.objects.get().id
        session = start_session(command=SessionStart(session_id="s-9", purpose="Fixing")).id
        for target, kind, entry_id, title in (
            (commit, "commit", commit, "Fix it"),
            (session, "session", session, "Fixing"),
            ("project", "project", 0, "alpha"),
            (decision, "decision", decision, "One file a store"),
        ):
            end = relate(self.one, "related_to", target).target
            self.assertEqual((end.type, end.id, end.title), (kind, entry_id, title))
        self.assertEqual(relate(decision, "applies_to", self.one).source.id, decision)
        self.assertEqual(related(id="project"), [(self.one, "related_to", 0)])
        self.assert_rebuilds()

    def test_an_equal_relation_or_a_repeated_key_makes_no_event(self) -> None:
        first = relate(self.one, "depends_on", self.two, idempotency_key="make")
        same = relate(self.two, "related_to", self.one)
        head = log.head()
        again = relate(self.one, "depends_on", self.two)
        self.assertEqual((again.id, again.status), (first.id, LinkStatus.KEPT))
        self.assertEqual(relate(self.one, "related_to", self.two).id, same.id, "it goes both ways")
        self.assertEqual(relate(self.one, "depends_on", self.two, idempotency_key="make"), first)
        self.assertEqual(log.head(), head)
        gone = unrelate(id=first.id, idempotency_key="take")
        self.assertEqual(unrelate(id=first.id, idempotency_key="take"), gone)
        with self.refuses(Gone, "deleted since"):
            relate(self.one, "depends_on", self.two, idempotency_key="make")

    @tag("backend")
    def test_a_cycle_is_refused_with_its_path(self) -> None:
        for relation in ("depends_on", "supersedes", "derived_from"):
            relate(self.one, relation, self.two)
            relate(self.two, relation, self.three)
            path = f"#{self.one} {relation} #{self.two} {relation} #{self.three}"
            with self.subTest(relation), self.refuses(ConflictError, f"would create a cycle, since {path}") as error:
                relate(self.three, relation, self.one)
            self.assertEqual(error.exception.data["path"], [self.one, self.two, self.three])
        self.assertEqual(relate(self.three, "applies_to", self.one).status, LinkStatus.CREATED)

    def test_unknown_or_mistyped_ends_are_refused(self) -> None:
        self.delete(self.two)
        relation = relate(self.one, "related_to", self.three).id
        for error, sentence, ends in (
            (NotFound, "'target': there is no .*commit.* #999 here", {"target": 999}),
            (NotFound, "'target': there is no", {"target": relation}),
            (Gone, f"'target': memory #{self.two} is deleted; restore", {"target": self.two}),
            (Invalid, "are the same", {"target": f"project#{self.one}"}),
            (Invalid, "'target' must be an id such as 412, or project", {"target": "Three"}),
            (Invalid, "is of scope org, but this call is for scope project; links cannot cross", {"target": "org#1"}),
            (Invalid, "is of scope global", {"target": "global"}),
            (Invalid, "is observation, not guideline", {"target": self.three, "target_type": "guideline"}),
            (Invalid, "is of scope project", {"source": "project", "target": 1, "scope": "org"}),
        ):
            with self.subTest(sentence), self.refuses(error, sentence):
                fields: dict[str, Any] = {"source": self.one, "relation": "applies_to", **ends}
                relate(**fields)


class RelationListTests(RelationsTestCase):
    def setUp(self) -> None:
        super().setUp()
        relate(self.one, "depends_on", self.two)
        relate(self.two, "depends_on", self.three)
        relate(self.three, "applies_to", self.two)

    def test_relations_are_listed_by_end_direction_and_type_newest_first(self) -> None:
        out = (self.two, "depends_on", self.three)
        into = (self.one, "depends_on", self.two)
        newest = (self.three, "applies_to", self.two)
        for filters, relations in (
            ({}, [newest, out, into]),
            ({"id": self.two}, [newest, out, into]),
            ({"id": self.two, "direction": "out"}, [out]),
            ({"id": self.two, "direction": "in"}, [newest, into]),
            ({"id": self.two, "relation": "applies_to"}, [newest]),
            ({"source": self.three, "target": self.two}, [newest]),
        ):
            with self.subTest(filters):
                self.assertEqual(related(**filters), relations)
        with self.assertRaisesRegex(NotFound, "#999"):
            related(id=999)
        answers = pages(listing, limit=1)
        seen = [relation["id"] for answer in answers for relation in answer.results]
        self.assertEqual(seen, sorted(set(seen), reverse=True))
        self.assertEqual((len(seen), len(answers), answers[-1].meta.total_count), (3, 3, 3))

    def test_a_page_costs_the_same_number_of_statements_however_long_it_is(self) -> None:
        for number in range(30):
            relate(self.one, "related_to", self.write(f"Other {number}"))
        # The page and its total; ends go past Django, in one
        with self.assertNumQueries(2, using="store:project:alpha"):
            self.assertEqual(len(listing(limit=30).results), 30)

    def test_relations_of_a_deleted_memory_are_hidden_until_it_is_restored(self) -> None:
        self.delete(self.three)
        self.assertEqual(related(), [(self.one, "depends_on", self.two)])
        hidden = listing(include_deleted=True).results[0]
        self.assertEqual((hidden["source"]["id"], hidden["source"]["deleted"]), (self.three, True))
        with self.assertRaises(Gone):
            related(id=self.three)
        self.restore(self.three)
        self.assertEqual(len(related()), 3)

    @tag("backend")
    def test_relations_of_an_erased_memory_are_gone_even_in_the_past(self) -> None:
        position = log.head()[0]
        self.erase(self.three)
        left = [(self.one, "depends_on", self.two)]
        self.assertEqual((related(), related(include_deleted=True)), (left, left))
        self.assertEqual((related(as_of=position), related(as_of=position, include_deleted=True)), (left, left))
        self.assertEqual(Relation.objects.count(), 1)
        self.assert_rebuilds()


class DeleteTests(RelationsTestCase):
    @tag("backend")
    def test_a_relation_is_deleted_by_id_or_by_its_ends_but_not_from_the_past(self) -> None:
        first, second = relate(self.one, "depends_on", self.two), relate(self.two, "conflicts_with", self.three)
        position = log.head()[0]
        gone = unrelate(id=first.id, reason="not so")
        self.assertEqual((gone.id, gone.status, gone.target.title), (first.id, LinkStatus.DELETED, "Two"))
        self.assertEqual(unrelate(source=self.three, relation="conflicts_with", target=self.two).id, second.id)
        self.assertEqual((related(), len(related(as_of=position))), ([], 2))
        self.assert_rebuilds()
        self.assertEqual(relate(self.two, "depends_on", self.one).status, LinkStatus.CREATED)

    def test_deleting_an_unknown_relation_is_refused(self) -> None:
        with self.refuses(NotFound, "no relation #999"):
            unrelate(id=999)
        with self.refuses(NotFound, "no relation #"):
            unrelate(source=self.one, relation="depends_on", target=self.two)
        with self.refuses(Invalid, "give the relation's id, or source, relation and target"):
            unrelate(source=self.one)


class ShownWithMemoriesTests(RelationsTestCase):
    def test_a_memory_shows_its_relations_on_request(self) -> None:
        relate(self.one, "depends_on", self.two)
        relate("project", "related_to", self.one)
        gone = relate(self.three, "applies_to", self.one)
        self.delete(self.three)
        plain, whole = (self.get(self.one, relations=asked) for asked in (False, True))
        self.assertNotIn("relations", plain)
        self.assertEqual([entry["relation"] for entry in whole["relations"]], ["depends_on", "related_to"])
        self.assertNotIn(gone.id, [item["id"] for item in whole["relations"]])
        text = memory_text(whole)
        self.assertIn(f"\n→ depends_on #{self.two} Two (relation #", text)
        self.assertIn("\n← project alpha related_to this (relation #", text)

    def test_a_decision_supersedes_a_memory_once_it_is_accepted(self) -> None:
        proposed = DecisionRecord.model_validate({"title": "Use XML", "chosen": "XML", "status": "proposed"})
        decision = record_decision(command=proposed).id
        relate(decision, "supersedes", self.one)
        self.assertEqual(self.get(self.one)["superseded_by"], [])
        for status, successors in (("rejected", []), ("accepted", [decision]), ("deprecated", [decision])):
            mark_decision(command=DecisionMark.model_validate({"id": decision, "status": status}))
            self.assertEqual(self.get(self.one)["superseded_by"], successors, status)

    def test_a_memory_is_superseded_until_its_successor_is_deleted(self) -> None:
        relate(self.two, "supersedes", self.one)
        found = self.get(self.one)
        self.assertEqual(found["superseded_by"], [self.two])
        self.assertIn(f"(superseded by #{self.two})", memory_text(found))
        hits = self.search("about One").results
        (hit,) = [item for item in hits if item["id"] == self.one]
        self.assertEqual(hit["superseded_by"], [self.two])
        self.assertIn(f"(superseded by #{self.two})", hit_line(hit))
        self.delete(self.two)
        self.assertEqual(self.get(self.one)["superseded_by"], [])


class RelationMachine(RuleBasedStateMachine):
    memories = Bundle("memories")
    number = 0

    def __init__(self) -> None:
        super().__init__()
        RelationMachine.number += 1
        self.context = use_store(project_store(f"related-{self.number}"), create=True)
        self.context.__enter__()
        self.state: dict[int, str] = {}
        self.related: set[tuple[int, str, int]] = set()
        self.made = 0

    @rule(target=memories)
    def write(self) -> int:
        self.made += 1
        command = MemoryWrite(title=f"T{self.made}", content=f"text {self.made}")
        memory_id = services.write_memory(command=command).id
        self.state[memory_id] = "live"
        return memory_id

    def change(self, memory_id: int, before: str, after: str, call: Any) -> None:
        try:
            call()
        except HubError:
            assert self.state[memory_id] != before
            return
        assert self.state[memory_id] == before
        self.state[memory_id] = after
        if after == "erased":
            self.related = {item for item in self.related if memory_id not in (item[0], item[2])}

    @rule(memory=memories)
    def delete(self, memory: int) -> None:
        self.change(memory, "live", "deleted", lambda: services.delete_memory(command=MemoryTouch(id=memory)))

    @rule(memory=memories)
    def restore(self, memory: int) -> None:
        self.change(memory, "deleted", "live", lambda: services.restore_memory(command=MemoryTouch(id=memory)))

    @rule(memory=memories)
    def erase(self, memory: int) -> None:
        self.change(memory, "deleted", "erased", lambda: erase_deleted(memory))

    @rule(source=memories, relation=st.sampled_from(["depends_on", "applies_to", "supersedes"]), other=memories)
    def relate(self, source: int, relation: str, other: int) -> None:
        possible = source != other and self.state[source] == self.state[other] == "live"
        round_ = relation != "applies_to" and self.reaches(relation, other, source)
        try:
            made = relate(source, relation, other)
        except HubError:
            assert not possible or round_
            return
        assert possible
        assert not round_
        assert (made.status is LinkStatus.KEPT) == ((source, relation, other) in self.related)
        self.related.add((source, relation, other))

    def reaches(self, relation: str, start: int, end: int) -> bool:
        reached, frontier = {start}, {start}
        while frontier:
            frontier = {to for at, name, to in self.related if name == relation and at in frontier} - reached
            reached |= frontier
        return end in reached

    @rule(source=memories, relation=st.sampled_from(["depends_on", "applies_to", "supersedes"]), other=memories)
    def unrelate(self, source: int, relation: str, other: int) -> None:
        try:
            unrelate(source=source, relation=relation, target=other)
        except NotFound:
            assert (source, relation, other) not in self.related
            return
        self.related.remove((source, relation, other))

    @invariant()
    def only_live_relations_are_listed_and_no_end_dangles(self) -> None:
        live = {item for item in self.related if self.state[item[0]] == self.state[item[2]] == "live"}
        assert set(related(limit=100)) == live
        relations = listing(limit=100, include_deleted=True).results
        ends = {relation[end]["id"] for relation in relations for end in ("source", "target")}
        assert set(find_entities(ends)) == ends

    def teardown(self) -> None:
        assert log.rebuild().identical
        self.context.__exit__(None, None, None)


class RelationMachineTests(HubTestCase):
    def test_no_sequence_of_actions_leaves_a_dangling_end(self) -> None:
        run_state_machine_as_test(
            RelationMachine, settings=settings(max_examples=15, stateful_step_count=30, deadline=None)
        )
