"""Entries that were learnt on a branch, read where that branch is or is not merged."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

from memories.events import ENTRY_ANCHORED, AnchorRecord, EntryAnchored
from memories.validity.branches import branch_marks, dropped_entries, where_merged
from memories.validity.models import Provenance
from memories.validity.selectors import marks_of
from memoryhub.config.current_settings import FolderSettings, use_folder
from memoryhub.core import log
from memoryhub.core.origin import use_origin
from sessions_app.git import branches
from sessions_app.git.worktree import WorkingTree, working_tree_at
from sessions_app.hook_parser import parse_hook
from sessions_app.services.capture import take_event
from tests.memories.base import MemoriesTestCase
from tests.sessions_app.test_git import Repository

CODE = b"pool_size = 5\nstore = 'psycopg'\n"


class BranchesTestCase(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        root = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.repository = Repository(root / "alpha")
        self.git = self.repository.git
        self.base = self.repository.commit("base", **{"code.py": CODE, "other.py": b"text = 1\n"})
        self.folder = self.repository.folder
        self.linked = root / "linked"
        self.git("worktree", "add", "-q", "-b", "side", str(self.linked))

    def tree(self, folder: Path) -> WorkingTree:
        tree = working_tree_at(folder)
        assert tree is not None
        return tree

    def learn(self, title: str, content: str, *, folder: Path | None = None, session_id: str = "s1") -> int:
        settings = FolderSettings(directory=str(folder or self.linked))
        with use_folder(settings), use_origin(source="mcp", actor="ada", session_id=session_id):
            return self.write(title, content)

    def commit_on_side(self, **files: bytes) -> str:
        for name, content in (files or {"code.py": CODE.replace(b"psycopg", b"asyncpg")}).items():
            (self.linked / name).write_bytes(content)
        self.git("-C", str(self.linked), "add", "-A")
        self.git("-C", str(self.linked), "commit", "-qm", "Work on side")
        return self.git("rev-parse", "side")

    def hook(self, event: str, **data: object) -> None:
        fields = {"session_id": "s1", "cwd": str(self.linked), **data}
        parsed = parse_hook(client="claude-code", event=event, data=fields)
        take_event(
            event=parsed, client="claude-code", project="alpha", idempotency_key=str(data.get("tool_use_id", event))
        )

    def edit(self, number: str = "1", new: str = "store = 'asyncpg'") -> None:
        change = {"file_path": str(self.linked / "code.py"), "old_string": "store = 'psycopg'", "new_string": new}
        self.hook("PostToolUse", tool_name="Edit", tool_use_id=number, tool_input=change, tool_response={})

    def marks(self, *ids: int, folder: Path | None = None) -> list[str]:
        marks = branch_marks(ids, self.tree(folder or self.folder))
        return [marks[entity_id].text for entity_id in ids if entity_id in marks]


class BranchMarkTests(BranchesTestCase):
    def test_an_entry_about_the_code_of_an_unmerged_branch_is_marked_until_it_is_merged(self) -> None:
        self.commit_on_side()
        code = self.learn("Store", "The `store` of code.py is asyncpg.")
        words = self.learn("Driver", "We use asyncpg as our store now.")
        preference = self.learn("Reviews", "Ann likes short reviews, and is away on Fridays.")
        self.assertEqual(self.marks(code, words, preference), ["from branch side, not merged"] * 2)
        self.assertEqual(self.marks(code, words, preference, folder=self.linked), [])
        mark = branch_marks([code], self.tree(self.folder))[code]
        self.assertEqual((mark.kind, mark.weight, mark.withheld), ("branch", 0.5, True))
        self.git("merge", "-q", "--squash", "side")
        self.repository.commit("Work (#1)")
        self.assertEqual(self.marks(code, words, preference), [])

    def test_what_is_learnt_on_the_branch_that_is_checked_out_costs_no_call_of_git(self) -> None:
        code = self.learn("Store", "The `store` of code.py is psycopg.", folder=self.folder)
        self.edit()
        edited = self.learn("New store", "The `store` of code.py is asyncpg.")
        with mock.patch.object(branches, "run", side_effect=AssertionError("git was asked")):
            self.assertEqual(self.marks(code), [])
            self.assertEqual(self.marks(code, edited, folder=self.linked), [])
        self.repository.commit("More", **{"code.py": CODE + b"more = 1\n"})
        self.assertEqual(self.marks(code), [])

    def test_uncommitted_work_is_marked_until_its_commit_is_merged(self) -> None:
        self.edit()
        code = self.learn("Store", "The `store` of code.py is asyncpg.")
        words = self.learn("Driver", "We use asyncpg as our store now.")
        preference = self.learn("Reviews", "Ann likes short reviews, and is away on Fridays.")
        ids = (code, words, preference)
        self.assertEqual(self.marks(*ids), ["from uncommitted work on branch side"] * 2)
        sha = self.commit_on_side()
        self.assertEqual(self.marks(*ids), ["from branch side, not merged"] * 2)
        output = {"stdout": f"[side {sha[:9]}] Work on side"}
        command = {"command": "git commit -m 'Work on side'"}
        self.hook("PostToolUse", tool_name="Bash", tool_use_id="2", tool_input=command, tool_response=output)
        self.git("merge", "-q", "side")
        self.git("worktree", "remove", str(self.linked))
        self.git("branch", "-q", "-D", "side")
        self.assertEqual(self.marks(*ids), [])
        self.git("reset", "-q", "--hard", self.base)
        self.assertEqual(self.marks(*ids), ["from branch side, not merged"] * 2)
        self.assertEqual(dropped_entries(self.tree(self.folder)), {"side": [words, code]})

    def test_a_number_in_words_or_the_name_of_a_file_shows_what_a_text_is_about(self) -> None:
        self.edit(new="pool_size = 60")
        edited = self.learn("Connections", "At most sixty are open.")
        self.commit_on_side(**{"reload.py": b"cooldown = 0x1e\n", "code.py": b"wait_ms = 4_000\n"})
        texts = ("A query may run for four seconds.", "Reloads have a pause.", "Thirty seconds go by between two.")
        bound = [self.learn(f"Text {number}", text) for number, text in enumerate(texts)]
        other = [self.learn("Sprint", "The sprint is on Sunday in room 7."), self.learn("Ann", "Ann wants one review.")]
        self.assertEqual(self.marks(edited, *bound), ["from branch side, not merged"] * 4)
        self.assertEqual(self.marks(*other), [])

    def test_a_plain_text_that_is_tied_to_a_file_may_be_about_the_change_of_another(self) -> None:
        self.commit_on_side(**{"code.py": CODE.replace(b"5", b"60"), "later.py": b"x = 1\n"})
        texts = ("At most sixty connections are open.", "Ann reviews on Fridays.", "`text` is sixty.")
        entries = [self.learn(f"Text {number}", text) for number, text in enumerate(texts)]
        for entry in entries:
            anchored = EntryAnchored(entity_id=entry, anchors=[AnchorRecord(path="other.py")])
            with log.transaction():
                log.append(log.prepare(ENTRY_ANCHORED, anchored), stream=f"memory:{entry}")
        self.assertEqual(list(branch_marks(entries, self.tree(self.folder))), entries[:1])

    def test_a_large_change_has_to_share_more_with_a_text(self) -> None:
        names = "".join(f"{word}_{number} = {number}\n" for number in range(300) for word in ("sprint", "table"))
        self.commit_on_side(**{"names.py": names.encode()})
        self.assertEqual(self.marks(self.learn("Meeting", "The sprint is on Sunday.")), [])
        sprint = self.learn("Tables", "A sprint has 250 tables.")
        self.assertEqual(self.marks(sprint), ["from branch side, not merged"])

    def test_what_git_does_not_know_is_called_so(self) -> None:
        other = Repository(self.folder.parent / "other")
        other.commit("elsewhere", **{"code.py": CODE})
        code = self.learn("Store", "The `store` of code.py is psycopg.", folder=other.folder)
        preference = self.learn("Reviews", "Ann likes short reviews.", folder=other.folder)
        self.assertEqual(self.marks(code, preference), ["learnt on branch main; whether it is merged is not known"])
        mark = branch_marks([code], self.tree(self.folder))[code]
        self.assertEqual((mark.weight, mark.withheld), (0.8, False))
        self.assertEqual(branch_marks([code], None), {})

    def test_a_detached_head_and_a_reset_branch_are_named_as_what_they_are(self) -> None:
        self.git("-C", str(self.linked), "checkout", "-q", "--detach")
        (self.linked / "code.py").write_bytes(CODE.replace(b"5", b"9"))
        self.git("-C", str(self.linked), "commit", "-qam", "Detached")
        detached = self.learn("Pool", "`pool_size` is 9.")
        sha = self.git("-C", str(self.linked), "rev-parse", "HEAD")
        self.assertEqual(self.marks(detached), [f"from commit {sha[:10]}, not merged"])
        self.repository.commit("Change", **{"code.py": CODE.replace(b"5", b"7")})
        reset = self.learn("Size", "`pool_size` is 7.", folder=self.folder)
        self.git("reset", "-q", "--hard", self.base)
        self.assertEqual(self.marks(reset), ["from a commit that branch main no longer has"])

    def test_names_of_branches_are_one_line(self) -> None:
        name = "x\u202e" + "ä" * 60
        self.git("-C", str(self.linked), "switch", "-q", "-c", name)
        self.commit_on_side()
        code = self.learn("Store", "The `store` of code.py is asyncpg.")
        self.git("branch", "-q", "-f", "side", name)
        (text,) = self.marks(code)
        self.assertNotIn("\u202e", text)
        self.assertIn("ä", text)

    def test_a_file_that_the_branch_left_alone_is_as_it_is_here(self) -> None:
        self.commit_on_side()
        ids = [self.learn("Text", "`text` is 1."), self.learn("Store", "The `store` is asyncpg.")]
        self.assertEqual(len(self.marks(*ids)), 2)
        for entity_id, path in zip(ids, ("other.py", "code.py"), strict=True):
            anchored = EntryAnchored(entity_id=entity_id, anchors=[AnchorRecord(path=path, first=1, last=1)])
            with log.transaction():
                log.append(log.prepare(ENTRY_ANCHORED, anchored), stream=f"memory:{entity_id}")
        self.assertEqual(self.marks(*ids), ["from branch side, not merged"])

    def test_entries_that_people_write_or_import_have_no_mark(self) -> None:
        self.commit_on_side()
        with use_folder(FolderSettings(directory=str(self.linked))), use_origin(source="admin", actor="ann"):
            entry = self.write("Store", "The `store` of code.py is asyncpg.")
        self.assertEqual(self.marks(entry), [])


class BranchDoorsTests(BranchesTestCase):
    def test_a_search_marks_and_lowers_what_is_not_merged(self) -> None:
        self.commit_on_side()
        code = self.learn("Store", "The `store` of code.py is asyncpg.")
        with use_folder(FolderSettings(directory=str(self.folder))):
            (hit,) = self.search("which store does code.py use", sources=["memory"]).results
        self.assertEqual(hit["id"], code)
        self.assertIn({"kind": "branch", "text": "from branch side, not merged"}, hit["marks"])
        with use_folder(FolderSettings(directory=str(self.linked))):
            (hit,) = self.search("which store does code.py use", sources=["memory"]).results
        self.assertFalse(hit.get("marks"))

    def test_only_the_branch_is_named_where_it_explains_why_code_is_not_as_it_was(self) -> None:
        self.commit_on_side(**{"queue.py": b"BACKEND = 'sqs'\n"})
        entry = self.learn("Queue", "`BACKEND` in queue.py is sqs")
        with use_folder(FolderSettings(directory=str(self.folder))):
            self.assertEqual([mark.text for mark in marks_of([entry])[entry]], ["from branch side, not merged"])

    def test_a_dropped_branch_is_told_with_its_entries(self) -> None:
        self.commit_on_side()
        code = self.learn("Store", "The `store` of code.py is asyncpg.")
        self.learn("Reviews", "Ann likes short reviews.")
        tree = self.tree(self.folder)
        self.assertEqual(dropped_entries(tree), {})
        self.git("worktree", "remove", "--force", str(self.linked))
        self.git("branch", "-q", "-D", "side")
        self.assertEqual(dropped_entries(tree), {"side": [code]})

    def test_changes_ask_for_any_two_commits(self) -> None:
        sha = self.commit_on_side()
        code = self.learn("Store", "The `store` of code.py is asyncpg.")
        learnt = list(Provenance.objects.filter(id=code))
        here = self.tree(self.folder)
        there = WorkingTree(here.top, here.common_dir, sha, "side")
        self.assertEqual(where_merged(learnt, here), {code: False})
        self.assertEqual(where_merged(learnt, there), {code: True})
        unknown = WorkingTree(here.top, here.common_dir, "", "")
        self.assertEqual(where_merged(learnt, unknown), {code: None})
