"""Entries are tied to the code that they are about, and compared with it when they are given."""

import os
import tempfile
from pathlib import Path
from unittest import TestCase

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memories.events import AnchorRecord
from memories.models import AnchorSource, CodeAnchor
from memories.validity.anchors import CodeChange, anchors_of_text, edits_of_commits
from memories.validity.claims import words_of_text
from memories.validity.freshness import AnchorFinding, State, anchor_marks, check, compare, renewed
from memories.validity.working_files import WorkingFile
from memoryhub.config.current_settings import FolderSettings, use_folder
from sessions_app.git.worktree import WorkingTree, working_tree_at
from tests.memories.base import MemoriesTestCase
from tests.sessions_app.test_git import Repository

CLIENT = b'''\
"""Requests with retries."""
import time

MAX_RETRIES = 5


class Client:
    timeout = 30

    def send(self, request):
        for attempt in range(MAX_RETRIES):
            response = self.transport.handle(request)
            if response.status != 503:
                return response
            time.sleep(2 ** attempt)
        raise Unavailable(request)


def close(client):
    client.transport.close()
'''


class AnchorTestCase(MemoriesTestCase):
    """A test with a repository that has two files, in which the caller works."""

    def setUp(self) -> None:
        super().setUp()
        root = self.enterContext(tempfile.TemporaryDirectory())
        self.repository = Repository(Path(root).resolve() / "alpha")
        self.folder = self.repository.folder
        self.commit(**{"src/client.py": CLIENT, "pyproject.toml": b'[project]\nrequires-python = ">=3.11"\n'})

    def commit(self, **files: bytes) -> str:
        return self.repository.commit("change", **files)

    @property
    def tree(self) -> WorkingTree:
        tree = working_tree_at(self.folder)
        assert tree
        return tree

    def anchors(self, text: str, *edits: CodeChange, files: tuple[str, ...] = ()) -> list[AnchorRecord]:
        return anchors_of_text(text, self.tree, edits, files)

    def anchor(self, text: str, *edits: CodeChange) -> AnchorRecord:
        anchors = self.anchors(text, *edits)
        self.assertEqual(len(anchors), 1, anchors)
        return anchors[0]

    def write_file(self, path: str, content: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        # A test writes faster than some file systems' clocks
        before = file.stat()
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + len(content) + 1))

    def replace(self, old: bytes, new: bytes, path: str = "src/client.py") -> None:
        content = (self.folder / path).read_bytes()
        self.assertIn(old, content)
        self.write_file(path, content.replace(old, new))

    def assert_state(self, anchor: AnchorRecord, state: State, *, commit: str = "") -> AnchorFinding:
        for _ in range(2):  # the second finding is cached
            finding = check(anchor, self.tree, commit)
            self.assertEqual(finding.state, state, finding)
        return finding


class MakingTests(AnchorTestCase):
    def test_a_path_with_lines_is_tied_to_these_lines(self) -> None:
        anchor = self.anchor("Sleeps grow, see src/client.py:11-15.")
        self.assertEqual((anchor.path, anchor.first, anchor.last, anchor.words), ("src/client.py", 11, 15, []))
        self.assertEqual(anchor.made_from, AnchorSource.TEXT)
        anchor = self.anchor("See src/client.py:11-99.")
        self.assertEqual((anchor.first, anchor.digest), (0, ""))

    def test_a_name_is_tied_to_its_definition(self) -> None:
        anchor = self.anchor("In client.py, `Client.send` retries on 503.")
        self.assertEqual((anchor.symbol, anchor.first, anchor.last), ("Client.send", 10, 16))
        anchor = self.anchor("The limit is MAX_RETRIES, that is 5.")  # a search of git finds it
        self.assertEqual((anchor.path, anchor.symbol, anchor.first), ("src/client.py", "MAX_RETRIES", 4))

    def test_the_end_of_a_path_counts_if_one_file_has_it(self) -> None:
        self.assertEqual(self.anchor("See client.py.").path, "src/client.py")
        self.commit(**{"old/client.py": b"x = 1\n"})
        self.assertEqual(self.anchors("See client.py."), [])
        self.assertEqual(self.anchor("See old/client.py.").path, "old/client.py")

    def test_a_text_without_a_sign_of_code_is_tied_to_nothing(self) -> None:
        for text in ("We meet on Mondays", "Close the main test, then get a client", "See `main` and `test`."):
            self.assertEqual(self.anchors(text), [], text)

    def test_a_note_that_names_no_code_is_tied_to_the_lines_that_state_the_same(self) -> None:
        self.commit(
            **{
                "src/mail.py": b"from smtplib import SMTP\n\nPORT = 2525\n",
                "Makefile": b"lint:\n\tflake8 src\n",
                "requirements.txt": b"adyen==9.1\nflask==2.2\n",
                "README.md": b"Marta sells 40 boats\n",
                "update.yml": b"open-pull-requests-limit: 10\n",
                "src/calls.py": b"def run(call):\n    if call.outer:\n        fail(NestedCall(call, 'no', 7))\n",
            }
        )
        for text, path, words in (
            ("Mails go out over port 2525.", "src/mail.py", ["`PORT=2525`"]),
            ("A client waits for 30 seconds: that is the timeout", "src/client.py", ["`timeout=30`", "timeout"]),
            ("The site is served by Flask 2.2", "requirements.txt", ["flask 2.2"]),
            ("Cards are charged through Adyen since May", "requirements.txt", ["adyen"]),
            ("Before a push, run flake8 over the sources", "Makefile", ["flake8"]),
            ("`NestedCall` shows up if one runs inside another", "src/calls.py", ["nestedcall"]),
        ):
            anchor = self.anchor(text)
            self.assertEqual((anchor.path, anchor.words), (path, words), text)
        for text in ("Marta sells 40 boats", "The meeting takes 30 minutes", "The open call is at 10"):
            self.assertEqual(self.anchors(text), [], text)
        self.assertEqual(anchors_of_text("Mails go out over port 2525.", self.tree, searches=False), [])

    def test_what_git_ignores_or_others_wrote_or_is_secret_is_no_anchor(self) -> None:
        self.commit(
            **{".gitignore": b"local/\n", "node_modules/x/index.js": b"x\n", ".env": b"A=1\n", "go.sum": b"a\n"}
        )
        self.write_file("local/notes.py", b"x = 1\n")
        self.write_file("src/new.py", b"x = 1\n")
        text = "See local/notes.py, node_modules/x/index.js, .env, go.sum and src/new.py."
        self.assertEqual([anchor.path for anchor in self.anchors(text)], ["src/new.py"])

    def test_a_file_outside_the_tree_is_no_anchor(self) -> None:
        outside = self.folder.parent / "outside.py"
        outside.write_text("x = 1\n")
        (self.folder / "link.py").symlink_to(outside)
        (self.folder / "device.py").symlink_to("/dev/zero")
        self.repository.git("add", "-A")
        self.repository.git("commit", "-qm", "links")
        self.assertEqual(self.anchors("See ../outside.py, link.py, device.py and /etc/passwd."), [])

    def test_an_edit_counts_if_the_text_is_about_it(self) -> None:
        edit = CodeChange("src/client.py", "+MAX_RETRIES = 5\n+            time.sleep(2 ** attempt)")
        anchor = self.anchor("We sleep longer after each attempt, 5 times at most", edit)
        self.assertEqual((anchor.path, anchor.made_from), ("src/client.py", AnchorSource.SESSION))
        self.assertEqual(self.anchors("Deploys go out on Mondays", edit), [])

    def test_the_changes_of_a_commit_count_as_edits(self) -> None:
        sha = self.commit(**{"src/pool.py": b"POOL_SIZE = 40\n"})
        edits = edits_of_commits(self.tree, [sha])
        self.assertEqual([(edit.path, edit.made_from) for edit in edits], [("src/pool.py", AnchorSource.COMMIT)])
        anchor = self.anchor("A pool has a size of 40 connections", *edits)
        self.assertEqual((anchor.path, anchor.made_from), ("src/pool.py", AnchorSource.COMMIT))
        self.assertEqual(edits_of_commits(self.tree, []), [])

    def test_a_governed_file_counts(self) -> None:
        anchors = self.anchors("Python is 3.11 or newer", files=("./pyproject.toml",))
        self.assertEqual([anchor.path for anchor in anchors], ["pyproject.toml"])

    def test_accessors_and_qualified_names_are_searched_for(self) -> None:
        accessors = "\n".join(f"  def self.key_limit{end}\n    @limit\n  end\n" for end in ("", "=(limit)"))
        content = f"module Store::Deep\n{accessors}end\n".encode()
        self.commit(**{"store.rb": content})
        anchor = self.anchor("`key_limit` bounds the keys.")
        self.assertEqual((anchor.symbol, anchor.first, anchor.last), ("Store.Deep.key_limit", 2, 8))
        self.assertEqual(self.anchor("`Store::Deep` has the limits.").symbol, "Store.Deep")

    def test_long_runs_without_a_space_are_left_out_and_long_numbers_are_read(self) -> None:
        for part in ("ä", "1,", "_a", "0xff", "hundred ", "thousand-"):
            words = words_of_text(f"Retries: {part * (20_000 // len(part))} of 5.")
            self.assertLessEqual({"retry", "5"}, words.weights.keys())
            self.assertLess(max(map(len, words.weights)), 200)

    def test_there_are_at_most_eight(self) -> None:
        paths = [f"src/part{number}.py" for number in range(12)]
        self.commit(**dict.fromkeys(paths, b"x = 1\n"))
        self.assertEqual(len(self.anchors(" and ".join(paths))), 8)


class CheckingTests(AnchorTestCase):
    def test_lines_that_moved_are_followed(self) -> None:
        anchor = self.anchor("See src/client.py:10-16.")
        self.assert_state(anchor, State.FRESH)
        self.replace(b"import time", b"import time\nimport random\n")
        finding = self.assert_state(anchor, State.MOVED)
        self.assertEqual((finding.first, finding.last), (12, 18))

    def test_white_space_and_quotes_do_not_count(self) -> None:
        self.write_file("src/a.js", b"function f() {\n  return ['a', 'b']\n}\n")
        anchor = self.anchor("See src/a.js:1-3.")
        self.write_file("src/a.js", b'function f() {\n\n    return [\n        "a", "b"\n    ]\n}\n')
        self.assert_state(anchor, State.MOVED)

    def test_a_value_that_changed_is_noticed_and_an_edit_beside_it_is_not(self) -> None:
        anchor = self.anchor("Client.send in src/client.py sleeps 2 ** attempt seconds after a 503.")
        self.replace(b"response = self.transport.handle(request)", b"response = self.pool.handle(request, True)")
        self.assert_state(anchor, State.FRESH)
        self.replace(b"!= 503", b"not in (502, 504)")
        self.assert_state(anchor, State.CHANGED)

    def test_a_file_that_no_longer_names_what_a_text_names_has_changed(self) -> None:
        self.write_file("src/db.py", b"import asyncpg\n\npool = asyncpg.create_pool(dsn)\n")
        anchor = self.anchor("src/db.py talks to the database through `asyncpg`")
        self.write_file(
            "src/db.py", b"import asyncpg\n\n\ndef pool(dsn):\n    return asyncpg.create_pool(dsn, min_size=4)\n"
        )
        self.assertIn(self.assert_state(anchor, State.FRESH).state, (State.FRESH,))
        self.write_file("src/db.py", b"import psycopg\n\npool = psycopg.Pool(dsn)\n")
        self.assert_state(anchor, State.CHANGED)

    def test_a_type_between_a_name_and_its_value_does_not_count(self) -> None:
        anchor = self.anchor("`MAX_RETRIES=5` in src/client.py")
        self.replace(b"MAX_RETRIES = 5", b"MAX_RETRIES: Final[int] = 5")
        self.assertNotEqual(check(anchor, self.tree).state, State.GONE)
        self.replace(b"= 5", b"= 7")
        self.assert_state(anchor, State.CHANGED)

    def test_what_a_plain_text_says_of_a_file_that_was_read_is_compared(self) -> None:
        content = b"""\
most_connections = 65
def get(url, allow_redirects: bool = True, decode_keys: bool = True): ...
SETTINGS = [
    "hash_addresses",
    False,
    "cache_seconds",
    90,
]
options = {"module_resolution": "strict", "size": 0x100}
"""
        changes = (
            ("At most sixty-five connections are open.", b"= 65", b"= 70"),
            (
                "Redirects are followed by default; switch that off if you must.",
                b"redirects: bool = True",
                b"redirects: bool = False",
            ),
            ("`hash_addresses` is not enabled.", b"    False,", b"    True,"),
            ("Seconds in the cache: ninety.", b"    90,", b"    9,"),
            ("For the module resolution we are strict.", b"strict", b"loose"),
            ("The size is 256 by default.", b"0x100", b"0x200"),
        )
        for text, old, new in changes:
            self.commit(**{"src/client.py": content})
            with self.subTest(text):
                anchor = self.anchor(text, CodeChange("src/client.py"))
                self.replace(b"}\n", b"}\nmore = 1\n")
                self.assert_state(anchor, State.FRESH)
                self.replace(old, new)
                self.assert_state(anchor, State.CHANGED)

    def test_a_definition_has_a_word_of_a_text_that_names_it(self) -> None:
        anchor = self.anchor("`Client.send` waits by sleeping.")
        self.assertEqual(anchor.words, ["sleep"])
        self.replace(b"503", b"504")
        self.assert_state(anchor, State.FRESH)
        self.replace(b"time.sleep", b"self.pause")
        self.assert_state(anchor, State.CHANGED)

    def test_a_definition_that_went_has_changed(self) -> None:
        anchor = self.anchor("`Client.send` of src/client.py does all retries")
        self.replace(b"def send", b"def deliver")
        self.assert_state(anchor, State.CHANGED)

    def test_a_file_that_is_made_again_is_fresh(self) -> None:
        anchor = self.anchor("See src/client.py:10-16.")
        (self.folder / "src/client.py").unlink()
        self.assert_state(anchor, State.GONE)
        self.write_file("src/client.py", CLIENT)
        self.assert_state(anchor, State.FRESH)

    def test_a_renamed_file_is_followed(self) -> None:
        commit = self.tree.head
        anchor = self.anchor("See src/client.py:10-16.")
        self.repository.git("mv", "src/client.py", "src/transport.py")
        self.repository.git("commit", "-qm", "rename")
        self.assertEqual(self.assert_state(anchor, State.MOVED, commit=commit).path, "src/transport.py")
        self.replace(b"!= 503", b"!= 429", "src/transport.py")
        self.assertEqual(self.assert_state(anchor, State.CHANGED, commit=commit).path, "src/transport.py")

    def test_a_file_in_another_folder_is_followed_by_its_name_and_lines(self) -> None:
        anchor = self.anchor("See src/client.py:10-16.")
        self.repository.git("mv", "src", "lib")
        self.assertEqual(self.assert_state(anchor, State.MOVED).path, "lib/client.py")
        self.replace(b"!= 503", b"!= 429", "lib/client.py")
        self.assert_state(anchor, State.GONE)

    def test_a_file_that_moved_with_its_folder_is_followed_where_several_have_its_name(self) -> None:
        self.commit(**{"json/codec.py": b"TAG = 'fast'\n", "xml/codec.py": b"TAG = 'slow'\n"})
        anchor = self.anchor("json/codec.py has TAG fast.")
        (self.folder / "json/codec.py").unlink()
        self.commit(**{"internal/json/codec.py": b"import re\n\nfrom json import loads\n\nTAG = 'fast'\n" + CLIENT})
        self.assertEqual(self.assert_state(anchor, State.MOVED).path, "internal/json/codec.py")

    def test_a_link_that_leads_out_of_the_tree_is_not_read(self) -> None:
        anchor = self.anchor("See src/client.py:10-16.")
        outside = self.folder.parent / "client.py"
        outside.write_bytes(CLIENT)
        (self.folder / "src/client.py").unlink()
        (self.folder / "src/client.py").symlink_to(outside)
        self.assert_state(anchor, State.CHANGED)

    def test_anchors_are_renewed_where_their_lines_are_now(self) -> None:
        anchors = self.anchors("Client.send in src/client.py sleeps 2 ** attempt seconds; see pyproject.toml.")
        self.replace(b"import time", b"import time\n\n")
        self.replace(b"2 ** attempt", b"3 ** attempt")
        (self.folder / "pyproject.toml").unlink()
        self.assertEqual(check(anchors[0], self.tree).state, State.CHANGED)
        (anchor,) = renewed(anchors, self.tree)
        self.assertEqual((anchor.symbol, anchor.first), ("Client.send", 12))
        self.assert_state(anchor, State.FRESH)


_LINES = st.lists(st.text("ab =(){}\t'\"", max_size=12), min_size=1, max_size=20)
_SEEN = settings(max_examples=200, deadline=None)


class PropertyTests(TestCase):
    @given(above=_LINES, lines=_LINES, below=_LINES)
    @_SEEN
    def test_lines_with_others_above_are_the_same(self, above: list[str], lines: list[str], below: list[str]) -> None:
        file = WorkingFile("a.py", "\n".join([*lines, *below]))
        anchor = self._anchor(file, len(lines))
        assume(anchor.digest)
        moved = WorkingFile("a.py", "\n".join([*above, *lines, *below]))
        self.assertIn(compare(anchor, moved).state, (State.FRESH, State.MOVED))

    @given(lines=_LINES, data=st.data())
    @_SEEN
    def test_another_character_is_a_change(self, lines: list[str], data: st.DataObject) -> None:
        numbers = [number for number, line in enumerate(lines) if line.strip()]
        assume(numbers)
        number = data.draw(st.sampled_from(numbers))
        place = data.draw(st.integers(0, len(lines[number])))
        file = WorkingFile("a.py", "\n".join(lines))
        anchor = self._anchor(file, len(lines))
        changed = [*lines]
        changed[number] = f"{lines[number][:place]}#{lines[number][place:]}"
        self.assertEqual(compare(anchor, WorkingFile("a.py", "\n".join(changed))).state, State.CHANGED)

    @given(lines=_LINES)
    @_SEEN
    def test_other_white_space_is_no_change(self, lines: list[str]) -> None:
        anchor = self._anchor(WorkingFile("a.py", "\n".join(lines)), len(lines))
        assume(anchor.digest)
        spaced = [f"\t{line.replace(' ', '')}  " for line in lines]
        self.assertEqual(compare(anchor, WorkingFile("a.py", "\n".join(spaced))).state, State.FRESH)

    def _anchor(self, file: WorkingFile, last: int) -> AnchorRecord:
        return AnchorRecord(path="a.py", first=1, last=last, digest=file.digest(1, last))


class MarkTests(AnchorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(use_folder(FolderSettings(directory=str(self.folder))))

    def marks(self, *ids: int) -> dict[int, tuple[str, str]]:
        return {entity_id: (mark.kind.value, mark.text) for entity_id, mark in anchor_marks(ids, self.tree).items()}

    def test_entries_whose_code_changed_or_went_are_marked(self) -> None:
        retries = self.write("Retries", "MAX_RETRIES is 5 in src/client.py")
        python = self.write("Python", "See pyproject.toml for the version of Python")
        lines = self.write("Loop", "The loop is in src/client.py:10-16")
        other = self.write("Meeting", "We meet on Mondays")
        self.assertEqual(self.marks(retries, python, lines, other), {})
        self.replace(b"MAX_RETRIES = 5", b"MAX_RETRIES = 7")
        (self.folder / "pyproject.toml").unlink()
        self.assertEqual(
            self.marks(retries, python, lines, other),
            {
                retries: ("changed", "src/client.py#MAX_RETRIES has changed since"),
                python: ("gone", "pyproject.toml is gone"),
            },
        )
        self.replace(b"!= 503", b"!= 429")
        self.assertEqual(self.marks(lines)[lines], ("changed", "src/client.py:10-16 has changed since"))
        self.assertEqual(anchor_marks([retries], None), {})

    def test_a_revision_is_compared_with_the_code_of_its_day(self) -> None:
        retries = self.write("Retries", "MAX_RETRIES is 5 in src/client.py")
        self.replace(b"MAX_RETRIES = 5", b"MAX_RETRIES = 7")
        self.assertIn(retries, self.marks(retries))
        self.update(retries, content="MAX_RETRIES is 7 in src/client.py")
        self.assertEqual(self.marks(retries), {})

    def test_a_link_to_a_governed_file_is_an_anchor(self) -> None:
        links = [{"uri": "pyproject.toml", "type": "governs"}]
        python = self.write("Python", "Needs Python 3.11", resource_links=links)
        self.assertEqual(
            list(CodeAnchor.objects.filter(entity_id=python).values_list("path", flat=True)), ["pyproject.toml"]
        )
        self.replace(b">=3.11", b">=3.12", "pyproject.toml")
        self.assertEqual(self.marks(python)[python][0], "changed")
