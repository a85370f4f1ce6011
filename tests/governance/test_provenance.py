"""Provenance: blame from a line to its prompt, the graph around an item, and who was given which pack."""

from __future__ import annotations

import csv
import io
import json
import random
import tempfile
from collections import Counter
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client, tag
from django.test.utils import CaptureQueriesContext

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance import audit
from governance.audit import AuditExport, AuditPeriod, AuditRequest, export_audit, list_activity, list_packs_read
from governance.blame import Blame, BlamedRange, BlameRequest, blame
from governance.graph import NodeType, graph_around
from memories.pack.service import pack_context
from memories.schemas import MemoryTouch, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.schemas.query import ContextPackRequest
from memories.services import delete_memory, write_memory
from memories.services.links import create_relation
from memoryhub.config.identity import bind_project
from memoryhub.core import clock, log
from memoryhub.core.errors import HubError, NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import MEMBER_ROLES, Grant, use_grant
from memoryhub.core.stores.store import project_store
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.rest.auth import read_token
from sessions_app import git
from sessions_app.schemas import CommitRead, SessionStart
from sessions_app.services import record_commit, record_commits, start_session
from sessions_app.services.turns import append_automatically, automatic_turn
from tests.admin.base import AdminTestCase, text_of
from tests.api.client import RestTestCase
from tests.governance.rollback_case import quarantine
from tests.memories.base import pages
from tests.sessions_app.test_git import Repository

TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
MOVED = "def depth():\n    return read_gauge('harbour') - 0.35 * tide_factor()\n"


class BlameTestCase(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve() / "alpha"
        self.repository = Repository(folder)
        with self.store():
            bind_project("alpha", folder)

    def commit(self, message: str, **files: str) -> str:
        for name, text in files.items():
            self.repository.write(name.replace("__", "/").replace("_py", ".py"), text.encode())
        self.repository.commit(message)
        found = git.read_commit(self.repository.folder, "HEAD")
        assert found
        return found.sha

    def ask(self, file: str = "feed.py", **lines: int) -> Blame:
        with self.store():
            return blame(command=BlameRequest(file=file, **lines))

    def ranges(self, file: str = "feed.py", **lines: int) -> list[BlamedRange]:
        return self.ask(file, **lines).view.ranges

    def record(self, sha: str, **fields: Any) -> int:
        command = CommitRead(sha=sha, **fields)
        number: int = record_commit(command=command, directory=self.repository.folder).id
        return number

    def guideline(self, title: str) -> int:
        return write_memory(command=MemoryWrite(title=title, content=f"{title}, always.", kind="guideline")).id


class TrailTests(BlameTestCase):
    def test_a_line_leads_to_the_prompt_and_the_guidelines_of_its_time(self) -> None:
        with self.store(actor="claude", source="mcp"):
            with clock.frozen(datetime(2001, 1, 1, tzinfo=UTC)):
                guideline = self.guideline("Never retry writes")
                delete_memory(command=MemoryTouch(id=self.guideline("Log in English")))
            self.guideline("Written too late")
            session = start_session(command=SessionStart(session_id="s1", purpose="Make it robust", agent="claude"))
            turn = automatic_turn(session_id="s1")
            text = {"content": "It fails at 429\nplease"}
            prompt = append_automatically(turn=turn, type="message.user", payload=text)
            with use_origin(session_id="s1", turn_id=turn.turn_id):
                decision = record_decision(command=DecisionRecord(title="Retry reads", chosen="three times")).id
        sha = self.commit(f"Retry\n\nDecision: #{decision}", feed_py="a = 1\nb = 2\n")
        with self.store(session_id="s1", turn_id=turn.turn_id):
            commit = self.record(sha)
        with self.store():
            later = write_memory(command=MemoryWrite(title="About", content="See feed.py for the limit.")).id
        view = self.ask().view
        (lines,) = view.ranges
        assert lines.commit and lines.session and lines.prompt
        self.assertEqual((lines.first, lines.last, lines.ends), (1, 2, ""))
        self.assertEqual((lines.commit.id, lines.commit.sha, lines.commit.summary), (commit, sha, "Retry"))
        self.assertEqual([(item.id, item.link) for item in lines.decisions], [(decision, "implements")])
        self.assertEqual((lines.session.id, lines.session.title), (session.id, "Make it robust"))
        self.assertEqual((lines.prompt.id, lines.prompt.text), (prompt.position, "It fails at 429"))
        self.assertEqual([item.id for item in lines.guidelines], [guideline])
        self.assertEqual([(entry.id, entry.how) for entry in view.known], [(decision, "governs"), (later, "mentions")])

    def test_each_range_names_where_its_trail_ends(self) -> None:
        sha = self.commit("Recorded", feed_py="a = 1\n")
        with self.store():
            self.record(sha)
        self.commit("Not recorded", feed_py=f"a = 1\ntoken = '{TOKEN}'\n")
        self.repository.write("feed.py", f"a = 1\ntoken = '{TOKEN}'\nc = 3\n".encode())
        first, second, third = self.ranges()
        self.assertEqual(first.ends, "no decision is linked to the commit; it was recorded in no session")
        self.assertIn("not recorded here; `memory-hub import git`", second.ends)
        self.assertEqual((third.commit, third.ends), (None, "the lines are not committed"))
        self.assertEqual([(lines.first, lines.last) for lines in (first, second, third)], [(1, 1), (2, 2), (3, 3)])
        self.assertNotIn(TOKEN, str(self.ask().lines))

    def test_moved_lines_lead_to_the_commit_that_wrote_them(self) -> None:
        self.commit("Write it", old_py=f"import x\n\n\n{MOVED}")
        self.commit("Move it", old_py="import x\n", feed_py=f"import y\n\n\n{MOVED}")
        moved = self.ranges()[-1]
        assert moved.commit
        self.assertEqual((moved.commit.summary, moved.commit.path), ("Write it", "old.py"))

    def test_what_is_in_quarantine_is_not_shown(self) -> None:
        sha = self.commit("Keep it", feed_py="a = 1\n")
        with self.store():
            decision = record_decision(command=DecisionRecord(title="Hidden", chosen="x")).id
            commit = self.record(sha, decision_ids=[decision])
            self.assertEqual(len(self.ranges()[0].decisions), 1)
            quarantine(decision, commit)
        self.assertIn("not recorded here", self.ranges()[0].ends)

    def test_the_number_of_queries_does_not_depend_on_the_commits(self) -> None:
        counts = []
        for total in (2, 12):
            for number in range(total):
                lines = "".join(f"line {line}\n" for line in range(number + 1))
                self.commit(f"Line {number} of {total}", **{f"many{total}_py": lines})
            with self.store():
                record_commits(commits=list(git.read_commits(self.repository.folder)))
                with CaptureQueriesContext(connections[project_store("alpha").alias]) as queries:
                    view = blame(command=BlameRequest(file=f"many{total}.py")).view
            self.assertEqual(len(view.ranges), total)
            counts.append(len([query for query in queries if not query["sql"].startswith("PRAGMA")]))
        self.assertEqual(counts[0], counts[1])

    def test_bad_input_gets_one_sentence(self) -> None:
        self.commit("Begin", feed_py="a = 1\n")
        top = self.repository.folder
        (top / "link.py").symlink_to("/etc/passwd")
        for name, content in {"data.bin": b"\0\1\2", "empty.py": b"", "new.py": b"a\n", "-x": b"a\n"}.items():
            (top / name).write_bytes(content)
        cases: list[tuple[str, dict[str, int], str]] = [
            ("../other.py", {}, "no path of a file"),
            ("/etc/passwd", {}, "is not in the project's folder"),
            ("nix.py", {}, "there is no file"),
            (".", {}, "no path of a file"),
            ("link.py", {}, "is a link"),
            ("data.bin", {}, "binary"),
            ("empty.py", {}, "is empty"),
            ("new.py", {}, "git can't blame"),
            ("-x", {}, "git can't blame"),
            (".git/config", {}, "git can't blame"),
            ("feed.py", {"first": 9}, "has only 1 line"),
            ("feed.py", {"first": 3, "last": 2}, "smaller number first"),
        ]
        for file, lines, message in cases:
            with self.subTest(file=file, **lines), self.assertRaises(HubError) as refused:
                self.ask(file, **lines)
            self.assertIn(message, refused.exception.message)
        with self.store("beta"), self.assertRaisesRegex(HubError, "no folder of this project is known"):
            blame(command=BlameRequest(file="feed.py"))


class DoorTests(BlameTestCase):
    def setUp(self) -> None:
        super().setUp()
        sha = self.commit("Write <b>it</b>", feed_py="a = 1\nb = '<script>'\n")
        with self.store():
            self.decision = record_decision(command=DecisionRecord(title="Use <i>", chosen="x")).id
            self.record(sha, decision_ids=[self.decision])

    def command(self, *arguments: str, folder: str = ".") -> str:
        output = StringIO()
        with chdir(self.repository.folder / folder):
            call_command("blame", *arguments, "--project", "alpha", stdout=output)
        return output.getvalue()

    def test_the_command_takes_lines_after_the_file(self) -> None:
        text = self.command("feed.py:2")
        self.assertRegex(text, r"^feed.py:2 [0-9a-f]{10} \d{4}-\d\d-\d\d “Write <b>it</b>” by ")
        self.assertIn(f"  decision #{self.decision} accepted Use <i> (implements)", text)
        view = json.loads(self.command("feed.py", "--json"))
        self.assertEqual((view["first"], view["last"], len(view["ranges"])), (1, 2, 1))
        (self.repository.folder / "sub").mkdir()
        with self.assertRaisesRegex(CommandError, "there is no file nix.py"):
            self.command("nix.py:1-2", folder="sub")

    def test_the_page_shows_lines_and_links(self) -> None:
        self.assertIn("Which file?", self.page("blame/"))
        raw = self.client.get(self.address("blame/"), {"file": "feed.py"}).content.decode()
        link = f'/decisions/decision/{self.decision}/change/">Use &lt;i&gt;</a>'
        self.assert_shows(raw, "b = &#x27;&lt;script&gt;&#x27;", link, "Write &lt;b&gt;it&lt;/b&gt;")
        self.assertIn("The trail ends: it was recorded in no session", text_of(raw))
        self.assertIn("There is no file nix.py", self.page("blame/", file="nix.py"))
        self.assertIn("has only 2 lines", self.page("blame/", file="feed.py", first="7"))

    def test_rest_answers_the_same(self) -> None:
        answer = self.client.get("/api/v1/projects/alpha/blame", {"file": "feed.py", "first": "2", "last": "2"})
        self.assertEqual(answer.json(), self.ask(first=2, last=2).view.model_dump(mode="json"))
        for file, status in (("nix.py", 404), ("../x", 422)):
            self.assertEqual(self.client.get("/api/v1/projects/alpha/blame", {"file": file}).status_code, status)


class GraphTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store(actor="claude", source="mcp"):
            start_session(command=SessionStart(session_id="work", purpose="measure the pump"))
        self.memory_id = self.write("The pump is slow", session="work")
        with self.store(session_id="work"):
            command = DecisionRecord(title="Buy a pump", chosen="the blue one", files=["src/pump.py"])
            self.decision = record_decision(command=command).id
            self.relate(self.memory_id, "applies_to", self.decision)

    def relate(self, source: int, relation: str, target: int) -> None:
        create_relation(command=RelationCreate(source=source, relation=relation, target=target))

    def around(self, entity_id: int, **options: Any) -> list[tuple[str, str]]:
        with self.store():
            graph = graph_around(entity_id, **options)
        return sorted((node.type.value, node.title) for node in graph.nodes.values())

    def test_neighbours_of_all_types_are_shown_unless_they_are_left_out(self) -> None:
        memory, file, session = ("memory", "The pump is slow"), ("file", "src/pump.py"), ("session", "measure the pump")
        decision = ("decision", "Buy a pump")
        self.assertEqual(self.around(self.decision), [decision, file, memory, session])
        self.assertEqual(self.around(self.decision, types=[NodeType.MEMORY]), [decision, memory])
        self.assertNotIn(file, self.around(self.memory_id))
        self.assertIn(file, self.around(self.memory_id, depth=2))
        with self.store():
            graph = graph_around(self.decision)
        columns = {graph.nodes[number].type: column for number, column in graph.columns.items()}
        self.assertEqual([columns[kind] for kind in (NodeType.SESSION, NodeType.MEMORY, NodeType.FILE)], [-1, 1, 1])

    def test_quarantined_items_are_not_in_it_and_deleted_ones_are_marked(self) -> None:
        with self.store():
            delete_memory(command=MemoryTouch(id=self.memory_id))
        self.assertIn("deleted", text_of(self.page(f"graph/{self.decision}/")))
        with self.store():
            quarantine(self.memory_id)
            with self.assertRaises(NotFound):
                graph_around(self.memory_id)
        self.assertNotIn(("memory", "The pump is slow"), self.around(self.decision))

    def test_many_neighbours_are_counted_and_take_no_more_queries(self) -> None:
        before = self.queries_around(self.decision)
        with self.store():
            for number in range(20):
                self.relate(self.write(f"Note {number}", f"What note {number} says."), "applies_to", self.decision)
        self.assertEqual(self.queries_around(self.decision), before)
        self.assertEqual(self.memories_around(self.decision), (12, 9))
        self.assertEqual(sum(self.memories_around(self.decision, depth=2)), 21)
        self.assertIn("and 9 more", text_of(self.page(f"graph/{self.decision}/")))

    def memories_around(self, entity_id: int, **options: Any) -> tuple[int, int]:
        """Return how many memories are shown, and how many hidden."""
        with self.store():
            graph = graph_around(entity_id, **options)
        shown = [node for node in graph.nodes.values() if node.type is NodeType.MEMORY]
        return len(shown), graph.hidden[NodeType.MEMORY]

    def queries_around(self, entity_id: int) -> int:
        with self.store(), CaptureQueriesContext(connections[project_store("alpha").alias]) as queries:
            graph_around(entity_id)
        return len(queries)

    def test_the_page_lists_what_it_draws(self) -> None:
        self.assertIn("applies to Buy a pump", text_of(self.page(f"graph/{self.memory_id}/")))
        self.assertIn(self.address(f"graph/{self.memory_id}/"), self.page(f"memories/memory/{self.memory_id}/change/"))
        alone, hint = f"graph/{self.write('Far away', 'another text')}/", "of the types that are shown"
        self.assert_shows(self.page(alone), "No neighbours", lacks=[hint])
        self.assertIn(hint, self.page(alone, type="file"))
        self.page("graph/999999/", status=404)
        self.page(f"graph/{self.memory_id}/", type="nonsense", depth="x")


READERS = (("ann/laptop", "mcp"), ("ann/desk", "hook"), ("ben/laptop", "mcp"), ("token:ci", "rest"), ("codex", "mcp"))
PERSONS = {"ann/laptop": ("ann", "laptop"), "ann/desk": ("ann", "desk"), "ben/laptop": ("ben", "laptop")}


class AuditTestCase(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        # A guideline is in every pack
        self.written_by("ada", "service", "Tide", kind="guideline")

    def read(self, actor: str, source: str, query: str = "") -> int:
        with self.store(actor=actor, source=source):
            return pack_context(command=ContextPackRequest(query=query)).id

    def written_by(self, actor: str, source: str, title: str, **fields: Any) -> None:
        with self.store(actor=actor, source=source):
            write_memory(command=MemoryWrite(title=title, content=f"About {title}.", **fields))

    def audited(self, **fields: Any) -> list[dict[str, Any]]:
        with self.store():
            return list_packs_read(command=AuditRequest(**fields)).results


@tag("backend")
class ReadingTests(AuditTestCase):
    def test_each_reader_of_the_same_pack_is_named_once(self) -> None:
        packs = [self.read(actor, source) for actor, source in READERS]
        self.assertEqual([self.read(actor, source) for actor, source in READERS], packs)
        items = {item["position"]: item for item in self.audited()}
        self.assertEqual(len(items), len(READERS))
        for pack, (actor, source) in zip(packs, READERS, strict=True):
            person, client = PERSONS.get(actor, ("", actor))
            item = items[pack]
            self.assertEqual((item["person"], item["client"], item["door"]), (person, client, source))
            self.assertEqual(item["entries"], ["#1"])
            with self.store():
                self.assertEqual(item["digest"], log.digest_at(pack))

    def test_counts_agree_with_what_was_done(self) -> None:
        source = random.Random(7)
        expected: Counter[tuple[str, str, str]] = Counter()
        for number in range(60):
            actor, door = source.choice(READERS)
            if source.random() < 0.5:
                before = len(self.audited(limit=100))
                self.read(actor, door, f"question {number}")
                expected[actor, door, "packs"] += len(self.audited(limit=100)) - before
            else:
                self.written_by(actor, door, f"Fact {number}")
                expected[actor, door, "writes"] += 1
        with self.store():
            activity = {(item.person, item.client, item.door): item for item in list_activity(command=AuditPeriod())}
        for actor, door in READERS:
            item = activity[*PERSONS.get(actor, ("", actor)), door]
            counts = (expected[actor, door, "packs"], expected[actor, door, "writes"])
            self.assertEqual((item.packs, item.writes), counts)

    def test_a_person_is_listed_with_all_their_clients_and_nobody_else(self) -> None:
        others = (("annabel/laptop", "mcp"), ("ann0", "mcp"), ("Ann/laptop", "mcp"))
        for actor, source in (*READERS, ("ann", "admin"), *others):
            self.read(actor, source, f"asked by {actor}")
        clients = [(item["person"], item["client"]) for item in self.audited(person="ann")]
        self.assertEqual(sorted(clients), [("ann", ""), ("ann", "desk"), ("ann", "laptop")])

    def test_a_period_begins_with_its_first_and_ends_before_its_last_moment(self) -> None:
        now = clock.now()
        for hours in range(4):
            with clock.frozen(now + timedelta(hours=hours)):
                self.read("ann/laptop", "mcp", f"question {hours}")
        items = self.audited(since=now + timedelta(hours=1), until=now + timedelta(hours=3))
        self.assertEqual([item["query"] for item in items], ["question 2", "question 1"])

    def test_pages_follow_each_other_and_an_export_is_made_in_steps(self) -> None:
        packs = [self.read("ann/laptop", "mcp", f"question {number}") for number in range(7)]
        with self.store():
            listings = pages(lambda **page: list_packs_read(command=AuditRequest(**page)), limit=2)
            self.assertEqual([item["position"] for page in listings for item in page.results], packs[::-1])
            with mock.patch.object(audit, "_AT_ONCE", 3):
                lines = [json.loads(line) for line in export_audit(command=AuditExport(form="jsonl"))]
        self.assertEqual(lines[0]["client"], "laptop")
        self.assertEqual([line["position"] for line in lines], packs)

    def test_whoever_reads_the_log_reads_the_audit(self) -> None:
        pack = self.read("ann/laptop", "mcp", "tides")
        viewer = Grant(frozenset(), everywhere=False, places={"project:alpha": MEMBER_ROLES["viewer"]})
        with use_grant(viewer), self.store(create=False):
            (item,) = list_packs_read(command=AuditRequest()).results
            self.assertEqual((item["position"], item["person"]), (pack, "ann"))
            self.assertEqual([item.packs for item in list_activity(command=AuditPeriod(person="ann"))], [1])
            self.assertIn('"tides"', next(iter(export_audit(command=AuditExport(form="jsonl")))))


class InterfaceTests(AuditTestCase):
    def test_the_routes(self) -> None:
        self.read("ann/laptop", "mcp", "=cmd()")
        listed = self.call("GET", "projects/alpha/audit").data
        self.assertEqual([item["person"] for item in listed["results"]], ["ann"])
        activity = self.call("GET", "projects/alpha/audit/activity?person=ann").data
        self.assertEqual([(item["client"], item["packs"]) for item in activity], [("laptop", 1)])
        address = "/api/v1/projects/alpha/audit/export?form=csv"
        exported = self.client.get(address, headers={"authorization": f"Bearer {read_token()}"})
        (line,) = csv.DictReader(io.StringIO(exported.getvalue().decode()))
        self.assertEqual((line["person"], line["query"], line["entries"]), ("ann", "'=cmd()", "#1"))
        for query in ("form=xml", "since=yesterday"):
            self.call("GET", f"projects/alpha/audit/export?{query}", expect=422)

    def test_the_page_and_its_download(self) -> None:
        self.read("ann/laptop", "mcp", "tides")
        page = "/p/alpha/admin/audit/"
        for name, role in (("olga", "owner"), ("vic", "viewer")):
            reader = Client(headers={"host": "localhost"})
            reader.force_login(add_person(command=PersonAdd(name=name, role=role)))
            self.assertContains(reader.get(page), "laptop")
            self.assertContains(reader.get(page), f'href="{page}"')
        self.assertNotContains(reader.get(f"{page}?person=ben"), "laptop")
        self.assertEqual(reader.get(f"{page}?since=yesterday").status_code, 422)
        (line,) = [json.loads(text) for text in reader.get(f"{page}?form=jsonl").getvalue().decode().splitlines()]
        self.assertEqual(line["query"], "tides")
