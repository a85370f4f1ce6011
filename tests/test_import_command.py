import os
import re
import subprocess
import sys
import tempfile
from contextlib import chdir
from io import StringIO
from pathlib import Path

from django.core.management import CommandError, call_command

from decisions.importing import import_adrs
from decisions.models import Decision
from memories.models import Memory
from memories.schemas import MemoryWrite
from memories.services import write_memories
from memories.validity.trust import trust_marks
from memoryhub.core import log
from memoryhub.core.log import table_digests
from sessions_app.models import Commit
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase

# Presses Ctrl-C when the second batch is written and not yet committed.
_INTERRUPTED = """
import os, signal, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings_store"
django.setup()
from memories import importing
from memoryhub.cli import main
from memoryhub.core import log

write, calls = importing.write_memories, []

def interrupted(*, commands):
    with log.transaction():
        results = write(commands=commands)
        calls.append(results)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
    return results

importing.write_memories = interrupted
sys.exit(main(sys.argv))
"""
MANAGE = Path(__file__).parents[1] / "manage.py"


class ImportCommandTest(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.repository = Repository(Path(folder.name).resolve() / "alpha")
        self.repository.write("docs/a.md", b"# One\n\ntext\n")
        self.repository.commit("Say one")
        self.repository.commit("Say two", b=b"2\n")

    def run_import(self, *arguments: str) -> str:
        output = StringIO()
        with chdir(self.repository.folder):
            call_command("import", *arguments, stdout=output)
        return output.getvalue()

    def run_process(self, *arguments: str, name: str = "import", **variables: str) -> tuple[int, str, str]:
        command = [sys.executable, str(MANAGE), name, *arguments]
        environment = {**os.environ, "MEMORY_HUB_HOME": str(self.home), **variables}
        environment.pop("DJANGO_SETTINGS_MODULE")
        folder = self.repository.folder
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def test_commits_are_brought_in_once(self) -> None:
        code, output, errors = self.run_process("git")
        self.assertRegex(
            output,
            r"\Aimporting \S+/alpha into alpha\nimported 2 commits \(0 already known\) into alpha in \d+\.\d s\n"
            r"to undo it: memory-hub import undo 1 --project alpha\n\Z",
        )
        self.assertEqual((code, errors), (0, ""))
        self.repository.commit("Say three")
        self.assertIn("imported 1 commit (2 already known) into alpha", self.run_import("git", "."))
        with self.store("alpha", create=False):
            messages = list(Commit.objects.order_by("id").values_list("message", flat=True))
        self.assertEqual(messages, ["Say one", "Say two", "Say three"])

    def test_a_day_is_that_of_this_machines_zone(self) -> None:
        for name, moment in (("One", "03T22:00"), ("Two", "04T08:00"), ("Three", "04T22:00"), ("Four", "05T08:00")):
            when = f"2024-09-{moment}+0900"
            self.repository.write("day.txt", name.encode())
            self.repository.git("add", "-A")
            environment = {**os.environ, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
            identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
            git = ["git", "-C", str(self.repository.folder), *identity, "commit", "-q", "-m", f"Day {name}"]
            subprocess.run(git, check=True, timeout=120, env=environment)
        _, output, _ = self.run_process("git", ".", "--since", "2024-09-04", TZ="Asia/Tokyo")
        self.assertIn("imported 3 commits", output)
        _, output, _ = self.run_process("Day", name="search", TZ="Asia/Tokyo")
        days = dict(re.findall(r"^#\d+ commit (\S+) Day (\w+)", output, re.MULTILINE))
        self.assertEqual(sorted(days), ["2024-09-04", "2024-09-05"])
        self.assertEqual(output.count("2024-09-04"), 2, output)

    def test_documents_are_brought_in_into_the_project_that_is_named(self) -> None:
        output = self.run_import("markdown", "docs", "--project", "beta", "--tag", "x")
        self.assertIn("imported 1 section of 1 file (1 new, 0 revised, 0 unchanged, 0 removed) into beta", output)
        with self.store("beta", create=False):
            self.assertEqual([memory.title for memory in Memory.objects.all()], ["docs/a.md › One"])
        self.assertFalse((self.home / "projects/alpha").exists())

    def test_where_git_refuses_no_file_is_imported(self) -> None:
        self.repository.write(".gitignore", b"secret.md\n")
        self.repository.write("secret.md", b"# Private\n\nThe gate code is on the ignored list.\n")
        self.repository.write("docs/adr/0001-use-wal.md", b"# Use WAL\n\n## Decision\n\nWAL.\n")
        self.repository.git("config", "core.repositoryformatversion", "99")
        for words in (["markdown", "."], ["adr", "docs/adr"], ["git", "."]):
            with self.assertRaisesRegex(CommandError, "found 99") as refused:
                self.run_import(*words, "--project", "alpha")
            self.assertEqual(refused.exception.returncode, 8, words)
        self.assertFalse((self.home / "projects/alpha").exists())

    def test_files_of_excluded_paths_are_left_out_and_their_memories_removed(self) -> None:
        for path in ("tests/data/gauge.md", "tests/notes.md", "lib/tests/more.md"):
            self.repository.write(
                path, b"# Tide gauge\n\nIt stands at the western berth of the harbour, near the lock.\n"
            )
        self.repository.commit("Add tests")
        self.run_import("markdown", ".", "--project", "alpha")
        output = self.run_import("markdown", ".", "--project", "alpha", "--exclude", "tests/*")
        self.assertIn("2 removed", output)
        with self.store("alpha"):
            sources = set(Memory.objects.live().values_list("source", flat=True))
        self.assertEqual(sources, {"docs/a.md", "lib/tests/more.md"})

    def test_a_preview_says_what_would_come_and_changes_nothing(self) -> None:
        self.repository.write("docs/adr/0001-use-wal.md", b"# Use WAL\n\n## Decision\n\nWAL.\n")
        calls = {
            ("git", "."): "2 commits",
            ("adr", "docs/adr"): "1 decision",
            ("markdown", "."): "1 section of 1 file",
        }
        for arguments, what in calls.items():
            output = self.run_import(*arguments, "--preview")
            self.assertIn(f"would import {what} into alpha, which does not exist yet", output)
        self.assertFalse((self.home / "projects/alpha").exists())
        self.write_note()
        with self.store("alpha", create=False):
            before = log.head()
        news = ("2 commits (0 already known)", "1 decision (1 new", "1 section of 1 file (1 new")
        for arguments, what in zip(calls, news, strict=True):
            self.assertIn(f"would import {what}", self.run_import(*arguments, "--preview"))
            with self.store("alpha", create=False):
                self.assertEqual(log.head(), before)
            self.assertIn(f"imported {what}", self.run_import(*arguments, "--yes"))
            with self.store("alpha", create=False):
                before = log.head()
            self.assertNotIn("undo", self.run_import(*arguments))
            with self.store("alpha", create=False):
                self.assertEqual(log.head(), before, "nothing has changed")

    def test_a_tools_data_is_previewed_for_a_project_that_does_not_exist(self) -> None:
        self.repository.write("AGENTS.md", b"# Rules\n\n## Tests\n\nRun make test before each commit.\n")
        self.assertIn("into alpha: 1 new", self.run_import("agents-md", ".", "--preview"))
        self.assertFalse((self.home / "projects/alpha").exists())

    def write_note(self) -> None:
        with self.store("alpha"):
            write_memories(commands=[MemoryWrite(title="Known", content="Known already.")])

    def test_a_long_path_is_cut_in_the_batch(self) -> None:
        deep = self.repository.folder.joinpath(*["d" * 200] * 6)
        deep.mkdir(parents=True)
        (deep / "note.md").write_text("# Note\n\nDeep down.\n")
        self.assertIn("1 new", self.run_import("markdown", str(deep)))

    def test_commits_records_and_documents_are_undone_whole(self) -> None:
        records = {
            "0001-use-wal.md": b"# Use WAL\n\nStatus: superseded by [2](0002-use-rollback.md)\n\n## Decision\n\nWAL.\n",
            "0002-use-rollback.md": b"# Use rollback\n\nStatus: accepted\n\n## Decision\n\nRollback.\n",
        }
        for name, text in records.items():
            self.repository.write(f"docs/adr/{name}", text)
        self.repository.commit("Decide")
        self.write_note()
        with self.store("alpha"):
            import_adrs(directory=self.repository.folder / "docs/adr")
            before = table_digests()
        self.repository.write("docs/adr/0002-use-rollback.md", records["0002-use-rollback.md"] + b"\nOn disk.\n")
        self.repository.write("docs/a.md", b"# One\n\nother text\n")
        items = {"git": "3 commits", "adr": "1 decision", "markdown": "1 memory"}
        for kind, item in items.items():
            output = self.run_import(kind, "docs/adr" if kind == "adr" else ".")
            batch = output.split("import undo ")[1].split()[0]
            self.assertIn(f"#{batch} {kind} ", self.run_import("list"))
            preview = self.run_import("undo", batch)
            self.assertIn(f"would be undone: {item}", preview)
            self.assertIn(f"undone: {item}", self.run_import("undo", batch, "--confirm", preview.split()[-1]))
            with self.store("alpha", create=False):
                self.assertEqual(table_digests(), before, kind)

    def test_the_makefile_imports_no_data_of_tests(self) -> None:
        makefile = (MANAGE.parent / "Makefile").read_text()
        self.assertTrue("import markdown . --exclude 'tests/*'" in makefile)

    def test_the_project_is_bound_to_its_repository(self) -> None:
        self.run_import("git")
        self.assertIn(str(self.repository.folder / ".git"), (self.home / "projects/alpha/origin.json").read_text())
        other = Repository(self.repository.folder.parent / "other/alpha")
        other.commit("Another")
        with self.assertRaisesRegex(CommandError, "other-alpha") as refused, chdir(other.folder):
            call_command("import", "git")
        self.assertEqual(refused.exception.returncode, 2)

    def test_a_renamed_folder_is_told_which_project_it_may_have_had(self) -> None:
        self.run_import("git")
        old = self.repository.folder
        self.repository.folder = old.rename(old.parent / "shop")
        hint = f"the folder of the project alpha, {old}, is gone; if shop is that folder under another name, write"
        output, errors = StringIO(), StringIO()
        with chdir(self.repository.folder):
            call_command("project", "show", stdout=output)
            with self.assertRaisesRegex(CommandError, hint):
                call_command("search", "x")
            call_command("import", "git", stdout=output, stderr=errors)
            self.assertEqual(errors.getvalue().count(hint), 1)
            call_command("import", "git", stdout=output, stderr=errors)
        self.assertEqual(errors.getvalue().count(hint), 1)
        self.assertIn(
            f'hint      {hint} project = "alpha" to {self.repository.folder}/.memory-hub.toml', output.getvalue()
        )

    def test_a_repository_whose_name_is_in_another_script_has_its_name_in_the_list(self) -> None:
        old = self.repository.folder
        self.repository.folder = old.rename(old.parent / "プロジェクト")
        self.assertIn("into project-61bc332b", self.run_import("git"))
        output = StringIO()
        call_command("project", "list", stdout=output)
        self.assertRegex(output.getvalue(), "project-61bc332b +プロジェクト ")

    def test_another_folder_is_imported_into_the_project_of_the_current_one(self) -> None:
        other = Repository(self.repository.folder.parent / "library")
        other.write("docs/a.md", b"# Two\n\nother text\n")
        other.write("docs/adr/0001-use-wal.md", b"# Use WAL\n\n## Decision\n\nWAL.\n")
        other.write("docs/adr/README.md", b"# Records\n")
        other.write("docs/.hidden/b.md", b"# Hidden\n")
        (other.folder / "docs/link.md").symlink_to("a.md")
        other.commit("Write")
        self.run_import("markdown", "docs")
        code, output, errors = self.run_process("markdown", str(other.folder / "docs"))
        self.assertTrue(output.startswith(f"importing {other.folder}/docs into alpha\nimported 1 section"), output)
        self.assertIn("(1 new, 0 revised, 0 unchanged, 0 removed) into alpha", output)
        skipped = (
            ".hidden/: hidden, or a folder of installed packages",
            "link.md: a link to a.md, which is in this folder",
            "library/docs/adr/0001-use-wal.md: a decision record; `memory-hub import adr library/docs/adr` imports it "
            "with its status",
        )
        self.assertEqual((code, errors), (0, "".join(f"skipped {line}\n" for line in skipped)))
        code, output, errors = self.run_process("adr", str(other.folder / "docs/adr"))
        self.assertIn("imported 1 decision (1 new,", output)
        self.assertEqual((code, errors), (0, "skipped README.md: not a decision record by its name\n"))
        self.assertEqual([path.name for path in (self.home / "projects").iterdir()], ["alpha"])
        with self.store("alpha", create=False):
            sources = set(Memory.objects.live().values_list("source", flat=True))
            decisions = set(Decision.objects.values_list("source", flat=True))
        # The record's section gave way to the decision
        self.assertEqual(
            (sources, decisions), ({"docs/a.md", "library/docs/a.md"}, {"library/docs/adr/0001-use-wal.md"})
        )

    def test_files_that_are_not_the_projects_are_marked(self) -> None:
        other = self.repository.folder.parent / "partner"
        other.mkdir()
        (other / "wiki.md").write_text("# Licence\n\nPlugins are under the GPL.\n")
        self.run_import("markdown", "docs", "--project", "beta")
        for _ in range(2):
            self.run_import("markdown", str(other), "--project", "beta")
            with self.store("beta", create=False):
                ids = dict(Memory.objects.live().values_list("source", "id"))
                marks = trust_marks(ids.values())
            self.assertEqual(list(marks), [ids["wiki.md"]])
            self.assertEqual(marks[ids["wiki.md"]].text, "imported from outside the project, not accepted")
            (other / "wiki.md").write_text("# Licence\n\nPlugins are under the LGPL.\n")

    def test_a_new_project_has_the_paths_that_it_had_before_its_folder_was_bound_to_it(self) -> None:
        other = Repository(self.repository.folder.parent / "other" / "alpha")
        other.write("a.md", b"# Two\n\nother text\n")
        other.commit("Write")
        self.run_import("markdown", str(other.folder))
        with self.store("alpha", create=False):
            self.assertEqual(Memory.objects.get().source, "a.md")

    def test_an_error_is_one_sentence_and_a_code(self) -> None:
        code, output, errors = self.run_process("git", "/", "--project", "alpha")
        self.assertEqual((code, output, len(errors.strip().splitlines())), (2, "", 1), errors)
        self.assertIn("not in a git repository", errors)

    def test_front_matter_nested_20000_deep_is_skipped_by_name_and_the_other_files_are_imported(self) -> None:
        depth = 20_000
        nested = {
            "lists.md": "[" * depth + "]" * depth,
            "open.md": "[" * depth,
            "objects.md": '{"a":' * depth + "1" + "}" * depth,
            "plain.md": "[" * 900 + "x" + "]" * 900,
        }
        for name, value in nested.items():
            self.repository.write(f"docs/{name}", f"---\ntags: {value}\nchosen: {value}\n---\n# B\n\ntext\n".encode())
        code, output, errors = self.run_process("markdown", "docs")
        self.assertIn("imported 1 section of 1 file (1 new,", output)
        reason = "its front matter is nested too deeply; at most 32 levels are read"
        self.assertEqual((code, errors), (0, "".join(f"skipped docs/{name}: {reason}\n" for name in sorted(nested))))
        code, output, errors = self.run_process("adr", "docs")
        self.assertIn("imported 0 decisions", output)
        self.assertEqual(code, 0)
        for name in nested:
            self.assertIn(f"docs/{name}: {reason}\n", errors)

    def test_a_file_of_20000_headings_is_skipped_unless_it_is_asked_for(self) -> None:
        self.run_import("markdown", "docs")
        many = "".join("# Entry\n\ntext\n\n" for _ in range(20_000))
        self.repository.write("docs/many.md", many.encode())
        code, output, errors = self.run_process("markdown", "docs")
        self.assertIn("imported 1 section of 1 file (0 new, 0 revised, 1 unchanged, 0 removed)", output)
        sentence = "skipped docs/many.md: it has 20,000 headings, more than 2,000; split it, or raise --max-headings"
        self.assertEqual((code, errors), (0, f"{sentence}\n"))
        self.repository.write("docs/many.md", b"# One\n\ntext\n\n# Two\n\ntext\n")
        self.assertIn("(2 new, 0 revised, 1 unchanged", self.run_import("markdown", "docs", "--max-headings", "2"))
        errors_of_a_limit = self.run_process("markdown", "docs", "--max-headings", "1")[2]
        self.assertIn("skipped docs/many.md: it has 2 headings, more than 1;", errors_of_a_limit)
        with self.store("alpha", create=False):
            self.assertEqual(Memory.objects.live().count(), 3)

    def test_ctrl_c_ends_it_in_one_sentence_between_two_batches(self) -> None:
        for number in range(6):
            sections = "".join(f"# S{number} {number}\n\ntext {number} {number}\n\n" for number in range(100))
            self.repository.write(f"docs/b{number}.md", sections.encode())
        done = subprocess.run(
            [sys.executable, "-c", _INTERRUPTED, "import", "markdown", str(self.repository.folder / "docs")],
            capture_output=True,
            text=True,
            cwd=self.repository.folder,
            env={**os.environ, "PYTHONPATH": str(MANAGE.parent)},
            timeout=300,
            check=False,
        )
        sentence = "interrupted; what was imported is kept, and the same command imports the rest"
        self.assertEqual((done.returncode, done.stderr), (130, f"memory-hub: {sentence}\n"))
        with self.store("alpha", create=False):
            self.assertEqual(Memory.objects.live().count(), 500)
            self.assertTrue(log.verify().ok)
        self.assertIn("(101 new, 0 revised, 500 unchanged, 0 removed)", self.run_import("markdown", "docs"))

    def test_what_makes_no_sense_is_refused_in_one_sentence(self) -> None:
        for arguments, reason in (
            (("git", "--since", "soon"), "write a date"),
            (("git", "--limit", "0"), "1 or more"),
            (("markdown", "nowhere", "--project", "alpha"), "is not a folder"),
            (("git", "--project", "Alpha"), "not a project id"),
        ):
            with self.assertRaisesRegex(CommandError, reason) as refused:
                self.run_import(*arguments)
            self.assertEqual((refused.exception.returncode, len(str(refused.exception).splitlines())), (2, 1))
