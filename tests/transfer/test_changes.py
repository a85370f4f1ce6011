"""What a branch changes in the memory: from the store, from committed files, and as Markdown that data cannot forge."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from django.test import SimpleTestCase, tag
from markdown_it import MarkdownIt

from decisions.models import Decision
from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories.events import AMENDMENT_FOUND, ENTRY_ANCHORED, AmendmentFound, AnchorRecord, EntryAnchored
from memories.models import AmendmentKind, Memory
from memories.schemas.links import RelationCreate
from memories.services.links import create_relation
from memories.validity.trust import trusts_of
from memoryhub import __version__
from memoryhub.core import log
from memoryhub.core.errors import Forbidden, Invalid, NotFound, Unavailable
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import VERBS, Grant, use_grant
from memoryhub.core.windows import note_session, window
from memoryhub.transfer.authorship import Authorship
from memoryhub.transfer.bundles.archive import create_bundle
from memoryhub.transfer.changes import markdown
from memoryhub.transfer.changes.committed import committed_changes
from memoryhub.transfer.changes.markdown import MAX_COMMENT, markdown_report
from memoryhub.transfer.changes.report import ChangeKind, ChangeReport, EntryChange, EntryText
from memoryhub.transfer.changes.stored import stored_changes
from memoryhub.transfer.changes.verdicts import VerdictStep, accept_changes, drop_changes
from memoryhub.transfer.folder import FolderForm
from memoryhub.transfer.mirror.service import Mirror
from sessions_app.git.ranges import CommitRange, find_range
from sessions_app.schemas import SessionStart, SettingsChange
from sessions_app.services import start_session
from sessions_app.services.profile import change_settings
from tests.databases import at_home
from tests.home import run_home
from tests.memories.base import MemoriesTestCase
from tests.secrets_made import SECRETS
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase, forget_all_stores, run_command

ROOT = Path(__file__).parents[2]
FOLDER = "docs/memory"


class ChangesTestCase(MemoriesTestCase):
    """A repository on the branch ``feature/login``, in which the client ``claude-code`` works in the session ``s1``."""

    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(self.home / "shop")
        self.folder = self.repository.folder
        self.git = self.repository.git
        self.repository.commit("base", **{"src/auth.py": b"def login():\n    return 1\n"})
        self.git("switch", "-q", "-c", "feature/login")
        start_session(
            command=SessionStart(session_id="s1", purpose="Make the login strict", directory=str(self.folder))
        )

    @contextmanager
    def session(self, name: str = "s1") -> Iterator[None]:
        with use_origin(source="mcp", actor="claude-code", session_id=name):
            yield

    def commit(self, message: str = "next") -> str:
        return self.repository.commit(message, **{"src/auth.py": f"def login():\n    return {message!r}\n".encode()})

    def learn(self, title: str = "Login is strict", content: str = "", **fields: Any) -> int:
        with self.session():
            return self.write(title, content or f"{title}. Every caller knows.", **fields)

    def range(self, name: str = "main..HEAD") -> CommitRange:
        return find_range(self.folder, name)

    def report(self, name: str = "main..HEAD") -> ChangeReport:
        return stored_changes(self.range(name))

    def changes(self, name: str = "main..HEAD") -> list[tuple[str, str]]:
        return [(change.change.value, change.text.title) for change in self.report(name).results]

    def mirror(self) -> None:
        Mirror(self.folder / FOLDER, FolderForm.MARKDOWN).run()

    def committed(self, name: str = "main..HEAD") -> ChangeReport:
        self.repository.commit("mirror")
        return committed_changes(self.range(name), FOLDER)

    def run_there(self, *arguments: str) -> Any:
        with chdir(self.folder):
            return run_command("changes", *arguments, "--project", "alpha")


@tag("backend")
class StoredChangesTests(ChangesTestCase):
    def test_a_new_memory_has_its_author_session_branch_commit_and_code(self) -> None:
        sha = self.commit()
        old = self.write("Login is lax", "Any caller.")
        memory_id = self.learn(content="Every caller passes it.", kind="guideline", tags=["auth"])
        anchors = [AnchorRecord(path="src/auth.py", first=1, last=2), AnchorRecord(path="src/auth.py", symbol="login")]
        anchored = EntryAnchored(entity_id=memory_id, anchors=anchors)
        amendment = AmendmentFound(newer_id=memory_id, older_id=old, kind=AmendmentKind.AMENDS)
        with log.transaction():
            log.append(log.prepare(ENTRY_ANCHORED, anchored), stream=f"memory:{memory_id}")
            log.append(log.prepare(AMENDMENT_FOUND, amendment), stream="project")
        [change] = self.report().results
        self.assertEqual((change.change, change.id), (ChangeKind.ADDED, memory_id))
        self.assertEqual(
            change.after, EntryText("Login is strict", "guideline, general, tags: auth", "Every caller passes it.")
        )
        self.assertEqual(
            change.authorship,
            Authorship(
                author="claude-code",
                session_id="s1",
                purpose="Make the login strict",
                branch="feature/login",
                commit=sha,
                code=["src/auth.py:1-2", "src/auth.py#login"],
                amends=[old],
            ),
        )
        text = markdown_report(self.report())
        self.assertIn(f"**amends** `#{old}`", text)
        self.assertIn("about `src/auth.py:1-2`, `src/auth.py#login`", text)
        self.assertIn("in the session `Make the login strict`", text)

    def test_a_changed_memory_has_the_text_before_the_branch(self) -> None:
        self.git("switch", "-q", "main")
        memory_id = self.learn(content="One.")
        with self.session():
            self.update(memory_id, content="Two.")
        self.git("switch", "-q", "feature/login")
        self.commit()
        with self.session():
            self.update(memory_id, content="Three.")
            self.update(memory_id, content="Four.")
        [change] = self.report().results
        self.assertEqual((change.change, change.base_version, change.version), (ChangeKind.CHANGED, 2, 4))
        assert change.before
        assert change.after
        self.assertEqual((change.before.text, change.after.text), ("Two.", "Four."))
        self.assertIn("- Two.\n+ Four.", markdown_report(self.report()))

    def test_what_a_session_of_the_branch_deletes_is_removed(self) -> None:
        old = self.write("The cache is off", "Since June.")
        other = self.write("The cache is on", "Since July.")
        self.commit()
        self.learn()
        with self.session():
            self.delete(old)
        with self.session("s2"):
            self.delete(other)
        self.assertEqual(self.changes(), [("added", "Login is strict"), ("removed", "The cache is off")])
        self.assertIn("- Since June.", markdown_report(self.report()))

    def test_a_memory_that_is_deleted_again_is_no_change(self) -> None:
        self.commit()
        memory_id = self.learn()
        with self.session():
            self.delete(memory_id)
        self.assertEqual(self.changes(), [])

    def test_a_decision_is_added(self) -> None:
        self.commit()
        with self.session():
            command = DecisionRecord(
                title="Pass strict", chosen="A parameter", rationale="No globals.", alternatives=[]
            )
            record_decision(command=command)
        [change] = self.report().results
        self.assertEqual((change.thing, change.text.facts), ("decision", "decision, accepted"))
        self.assertIn("because No globals.", change.text.text)

    def test_only_what_the_branch_learnt_is_in_its_range(self) -> None:
        self.git("switch", "-q", "main")
        self.learn("On main")
        self.git("switch", "-q", "-c", "other")
        self.commit("other")
        self.learn("On another branch")
        self.git("switch", "-q", "feature/login")
        self.commit()
        self.learn("Here")
        self.write("Outside sessions")
        self.assertEqual(self.changes(), [("added", "Here")])
        self.assertEqual(self.changes("main..other"), [("added", "On another branch")])
        self.assertEqual(self.changes("other..feature/login"), [("added", "Here")])
        self.git("switch", "-q", "main")
        self.git("merge", "-q", "--no-ff", "-m", "merge", "feature/login")
        self.assertEqual(self.changes("main..feature/login"), [])
        self.assertEqual(self.changes("HEAD^1..HEAD"), [("added", "Here")])

    def test_what_was_learnt_before_the_first_commit_belongs_to_the_branch(self) -> None:
        self.learn("Before any edit")
        self.assertEqual(self.changes(), [])
        self.commit()
        self.assertEqual([change.is_bound for change in self.report().results], [False])

    def test_a_rebased_branch_keeps_what_it_learnt(self) -> None:
        self.commit()
        self.learn()
        self.git("switch", "-q", "main")
        self.repository.commit("more", **{"other.py": b"x = 1\n"})
        self.git("switch", "-q", "feature/login")
        self.git("rebase", "-q", "main")
        self.assertEqual(self.changes(), [("added", "Login is strict")])

    def test_a_squashed_merge_has_what_its_branch_learnt(self) -> None:
        self.commit()
        self.learn()
        self.git("switch", "-q", "main")
        self.git("merge", "-q", "--squash", "feature/login")
        self.git("commit", "-q", "-m", "Squashed")
        self.assertEqual(self.changes("HEAD~1..HEAD"), [("added", "Login is strict")])
        self.assertEqual(self.changes("main..feature/login"), [])

    def test_a_branch_that_learnt_nothing_takes_one_line(self) -> None:
        self.commit()
        text = markdown_report(self.report())
        self.assertEqual(text, "No memory or decision was added, changed or removed in `main..HEAD`.")


class RangeTests(ChangesTestCase):
    def test_a_wrong_range_is_one_sentence(self) -> None:
        for name in ("main", "..HEAD", "main....HEAD", "", "x" * 400 + "..HEAD"):
            with self.subTest(name), self.refuses(Invalid, "is not a range of commits; write BASE..HEAD"):
                self.range(name)
        for name in ("nope..HEAD", "main..nope", "--all..HEAD", "main..-x"):
            with self.subTest(name), self.refuses(NotFound, "there is no commit '"):
                self.range(name)
        with self.refuses(Invalid, "in no working tree of git"):
            find_range(self.home, "main..HEAD")
        self.git("switch", "-q", "--orphan", "alone")
        self.repository.commit("alone")
        with self.refuses(Invalid, "have no commit in common"):
            self.range("main..alone")

    def test_two_and_three_dots_and_no_end_are_the_same(self) -> None:
        sha = self.commit()
        for name in ("main..HEAD", "main...HEAD", "main..", f"main..{sha}"):
            with self.subTest(name):
                self.assertEqual((self.range(name).head, self.range(name).commits), (sha, frozenset({sha})))
        self.assertEqual(self.range().branch, "feature/login")
        self.assertEqual(self.range(f"main..{sha}").branch, "")

    def test_a_shallow_clone_is_refused_with_the_cure(self) -> None:
        self.commit()
        shallow = self.home / "shallow"
        self.git("clone", "-q", "--depth", "1", f"file://{self.folder}", str(shallow))
        with self.refuses(Unavailable, "is a shallow clone.*git fetch --unshallow"):
            find_range(shallow, "HEAD..HEAD")

    def test_without_git_it_is_one_sentence(self) -> None:
        with mock.patch.dict(os.environ, PATH="/nonexistent"), self.refuses(Unavailable, "git is not installed"):
            self.range()


class CommittedChangesTests(ChangesTestCase):
    def test_files_of_the_mirror_are_compared_at_the_ends(self) -> None:
        old = self.write("The cache is off", "Since June.")
        changed = self.write("Session length", "30 minutes.")
        same = self.write("Same", "Same.")
        self.mirror()
        self.git("switch", "-q", "main")
        self.repository.commit("mirror")
        self.git("switch", "-q", "feature/login")
        self.git("merge", "-q", "main")
        sha = self.commit()
        memory_id = self.learn()
        with self.session():
            self.update(changed, content="60 minutes.")
            self.delete(old)
        self.mirror()
        # Renamed, which is no change
        (self.folder / FOLDER / "memories/same.md").rename(self.folder / FOLDER / "memories/renamed.md")
        report = self.committed()
        self.assertEqual(
            sorted((change.change.value, change.text.title) for change in report.results),
            [("added", "Login is strict"), ("changed", "Session length"), ("removed", "The cache is off")],
        )
        self.assertTrue(same)
        by_title = {change.text.title: change for change in report.results}
        added = by_title["Login is strict"]
        self.assertEqual(added.path, f"{FOLDER}/memories/login-is-strict.md")
        self.assertEqual(added.authorship.author, "claude-code")
        self.assertEqual(added.authorship.purpose, "Make the login strict")
        self.assertEqual((added.authorship.branch, added.authorship.commit), ("feature/login", sha[:12]))
        self.assertEqual(list(added.committers), ["Ann Ö"])
        self.assertTrue(memory_id)
        self.assertIn("- 30 minutes.\n+ 60 minutes.", markdown_report(report))

    def test_an_edit_by_hand_has_no_client(self) -> None:
        self.commit()
        self.learn()
        self.mirror()
        self.git("switch", "-q", "main")
        self.git("merge", "-q", "feature/login")
        self.repository.commit("mirror")
        self.git("switch", "-q", "-c", "by-hand")
        path = self.folder / FOLDER / "memories/login-is-strict.md"
        path.write_text(path.read_text().replace("Every caller", "No caller"))
        [change] = self.committed().results
        self.assertEqual((change.change, change.authorship), (ChangeKind.CHANGED, Authorship()))
        self.assertEqual(list(change.committers), ["Ann Ö"])

    def test_new_files_need_no_id_and_odd_ones_are_named(self) -> None:
        folder = self.folder / FOLDER / "memories"
        folder.mkdir(parents=True)
        (folder / "plain.md").write_text("# A note\n\nBy hand.\n")
        (folder / "a.conflict-1.md").write_text("# Conflict\n\nx\n")
        (folder / ".hidden.md").write_text("# Hidden\n\nx\n")
        (folder / "latin.md").write_bytes(b"# Caf\xe9\n\nx\n")
        (folder / "both.md").write_text("# Both\n\n<<<<<<< a\nx\n=======\ny\n>>>>>>> b\n")
        (folder / "large.md").write_text("# Large\n\n" + "x" * 2_000_001)
        (folder / "link.md").symlink_to("/etc/passwd")
        report = self.committed()
        self.assertEqual([change.text.title for change in report.results], ["A note"])
        self.assertEqual(
            sorted(path.rpartition("/")[2] for path, _ in report.unread), ["both.md", "large.md", "latin.md"]
        )
        text = markdown_report(report)
        self.assertIn("`docs/memory/memories/latin.md` was not read: `it is not UTF-8 text`", text)
        self.assertNotIn("passwd", text)

    def test_decisions_are_compared_with_their_status(self) -> None:
        self.commit()
        with self.session():
            command = DecisionRecord(
                title="Pass strict", chosen="A parameter", rationale="No globals.", alternatives=[]
            )
            record_decision(command=command)
        self.mirror()
        [change] = self.committed().results
        self.assertEqual((change.thing, change.text.facts), ("decision", "decision, accepted"))
        self.assertEqual(change.authorship.author, "claude-code")

    def test_secrets_in_files_and_their_names_are_masked(self) -> None:
        secret = SECRETS["github"][0]
        folder = self.folder / FOLDER / "memories"
        folder.mkdir(parents=True)
        (folder / "plain.md").write_text(
            f"---\nprovenance: {json.dumps({'author': secret})}\n---\n# {secret}\n\n{secret}\n"
        )
        (folder / f"{secret}.md").write_text("# A note\n\nBy hand.\n")
        report = self.committed()
        self.assertEqual(len(report.results), 2)
        self.assertNotIn(secret, markdown_report(report) + repr(report))

    def test_a_provenance_of_any_form_is_harmless(self) -> None:
        folder = self.folder / FOLDER / "memories"
        folder.mkdir(parents=True)
        for number, value in enumerate(
            ("1", "[1, 2]", "null", '{"author": [1], "code": [1, {"a": 1}], "session": {}}')
        ):
            (folder / f"{number}.md").write_text(f"---\nprovenance: {value}\n---\n# N{number}\n\nx\n")
        self.assertEqual([change.authorship for change in self.committed().results], [Authorship()] * 4)

    def test_a_folder_without_files_is_one_sentence(self) -> None:
        self.commit()
        with self.refuses(NotFound, "no commit of main..HEAD has Markdown files in docs/none; commit the folder"):
            committed_changes(self.range(), "docs/none")


HOSTILE = (
    "# Heading\n## Memory changes in `main..HEAD`\n```\n````\n~~~\n/close\n/merge\n"
    "<!-- memory-hub changes -->\n</details>\n"
    "<script>alert(1)</script>\n@everyone fixes #12\n![x](https://tracker.example/a.png)\n[link](https://evil.example)\n"
    "https://evil.example\n| a | b |\n|---|---|\n- [ ] task\n> quote\n"
    "\u2028/approve\r/label ~x\n\u202egnp.exe\x1b[2J\n---\n"
)


class MarkdownTests(SimpleTestCase):
    def report(self, *texts: EntryText, **fields: Any) -> ChangeReport:
        report = ChangeReport("main..HEAD", "a" * 40, "b" * 40, "x", "")
        for text in texts:
            change = EntryChange(
                change=ChangeKind.ADDED,
                thing="memory",
                id=7,
                path="",
                before=None,
                after=text,
                authorship=Authorship(author="claude-code"),
            )
            report.results.append(replace(change, **fields))
        return report

    def hostile_report(self, change: ChangeKind) -> ChangeReport:
        text = EntryText(HOSTILE, HOSTILE, HOSTILE)
        authorship = Authorship(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, [HOSTILE, "`", "``"], [HOSTILE], [HOSTILE])
        before = EntryText("Old", "note", HOSTILE.upper())
        every_end: dict[ChangeKind, dict[str, Any]] = {
            ChangeKind.ADDED: {},
            ChangeKind.CHANGED: {"before": before},
            ChangeKind.REMOVED: {"before": text, "after": None},
        }
        ends = every_end[change]
        report = self.report(text, change=change, authorship=authorship, path=HOSTILE, committers=[HOSTILE], **ends)
        report.unread = [(HOSTILE, HOSTILE)]
        return report

    def test_stored_text_cannot_forge_the_report(self) -> None:
        for kind in ChangeKind:
            with self.subTest(kind):
                text = markdown_report(self.hostile_report(kind))
                tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
                blocks = [token.type for token in tokens if not token.type.endswith("_close")]
                expected = ["heading_open", "inline", "paragraph_open", "inline", "heading_open", "inline"]
                expected += ["heading_open", "inline", "paragraph_open", "inline", "fence"]
                expected += ["bullet_list_open", "list_item_open", "paragraph_open", "inline"]
                self.assertEqual(blocks, expected)
                inline = [child for token in tokens for child in token.children or ()]
                self.assertLessEqual(
                    {child.type for child in inline}, {"text", "code_inline", "strong_open", "strong_close"}
                )
                words = " ".join(child.content for child in inline if child.type == "text")
                self.assertNotRegex(words, r"@|#\d|evil|tracker|fixes|<")
                for line in text.splitlines():
                    self.assertNotRegex(line, r"^\s*(/|<|~~~|\||#(?!#))")
                self.assertNotRegex(text, "[\u2028\u202e\x1b\r]")

    def test_each_length_of_fence_is_outdone(self) -> None:
        for length in range(1, 9):
            with self.subTest(length):
                ticks = "`" * length
                text = markdown_report(self.report(EntryText(f"a {ticks} b", "note", f"{ticks}\n{ticks}{ticks}\nend")))
                tokens = MarkdownIt("commonmark").parse(text)
                [fence] = [token for token in tokens if token.type == "fence"]
                self.assertEqual(fence.content, f"+ {ticks}\n+ {ticks}{ticks}\n+ end\n")
                spans = [
                    child.content for token in tokens for child in token.children or () if child.type == "code_inline"
                ]
                self.assertIn(f"a {ticks} b", spans)

    def test_a_comment_is_bounded_and_names_what_is_left_out(self) -> None:
        texts = [EntryText(f"Title {number}", "note", "Long text. " * 500) for number in range(40)]
        text = markdown_report(self.report(*texts))
        self.assertLessEqual(len(text), MAX_COMMENT)
        match = re.search(r"\n(\d+) entries left out: .* `memory-hub changes main\.\.HEAD --json` prints all\.\Z", text)
        assert match
        self.assertEqual(int(match[1]), 40 - text.count("#### "))
        one = markdown_report(self.report(EntryText("Title", "note", "Line.\n" * 500)))
        self.assertIn("\n440 more lines.", one)

    def test_hashes_of_the_range_are_short(self) -> None:
        report = self.report(EntryText("Title", "note", "Text"))
        report.range = f"{'a' * 40}..{'b' * 64}"
        self.assertIn(f"## Memory changes in `{'a' * 12}..{'b' * 12}`\n", markdown_report(report))

    def test_many_unreadable_files_take_few_lines(self) -> None:
        report = self.report(EntryText("Title", "note", "Text"))
        report.unread = [(f"a{number}.md", "it is not text") for number in range(5_000)]
        text = markdown_report(report)
        self.assertEqual(text.count("was not read"), markdown._MOST_UNREAD)
        self.assertIn("- 4,990 more files could not be read", text)


@tag("backend")
class VerdictsTests(ChangesTestCase):
    def steps(self, steps: list[VerdictStep]) -> list[tuple[str, str]]:
        return [(step.did, step.title) for step in steps]

    def test_merging_accepts_what_waits_for_a_review(self) -> None:
        change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        self.commit()
        memory_id = self.learn()
        with self.session():
            proposal = DecisionRecord(
                title="Pass strict", chosen="It", rationale="So.", alternatives=[], status="proposed"
            )
            decision_id = record_decision(command=proposal).id
        text = markdown_report(self.report())
        self.assertIn("2 added, 2 of them waiting for a review.", text)
        self.assertIn("**waits for a review**", text)
        steps = accept_changes(self.report())
        self.assertEqual(self.steps(steps), [("accepted", "Login is strict"), ("accepted", "Pass strict")])
        self.assertEqual(Memory.objects.get(id=memory_id).review, "accepted")
        self.assertEqual(Decision.objects.get(id=decision_id).status, "accepted")
        self.assertEqual({step.did for step in accept_changes(self.report())}, {"left"})
        self.assert_rebuilds()

    def test_what_needs_no_review_is_accepted_by_a_person_too(self) -> None:
        self.commit()
        memory_id = self.learn()
        self.assertEqual(trusts_of([memory_id])[memory_id].accepted_by, "")
        self.assertEqual(self.steps(accept_changes(self.report())), [("accepted", "Login is strict")])
        self.assertEqual(trusts_of([memory_id])[memory_id].accepted_by, "ada")
        [step] = drop_changes(self.report())
        self.assertEqual((step.did, step.why), ("left", "ada has accepted this text"))

    def test_only_the_text_of_the_range_is_accepted(self) -> None:
        change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        self.commit()
        memory_id = self.learn()
        report = self.report()
        with self.session():
            self.update(memory_id, content="Another text.")
        [step] = accept_changes(report)
        self.assertEqual((step.did, step.why), ("left", f"#{memory_id} has another text since; review it in the inbox"))
        self.assertEqual(Memory.objects.get(id=memory_id).review, "proposed")

    def test_another_hub_accepts_the_text_of_the_merged_file(self) -> None:
        change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        folder = self.folder / FOLDER / "memories"
        folder.mkdir(parents=True)
        self.repository.commit("before")
        (folder / "one.md").write_text("# One\n\nFirst.\n")
        (folder / "two.md").write_text("# Two\n\nSecond.\n")
        report = self.committed("HEAD..HEAD")
        self.assertEqual(report.results, [])
        with use_origin(source="cli"):
            self.mirror()
        report = self.committed("HEAD^..HEAD")
        Memory.objects.filter(title="Two").update(content="Changed here.")
        with use_origin(source="cli"):
            steps = accept_changes(report)
        self.assertEqual(self.steps(steps), [("accepted", "One"), ("left", "Two")])

    def test_a_file_that_the_store_has_not_read_is_left(self) -> None:
        folder = self.folder / FOLDER / "memories"
        folder.mkdir(parents=True)
        (folder / "one.md").write_text("# One\n\nFirst.\n")
        [step] = accept_changes(self.committed())
        self.assertEqual(step.did, "left")
        self.assertIn("is not in this store; run `memory-hub mirror docs/memory` first", step.why)

    def test_closing_drops_what_only_the_branch_learnt(self) -> None:
        self.git("switch", "-q", "main")
        old = self.learn("Session length", "30 minutes.")
        self.git("switch", "-q", "feature/login")
        before = self.learn("Before any edit")
        self.commit()
        new = self.learn()
        with self.session():
            self.update(old, content="60 minutes.")
            record_decision(command=DecisionRecord(title="Pass it", chosen="It", rationale="So.", alternatives=[]))
        steps = drop_changes(self.report())
        self.assertEqual(
            self.steps(steps),
            [
                ("restored", "Session length"),
                ("left", "Before any edit"),
                ("deleted", "Login is strict"),
                ("rejected", "Pass it"),
            ],
        )
        self.assertEqual(Memory.objects.get(id=old).content, "30 minutes.")
        self.assertIsNone(Memory.objects.get(id=before).deleted_at)
        self.assertIsNotNone(Memory.objects.get(id=new).deleted_at)
        self.assertEqual(Decision.objects.get().status, "rejected")
        self.restore(new)
        self.assertIsNone(Memory.objects.get(id=new).deleted_at)
        self.assert_rebuilds()

    def test_a_proposed_text_of_a_dropped_branch_is_rejected(self) -> None:
        self.git("switch", "-q", "main")
        old = self.learn("Session length", "30 minutes.")
        self.git("switch", "-q", "feature/login")
        self.commit()
        change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        with self.session():
            self.update(old, content="60 minutes.")
        self.assertEqual(self.steps(drop_changes(self.report())), [("rejected", "Session length")])
        self.assertEqual(Memory.objects.get(id=old).content, "30 minutes.")

    def test_an_agent_neither_accepts_nor_drops(self) -> None:
        self.commit()
        self.learn()
        report = self.report()
        for act in (accept_changes, drop_changes):
            with (
                use_grant(Grant(VERBS["write"])),
                self.refuses(Forbidden, "may not .* what a branch learnt"),
            ):
                act(report)
        # A command in a client's terminal belongs to its session
        note_session(window(), "s1")
        for act in (accept_changes, drop_changes):
            with self.refuses(Forbidden, "a client's session runs this command, and only a person can"):
                act(report)


class MirroredProvenanceTests(ChangesTestCase):
    FILE = f"{FOLDER}/memories/login-is-strict.md"

    def text(self) -> str:
        return (self.folder / self.FILE).read_text()

    def quiet(self) -> bool:
        return not Mirror(self.folder / FOLDER, FolderForm.MARKDOWN).run().steps

    def test_only_what_was_learnt_in_a_working_tree_has_it(self) -> None:
        self.commit()
        self.write("Outside sessions", "By a script.")
        self.learn()
        self.mirror()
        self.assertIn('\nprovenance: {"author": "claude-code", "session": "Make the login strict", ', self.text())
        self.assertNotIn("provenance", (self.folder / FOLDER / "memories/outside-sessions.md").read_text())
        self.assertTrue(self.quiet())

    def test_an_edit_in_the_folder_has_no_client_when_the_file_is_written_again(self) -> None:
        self.commit()
        memory_id = self.learn()
        self.mirror()
        (self.folder / self.FILE).write_text(self.text().replace("Every caller", "No caller"))
        with use_origin(source="cli"):
            self.mirror()
        self.assertTrue(self.quiet())
        other = self.write("No locks", "Nothing.")
        create_relation(command=RelationCreate(source=str(memory_id), relation="related_to", target=str(other)))
        self.mirror()
        self.assertIn("No caller", self.text())
        self.assertNotIn("provenance", self.text())
        with self.session():
            self.update(memory_id, content="By the client.")
        self.mirror()
        self.assertIn("provenance", self.text())

    def test_another_hub_keeps_the_line_until_it_writes_a_text(self) -> None:
        self.commit()
        self.learn()
        self.mirror()
        line = re.findall("(?m)^provenance: .*", self.text())
        with self.store("beta", source="cli", actor="bob"):
            copy = self.home / "copy"
            shutil.copytree(self.folder / FOLDER, copy)
            Mirror(copy, FolderForm.MARKDOWN).run()
            memory_id = Memory.objects.get().id
            other = self.write("No locks", "Nothing.")
            create_relation(command=RelationCreate(source=str(memory_id), relation="related_to", target=str(other)))
            Mirror(copy, FolderForm.MARKDOWN).run()
            text = (copy / "memories/login-is-strict.md").read_text()
            self.assertIn("related_to", text)
            self.assertEqual(re.findall("(?m)^provenance: .*", text), line)
            self.update(memory_id, content="Another text.")
            Mirror(copy, FolderForm.MARKDOWN).run()
            self.assertNotIn("provenance", (copy / "memories/login-is-strict.md").read_text())

    def test_a_redaction_of_the_session_reaches_the_file(self) -> None:
        self.commit()
        self.learn()
        self.mirror()
        selection = {"text": "Make the login strict"}
        token = preview_redaction(command=RedactionSelect(**selection)).confirm_token
        redact(command=RedactionRun(**selection, confirm_token=token))
        self.mirror()
        self.assertNotIn("Make the login strict", self.text())
        self.assertIn("[REDACTED:", self.text())


class CommandTests(ChangesTestCase):
    def test_the_report_as_markdown_and_as_json(self) -> None:
        self.commit()
        self.learn()
        self.mirror()
        self.repository.commit("mirror")
        done = self.run_there("main..HEAD")
        self.assertEqual((done.code, done.errors), (0, ""))
        self.assertIn("#### `#", done.output)
        mirrored = self.run_there("main..HEAD", "--mirror", FOLDER)
        self.assertIn("#### `Login is strict`\n", mirrored.output)
        for arguments, folder in (([], ""), (["--mirror", FOLDER], FOLDER)):
            data = json.loads(self.run_there("main..HEAD", *arguments, "--json").output)
            self.assertEqual((data["range"], data["folder"]), ("main..HEAD", folder))
            self.assertEqual(data["counts"], {"added": 1, "changed": 0, "removed": 0})
            self.assertEqual(data["results"][0]["authorship"]["author"], "claude-code")

    def test_errors_are_one_sentence_with_an_exit_code(self) -> None:
        cases = {
            "": (2, "name a range of commits, such as main..HEAD"),
            "main": (2, "'main' is not a range"),
            "main..nope": (3, "there is no commit 'nope'"),
            "main..HEAD --mirror /tmp": (2, "/tmp is not in the repository"),
            "main..HEAD --mirror docs/none": (3, "no commit of main..HEAD has Markdown files in docs/none"),
            "main..HEAD --drop --mirror docs": (2, "--drop takes back what the store learnt; leave out --mirror"),
            "main..HEAD --project nope": (
                3,
                "there is no project 'nope'.*; or compare .* with --mirror DIR",
            ),
        }
        for words, (code, sentence) in cases.items():
            with self.subTest(words), chdir(self.folder):
                done = run_command("changes", *words.split(), *([] if "--project" in words else ["--project", "alpha"]))
                self.assertEqual((done.code, len(done.lines)), (code, 1), done.lines)
                self.assertRegex(done.errors, sentence)

    def test_a_merge_is_accepted_on_the_command_line(self) -> None:
        change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        self.commit()
        memory_id = self.learn()
        done = self.run_there("main..HEAD", "--accept")
        self.assertEqual(done.output, f"accepted  #{memory_id} Login is strict\n1 entry of 1 settled\n")
        data = json.loads(self.run_there("main..HEAD", "--drop", "--json").output)
        self.assertEqual([step["did"] for step in data["results"]], ["left"])

    def test_the_mirror_needs_no_store(self) -> None:
        self.commit()
        self.learn()
        self.mirror()
        self.repository.commit("mirror")
        empty = self.home / "empty"
        empty.mkdir()
        with at_home(empty), chdir(self.folder):
            done = run_command("changes", "main..HEAD", "--mirror", FOLDER)
        self.assertEqual((done.code, done.errors), (0, ""))
        self.assertIn("`Make the login strict`", done.output)
        self.assertFalse((empty / "projects").exists())

    def test_a_bundle_has_what_the_store_has(self) -> None:
        self.commit()
        self.learn()
        file = self.home / "alpha.bundle"
        create_bundle(file)
        report = markdown_report(self.report())
        forget_all_stores()
        other = Path(tempfile.mkdtemp(prefix="home-", dir=run_home()))
        self.addCleanup(shutil.rmtree, other, ignore_errors=True)
        with at_home(other):
            self.assertEqual(run_command("bundle", "apply", str(file)).code, 0)
            self.assertEqual(self.run_there("main..HEAD").output, f"{report}\n")
            forget_all_stores()


class WorkflowTests(HubTestCase):
    def workflow(self, name: str) -> str:
        done = run_command("changes", "--workflow", name)
        self.assertEqual((done.code, done.errors), (0, ""))
        self.assertIn(f"pip install django-memory-hub=={__version__}", done.output)
        self.assertNotIn("VERSION", done.output)
        code = re.sub("(?m)^ *#.*$", "", done.output)
        self.assertNotIn("--run", code)
        self.assertNotIn("pull_request_target", code)
        return done.output

    def test_github_gets_few_permissions(self) -> None:
        text = self.workflow("github")
        workflow = yaml.safe_load(text)
        self.assertEqual(workflow["permissions"], {})
        job = workflow["jobs"]["changes"]
        self.assertEqual(job["permissions"], {"contents": "read", "pull-requests": "write"})
        checkout = job["steps"][0]["with"]
        self.assertEqual((checkout["fetch-depth"], checkout["persist-credentials"]), (0, False))
        # What a pull request names reaches the shell as variables only
        for step in job["steps"]:
            self.assertNotIn("${{", step.get("run", ""))
        comment = next(step for step in job["steps"] if step.get("name") == "Comment")
        self.assertEqual(comment["if"], "github.event.pull_request.head.repo.full_name == github.repository")

    def test_gitlab_runs_for_merge_requests_with_the_whole_history(self) -> None:
        job = yaml.safe_load(self.workflow("gitlab"))["memory"]
        self.assertEqual(job["rules"], [{"if": '$CI_PIPELINE_SOURCE == "merge_request_event"'}])
        self.assertEqual(job["variables"]["GIT_DEPTH"], "0")
