"""``memory-hub remember``: a memory from the command line."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from unittest import mock

from django.core.management import call_command

from memories.models import Memory, ReviewState
from memories.schemas import MAX_CONTENT, MemoryGet
from memories.selectors import get_memories
from memoryhub.core.origin import PERSONS_DOORS, TERMINAL
from tests.commands.terminals import run_at_terminal
from tests.support import Done, HubTestCase, make_git_folder, run_command

TOKEN = "ghp_" + "x1Y2z3A4b5" * 4
ALPHA = ("--project", "alpha")


class RememberTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            pass

    def remember(self, *arguments: str, given: str = "") -> Done:
        return run_command("remember", *arguments, *ALPHA, given=given)

    def test_a_memory_is_written_and_named(self) -> None:
        done = self.remember("Use", "make test,", "not pytest.", "--kind", "guideline", "--tag", "Tests")
        number = re.match(r"Created #(\d+)\. Use make test, not pytest\.\n", done.output)
        self.assertTrue(number, done)
        assert number
        self.assertIn(f"to see it: memory-hub show {number[1]} --project alpha\n", done.output)
        with self.store("alpha"):
            (memory,) = get_memories(command=MemoryGet(ids=[int(number[1])]))
        self.assertEqual((memory["kind"], memory["tags"]), ("guideline", ["tests"]))
        self.assertEqual(memory["content"], "Use make test, not pytest.")

    def test_the_help_names_types_of_the_usual_kind(self) -> None:
        help_text = " ".join(self.remember("--help").output.split())
        named = re.search(r"within the kind, such as (\w+); of observation: ([\w, ]+\w)", help_text)
        assert named
        self.assertIn(named[1], named[2].split(", "))
        for name in named[2].split(", "):
            self.assertEqual(self.remember(f"A {name} of today", "--type", name).code, 0)

    def test_the_same_text_is_counted_and_not_written_again(self) -> None:
        self.remember("Use make test")
        self.assertRegex(self.remember("Use make test").output, r"^#\d+ already has this text\.")
        with self.store("alpha"):
            self.assertEqual(Memory.objects.count(), 1)

    def test_a_secret_is_masked_and_no_part_of_it_is_left_in_the_title(self) -> None:
        done = self.remember(f"{'word ' * 20}the key is {TOKEN} here")
        self.assertIn("masked before it was stored: github-token", done.output)
        with self.store("alpha"):
            memory = Memory.objects.get()
        self.assertNotIn("ghp_", memory.title + memory.content)

    def test_text_comes_from_standard_input_with_its_first_line_as_title(self) -> None:
        for words in ([], ["-"]):
            with self.subTest(words):
                text = f"Title {len(words)}\n\n- a list\n"
                self.assertEqual(self.remember(*words, given=text).code, 0)
                with self.store("alpha"):
                    memory = Memory.objects.get(title=f"Title {len(words)}")
                self.assertEqual(memory.content.strip(), text.strip())

    def test_nothing_to_remember_and_too_much_are_refused_and_change_nothing(self) -> None:
        for words, given, sentence in (
            ([], " \n", r'^memory-hub: say what to remember: memory-hub remember "text", or pipe it in\n$'),
            ([""], "", r"^memory-hub: say what to remember"),
            ([], "x" * (MAX_CONTENT + 1), r"^memory-hub: 'content' must have at most"),
            (["a", "--type", "nonsense"], "", r"^memory-hub: 'type' must be one of "),
            (["a", "--title", "x\ny"], "", r"^memory-hub: 'title' must be "),
        ):
            with self.subTest(sentence):
                done = self.remember(*words, given=given)
                self.assertRegex(done.errors, sentence)
                self.assertEqual((done.code, done.output), (2, ""))
        with self.store("alpha"):
            self.assertEqual(Memory.objects.count(), 0)

    def test_what_a_person_types_is_accepted_whatever_the_policy(self) -> None:
        call_command("settings", "review_policy", "all", *ALPHA, stdout=mock.Mock())
        self.assertIn("proposed: policy reviews all writes\n", self.remember("A script says so").output)
        printed = run_at_terminal("remember", "A person says so", *ALPHA, variables={"NO_COLOR": "1"})
        self.assertRegex(printed, r"^Created #\d+\. A person says so\n")
        with self.store("alpha"):
            memory = Memory.objects.get(title="A person says so")
            (view,) = get_memories(command=MemoryGet(ids=[memory.id]))
        self.assertEqual(memory.review, ReviewState.ACCEPTED)
        self.assertRegex(view["acceptance"], r"^accepted by \S+ ")
        self.assertIn(TERMINAL, PERSONS_DOORS)

    def test_a_repository_gets_its_project_and_another_folder_does_not(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            repository = make_git_folder(Path(folder) / "gamma")
            plain = Path(folder) / "plain"
            plain.mkdir()
            with mock.patch.object(Path, "cwd", return_value=plain):
                self.assertRegex(run_command("remember", "x").errors, "this folder belongs to no project")
            with mock.patch.object(Path, "cwd", return_value=repository):
                self.assertEqual(run_command("remember", "x").code, 0)
        self.assertRegex(run_command("remember", "x", "--project", "delta").errors, "there is no project 'delta'")
        self.assertEqual({path.name for path in (self.home / "projects").iterdir()}, {"alpha", "gamma"})
