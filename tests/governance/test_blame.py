"""Blame: from a line of a file to the prompt, with a real repository, and what each door answers."""

from __future__ import annotations

import json
import tempfile
from contextlib import chdir
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command
from django.db import connections
from django.test.utils import CaptureQueriesContext

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.blame.schemas import BlamedRange, BlameRequest
from governance.blame.selectors import Blame, blame
from memories.schemas import MemoryTouch, MemoryWrite
from memories.services import delete_memory, write_memory
from memoryhub.config.identity import bind_project
from memoryhub.core import clock
from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store
from sessions_app import git
from sessions_app.schemas import CommitRead, SessionStart
from sessions_app.services import record_commit, record_commits, start_session
from sessions_app.services.turns import append_automatically, automatic_turn
from tests.admin.base import AdminTestCase, text_of
from tests.governance.rollback_case import quarantine
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
