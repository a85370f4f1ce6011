from __future__ import annotations

import os
import tempfile
from datetime import date
from pathlib import Path
from typing import Any
from unittest import TestCase, mock

from memories import bootstrap, selectors, services
from memories.bootstrap import GuidelineStatus, guidelines, load_guidelines, remove_guidelines
from memories.importing import MarkdownReport, import_markdown
from memories.importing.build_commands import build_commands, describe_commands
from memories.importing.files import MAX_BYTES, find_files, read_text
from memories.importing.sections import parse_document, split_text
from memories.memtest import read_tests
from memories.models import KIND_MODELS, Memory
from memories.schemas import MAX_CONTENT, MemoryGet, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.schemas.links import PREDEFINED, RelationCreate
from memories.services import delete_memory, write_memories
from memories.services.links import create_relation
from memories.substance import BUILD_TOPIC, is_ballast
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, use_store
from tests.memories.base import erase_deleted
from tests.sessions_app.test_git import Repository
from tests.support import Done as CommandResult
from tests.support import HubTestCase, run_command


def sections(text: str, ending: str = ".md") -> list[tuple[tuple[str, ...], str, str]]:
    return [(section.headings, section.key, section.text) for section in parse_document(text, ending).sections]


class SectionsTest(TestCase):
    def test_a_section_is_the_text_under_a_heading_without_its_sub_sections(self) -> None:
        nested = "intro\n\n# One\n\na\n\n## Two\nb\n\n### Three ###\nc\n\n## Four\n\n# Five\nd\n"
        code = (
            "```sh\n# not this\n```\n\n    # nor this\n\n~~~\n## no\n~~~\n\n> # nor this\n\n- # nor this\n\n#nor-this"
        )
        formatted = "# The `a_b` **tool** of [us](http://x) and _them_ {#id}\nx\n# snake_case_name\ny"
        repeated = "# A\n## X\n1\n## X\n2\n### Y\n3\n# A\n## X\n4\n# A 2\n5"
        table = "====  ====\nA     B\n====  ===="
        restructured = f"=====\nTitle\n=====\n\nintro\n\nPart\n----\n\na\n\nSub\n~~~~\nb\n\nNext\n----\nc\n\n{table}"
        prose = "The box has a key.\n\n- and a lock"
        for case, text, expected in (
            ("nested", nested, {"": "intro", "one": "a", "one/two": "b", "one/two/three": "c", "five": "d"}),
            ("underlined", "One\n===\na\n\nTwo\n---\nb", {"one": "a", "one/two": "b"}),
            ("code, quotations and lists", f"# One\n{code}", {"one": code}),
            ("repeated", repeated, {"a/x": "1", "a/x-2": "2", "a/x-2/y": "3", "a-2/x": "4", "a-2-2": "5"}),
            ("a horizontal rule is no front matter", "---\n\ntext", {"": "---\n\ntext"}),
            ("no headings", "just text\n", {"": "just text"}),
            ("nothing", " \n\n", {}),
            ("contents alone", "# A\n\n## Contents\n\n* [B](#b)\n\n## B\n\nb\n", {"a/b": "b"}),
            ("contents with prose", f"## Contents\n\n{prose}", {"contents": prose}),
        ):
            with self.subTest(case):
                self.assertEqual({key: body for _, key, body in sections(text)}, expected)
        titles = [path for path, _, _ in sections(formatted)]
        self.assertEqual(titles, [("The a_b tool of us and them",), ("snake_case_name",)])
        self.assertEqual(sections(nested)[3], (("One", "Two", "Three"), "one/two/three", "c"))
        parts = {"title": "intro", "title/part": "a", "title/part/sub": "b", "title/next": f"c\n\n{table}"}
        self.assertEqual({key: body for _, key, body in sections(restructured, ".rst")}, parts)
        self.assertEqual(sections(".. _a:\n\nAlpha\n=====\n\na\n", ".rst"), [(("Alpha",), "alpha", "a")])
        self.assertEqual(len(sections("# One\n\na\n\n## Two\n\nb", ".txt")), 2)
        for text in ("# a comment\nrequests==1\n# another\ndjango", "Licence\n-------\ntext"):
            self.assertEqual(sections(text, ".txt"), [((), "", text)], "no headings without blank lines around")

    def test_a_section_that_says_nothing_is_joined_to_the_text_that_it_belongs_to(self) -> None:
        links = "- [scale-config](scale-config.md)\n- [[false alarms]], see also `tare.md`"
        related = f"Tare it.\n\nRelated:\n\n{links}"
        record = "# 1. Use X\nDate: 2016-02-12\n\n## Status\nAccepted\n\n## Context\nWhy.\n\n## Decision\nX."
        why = "Why.\n\n1. Use X:\n\nDate: 2016-02-12\n\nStatus:\n\nAccepted"
        accepted, sentence = "a\n\nStatus:\n\n**Accepted** 2023-06-05", "The port is not open yet."
        said = "- [Grafana](https://grafana.example.com)\n- [CONTRIBUTING](c.md) for how to run the tests"
        for case, text, expected in (
            ("links", f"# A\n\n## Statement\nTare it.\n\n## Related\n{links}", {"a/statement": related}),
            ("links first", f"# A\n## Related\n{links}\n## Statement\nTare it.", {"a/statement": related}),
            ("another chapter", "# A\na\n# B\n## Related\n[x](x.md)", {"a": "a", "b/related": "[x](x.md)"}),
            ("a record", record, {"1-use-x/context": why, "1-use-x/decision": "X."}),
            ("a date below", "# A\na\n## Status\n**Accepted** 2023-06-05", {"a": accepted}),
            ("nothing else", "# Related\n[x](x.md)", {"related": "[x](x.md)"}),
            ("links that say something", f"# A\na\n# Links\n{said}", {"a": "a", "links": said}),
            ("a short fact", f"# Port\n8321\n# Status\n{sentence}", {"port": "8321", "status": sentence}),
        ):
            with self.subTest(case):
                self.assertEqual({key: body for _, key, body in sections(text)}, expected)

    def test_front_matter_gives_tags_and_is_not_imported(self) -> None:
        for front in (
            "tags: [Alpha, 'beta x']",
            "title: x\ntags: Alpha, beta x",
            'tags:\n  - Alpha\n  - "beta x"\nx: y',
        ):
            document = parse_document(f"---\n{front}\n---\n# One\ntext", ".md")
            self.assertEqual(document.tags, ["Alpha", "beta x"])
            self.assertEqual([section.text for section in document.sections], ["text"])

    def test_two_blocks_of_front_matter_count_as_one(self) -> None:
        second = "---\ndescription: How the alarm is silenced\ntags: [freezer]\n---\n\n# Freezer\n\nPress twice.\n"
        document = parse_document(f"---\npermalink: shop/two\n---\n\n{second}", ".md")
        self.assertEqual([section.text for section in document.sections], ["How the alarm is silenced\n\nPress twice."])
        self.assertEqual((document.tags, document.matter["permalink"]), (["freezer"], "shop/two"))
        self.assertEqual(sections("---\ntitle: A\n---\n---\nNote: this is text\n---\nx")[0][0], ("Note: this is text",))

    def test_tags_are_read_as_notes_write_them(self) -> None:
        for line, tags in (
            ("tags: [[x]], #y", ["x", "y"]),
            ("tags: #a #b/c # the rest is a comment", ["a", "b/c"]),
            ("tags: [#a, b]", ["a", "b"]),
            ('tags: ["a, b", c]', ["a, b", "c"]),
            ("tags:\n  - #a\n  - [[b|shown]]", ["a", "b"]),
            ("tags: 7", ["7"]),
        ):
            self.assertEqual(parse_document(f"---\n{line}\n---\ntext", ".md").tags, tags, line)

    def test_long_texts_are_split_between_paragraphs_lines_or_words(self) -> None:
        for gap in ("\n\n", "\n", " "):
            text = gap.join(["word" * 5] * 50)
            parts = split_text(text, 200)
            self.assertTrue(all(len(part) <= 200 and set(part.split()) == {"word" * 5} for part in parts))
            self.assertEqual("".join(text.split()), "".join("".join(parts).split()))
        self.assertEqual(split_text("x" * 450, 200), ["x" * 200, "x" * 200, "x" * 50])


class FilesTest(TestCase):
    def setUp(self) -> None:
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve() / "alpha"
        self.root.mkdir()

    def write(self, path: str, content: bytes = b"text") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def test_text_files_are_found_and_hidden_or_foreign_folders_are_not(self) -> None:
        kept = ["a.md", "b/c.MARKDOWN", "b/d.mdx", "e.rst", "f.txt"]
        for path in [*kept, "g.py", ".h.md", "b/.git/i.md", "node_modules/j/k.md", "b/.venv/l.md", "venv/m.txt"]:
            self.write(path)
        (self.root / "link.md").symlink_to(self.root / "a.md")
        self.assertEqual(find_files(self.root), kept)

    def test_what_git_ignores_is_left_out(self) -> None:
        repository = Repository(self.root)
        for path in ("a.md", "built/b.md", "untracked.md", "gone.md"):
            self.write(path)
        self.write(".gitignore", b"built/\n")
        repository.commit("one")
        (self.root / "gone.md").unlink()
        self.assertEqual(find_files(self.root), ["a.md", "untracked.md"])
        self.assertEqual(find_files(self.root / "built"), ["b.md"])

    def test_texts_are_decoded_and_binary_and_large_files_have_none(self) -> None:
        for content, text in (
            (b"\xef\xbb\xbfa\r\nb\rc", "a\nb\nc"),
            ("# Wärme\r\n".encode("utf-16"), "# Wärme\n"),
            (b"\xfe\xff" + "Ventile".encode("utf-16-be"), "Ventile"),
            (b"caf\xe9", "café"),
            (
                "Vérifiez les soupapes, déjà à l'été – „ici“.".encode("cp1252"),
                "Vérifiez les soupapes, déjà à l'été – „ici“.",
            ),
            ("# Правила\n\nПроверьте клапаны.".encode("cp1251"), "# Правила\n\nПроверьте клапаны."),
            ("# Правила\n\nПроверьте клапаны.".encode("koi8_r"), "# Правила\n\nПроверьте клапаны."),
            ("# 規則\n\n毎朝ポンプの試験".encode("cp932"), "# 規則\n\n毎朝ポンプの試験"),
            ("# 规则\n\n每天早上检查水泵。".encode("gb18030"), "# 规则\n\n每天早上检查水泵。"),
            (
                "Każdego ranka sprawdź zawory, łącznie z pompą.".encode("cp1250"),
                "Każdego ranka sprawdź zawory, łącznie z pompą.",
            ),
        ):
            self.assertEqual(read_text(self.write("a.md", content)), text, content[:20])
        for content, reason in (
            (b"a\0b", "it is binary"),
            (b"\xff\xfea\0\0\0", "it is binary"),
            (b"x" * (MAX_BYTES + 1), "larger than"),
            ("בדקו את השסתומים".encode("cp1255"), "not in UTF-8"),
            (bytes(range(128, 256)), "not in UTF-8"),
        ):
            with self.assertRaisesRegex(Invalid, reason):
                read_text(self.write("a.md", content))
        with self.assertRaisesRegex(Invalid, "No such file"):
            read_text(self.root / "none.md")


class ImportMarkdownTest(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.docs = self.home / "docs"
        self.write("guide/setup.md", "---\ntags: [How-To]\n---\n# Set up\n\nInstall it.\n\n## Start\n\nRun it.\n")

    def write(self, path: str, text: str) -> None:
        file = self.docs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def bring_in(self, project: str = "alpha", **options: list[str]) -> MarkdownReport:
        with self.store(project):
            return import_markdown(directory=self.docs, tags=options.get("tags", ()))

    def memories(self, project: str = "alpha") -> list[Memory]:
        with self.store(project):
            return list(Memory.objects.live().order_by("id"))

    def counts(self, report: MarkdownReport) -> tuple[int, int, int, int]:
        return report.created, report.updated, report.unchanged, report.deleted

    def test_every_section_becomes_a_memory_with_its_source_and_a_second_import_changes_nothing(self) -> None:
        report = self.bring_in(tags=["Docs"])
        self.assertEqual((self.counts(report), report.files), ((2, 0, 0, 0), 1))
        one, two = self.memories()
        self.assertEqual((one.title, one.content), ("guide/setup.md › Set up", "Install it."))
        self.assertEqual((two.title, two.content), ("guide/setup.md › Set up › Start", "Run it."))
        self.assertEqual(two.topic_key, "import:markdown:guide/setup.md#set-up/start")
        self.assertEqual((two.source, two.tags), ("guide/setup.md", ["docs", "guide", "how-to"]))
        self.assertEqual(self.memories("beta"), [])
        Repository(self.docs)
        self.write("other.md", "text")
        progress: list[int] = []
        with self.store():
            import_markdown(directory=self.docs, tags=["Docs"], progress=progress.append)
            again = import_markdown(directory=self.docs / "guide", tags=["Docs"])
            with self.assertRaisesRegex(Invalid, "is not a folder"):
                import_markdown(directory=self.home / "none")
        self.assertEqual((progress, self.counts(again)), ([1, 2], (0, 0, 2, 0)))
        self.assertEqual([(memory.id, memory.version) for memory in self.memories()][:2], [(one.id, 1), (two.id, 1)])

    def test_changed_new_and_lost_sections_are_revised_written_and_deleted(self) -> None:
        self.bring_in()
        self.write("guide/setup.md", "---\ntags: [How-To]\n---\n# Set up\n\nInstall it well.\n\n## Stop\n\nEnd it.\n")
        self.assertEqual(self.counts(self.bring_in()), (1, 1, 0, 1))
        self.assertEqual([(m.content, m.version) for m in self.memories()], [("Install it well.", 2), ("End it.", 1)])
        self.write("guide/setup.md", "# Set up\n\nInstall it well.\n\n## Start\n\nRun it.\n")
        self.bring_in()
        run, install = sorted(self.memories(), key=lambda memory: memory.content, reverse=True)
        self.assertEqual((run.content, install.content), ("Run it.", "Install it well."))
        with self.store():
            delete_memory(command=MemoryTouch(id=run.id, reason="no use"))
        report = self.bring_in()
        self.assertEqual((self.counts(report), report.left_deleted), ((0, 0, 1, 0), 1), "a person deleted it")

    def test_a_section_comes_once_from_the_files_of_several_clients_and_not_beside_its_guideline(self) -> None:
        rules = "# Migrations\n\nMake them reversible.\n\n# Tests\n\nUse recorded gauges.\n"
        for path, text in (
            ("AGENTS.md", rules),
            ("CLAUDE.md", f"{rules}\n# Voice\n\nBe brief.\n"),
            ("GEMINI.md", "@AGENTS.md"),
        ):
            self.write(path, text)
        report = self.bring_in()
        texts = [memory.content for memory in self.memories() if memory.source != "guide/setup.md"]
        self.assertEqual(texts, ["Make them reversible.", "Use recorded gauges.", "Be brief."])
        same = "the same text as in AGENTS.md"
        skipped = [
            ("CLAUDE.md › Migrations", same),
            ("CLAUDE.md › Tests", same),
            ("GEMINI.md", "it only imports AGENTS.md"),
        ]
        self.assertEqual(report.skipped, skipped)
        with self.store():
            for name, text in (("migrations", "Make them reversible."), ("tests", "Use recorded gauges.")):
                topic = f"import:agents-md:docs/AGENTS.md#{name}"
                write_memories(commands=[MemoryWrite(title=name, content=text, kind="guideline", topic_key=topic)])
        self.assertIn(("AGENTS.md › Tests", "imported as a guideline"), self.bring_in().skipped)
        texts = [memory.content for memory in self.memories() if memory.kind == "observation"]
        self.assertEqual(sorted(texts), ["Be brief.", "Install it.", "Run it."])

    def test_a_decision_record_is_left_to_its_own_import(self) -> None:
        for path in ("docs/adr/0001-use-wal.md", "adr/ADR-12.md", "architecture-decisions/2024-01-02-x.md"):
            self.write(path, "# Use WAL\n\nSuperseded by 2.\n")
        self.write("docs/adr/README.md", "# Records\n\nOne a file.\n")
        report = self.bring_in()
        self.assertEqual(report.created, 3)
        why = "a decision record; `memory-hub import adr docs/adr` imports it with its status"
        self.assertEqual(len(report.skipped), 3)
        self.assertIn(("docs/adr/0001-use-wal.md", why), report.skipped)

    def test_earlier_notes_of_a_decision_record_stay_until_it_is_imported(self) -> None:
        self.write("docs/adr/0001-use-wal.md", "# Use WAL\n\nReaders do not wait.\n")
        with mock.patch("memories.importing.record_reason", return_value=""):
            self.assertEqual(self.bring_in().created, 3)
        self.assertEqual(self.bring_in().deleted, 0)
        self.assertIn("docs/adr/0001-use-wal.md", [memory.source for memory in self.memories()])

    def test_a_name_that_is_no_utf_8_stays_readable_and_the_same(self) -> None:
        for name in ("caf\udce9.md", "caf\udce8.md"):
            self.write(name, "# T\n\nThe boiler is here.\n")
        report = self.bring_in()
        self.assertEqual((report.created, report.skipped), (4, []))
        self.assertEqual([memory.source for memory in self.memories()][:2], ["caf\\xe8.md", "caf\\xe9.md"])
        self.assertEqual(self.counts(self.bring_in()), (0, 0, 4, 0))

    def test_a_section_is_as_old_as_its_text(self) -> None:
        repository = Repository(self.docs)
        self.write("dated.md", "---\ndate: 2024-02-03\nmodified: 2024-02-04T05:00\n---\nWritten long ago.\n")
        repository.commit("Describe the setup")
        self.write("new.md", "Not committed.")
        os.utime(self.docs / "new.md", (1_772_352_000, 1_772_352_000))
        self.bring_in()
        days = {memory.source: memory.updated_at.date().isoformat() for memory in self.memories()}
        self.assertEqual(days, {"dated.md": "2024-02-04", "guide/setup.md": "2023-11-14", "new.md": "2026-03-01"})
        self.assertEqual(self.memories()[0].created_at.date().isoformat(), "2024-02-03")
        self.write("guide/setup.md", "Install it again.")
        repository.hours = 10_000
        repository.commit("Install it again")
        self.bring_in()
        self.assertEqual(self.memories()[-1].updated_at.date().isoformat(), "2025-01-04")

    def test_the_build_note_follows_the_files(self) -> None:
        repository = Repository(self.docs)

        def note(*exclude: str) -> tuple[str, str, date] | None:
            with self.store():
                import_markdown(directory=self.docs, exclude=exclude)
                memory = Memory.objects.live().filter(topic_key=BUILD_TOPIC).first()
            return (memory.content, memory.source, memory.updated_at.date()) if memory else None

        repository.commit("one", Makefile=b"test:\n\tpytest\n")
        self.assertEqual(note(), ("test: `make test` (Makefile)", "Makefile", date(2023, 11, 14)))
        repository.commit("two", **{"Makefile": b"check:\n\tpytest\n", "go.mod": b"module x\n"})
        self.assertEqual(note("go.mod"), ("test: `make check` (Makefile)", "Makefile", date(2023, 11, 15)))
        self.assertIsNone(note("go.mod", "Makefile"))

    def test_files_that_are_not_read_again_keep_their_memories(self) -> None:
        self.write("other.md", "# Other\n\ntext")
        self.bring_in()
        (self.docs / "other.md").write_bytes(b"\0")
        report = self.bring_in()
        self.assertEqual(report.skipped, [("other.md", "it is binary, or its text is not in UTF-8")])
        self.assertEqual((report.deleted, len(self.memories())), (0, 3))

    def test_data_files_are_left_out_and_earlier_memories_of_them_deleted(self) -> None:
        self.write("pieces.txt", "A text that somebody wrote, with a few words.\n")
        self.bring_in()
        for path, text in (
            ("pieces.txt", "".join(f"[unused{number}]\n" for number in range(99))),
            ("vocab.txt", "[PAD]\nthe"),
            ("requirements-dev.txt", "django==5.2"),
            ("tables.md", "<!-- This file was generated by make docs. -->\n# Tables\n\nOne."),
            ("bundle.txt", "word " * 9_000),
            ("amazing.txt", "what an amazing download"),
        ):
            self.write(path, text)
        texts = {
            "notes.txt": "These are the reasons for it:\n" * 20 + "- item\n" * 60,
            "README.md": "# gen\n\nAuto-generated clients: code generated by gen is small. It is generated once.\n",
            "requirements.rst": "Requirements\n============\n\nThe system needs PostgreSQL 15.\n",
            "constraints.txt": "We never delete what users wrote, without a ticket.\n",
        }
        for path, text in texts.items():
            self.write(path, text)
        report = self.bring_in()
        self.assertEqual((report.files, report.deleted, len(report.skipped)), (5, 1, 6))
        reason = "a list, generated, or a few words: data, not text"
        self.assertEqual({why for _, why in report.skipped}, {reason})
        self.assertEqual({memory.source for memory in self.memories()}, {"guide/setup.md", *texts})

    def test_a_private_block_is_left_out_even_over_headings_and_splits(self) -> None:
        hidden = "hidden words " * 12_000
        private = f"<private>\n\n# B\n\n{hidden}\n\n# C\n\n{hidden}\n</private>"
        self.write("notes.md", f"# A\n\nopen\n\n{private}\n\n# D\n\nalso open")
        self.bring_in()
        texts = [memory.content for memory in self.memories() if memory.source == "notes.md"]
        self.assertEqual(texts, ["open", "also open"])

    def test_secrets_in_text_headings_and_names_are_masked_and_a_second_import_changes_nothing(self) -> None:
        token = "ghp_aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
        self.write(f"{token}.md", f"# Use {token}\n\nkey {token}\n\n# Use {token}\n\nmore {token}\n")
        self.assertEqual(self.bring_in().created, 4)
        self.assertEqual(self.counts(self.bring_in()), (0, 0, 4, 0))
        self.assertNotIn(token, str([(m.title, m.content, m.topic_key, m.source) for m in self.memories()]))

    def test_long_sections_are_split_and_long_names_are_cut_at_the_front(self) -> None:
        deep = "/".join(["folder"] * 30)
        self.write(f"{deep}/a.md", f"# {'H' * 150}\n\n## {'x' * 150}\n\n" + "word " * 30_000)
        self.write(f"{deep}/b.md", f"# {'H' * 150}\n\n## {'x' * 150}\n\ntext")
        self.assertEqual(self.bring_in().created, 2 + 2 + 1)
        found = self.memories()[:2]
        self.assertTrue(all(len(memory.title) <= 200 and len(memory.content) <= MAX_CONTENT for memory in found))
        self.assertTrue(found[0].title.endswith("x" * 150 + " (1/2)") and found[0].title.startswith("…"))
        self.assertEqual(self.counts(self.bring_in()), (0, 0, 5, 0))


RULE = "Keep times in UTC"


class BuildCommandsTests(TestCase):
    def described(self, **files: str) -> str:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for path, text in files.items():
                file = folder / path.replace("__", "/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            Repository(folder)
            return describe_commands(build_commands(folder))

    def test_each_kind_of_file_names_commands(self) -> None:
        for files, expected in (
            ({"Cargo.toml": "[package]"}, "test: `cargo test` (Cargo.toml)\nbuild: `cargo build` (Cargo.toml)"),
            ({"pytest.ini": "", "uv.lock": ""}, "test: `uv run pytest` (pytest.ini)"),
            (
                {"Makefile": "test-cov: a\ntest: a\n\tpytest\nX := 1\nlint:\n"},
                "test: `make test` (Makefile), `make test-cov` (Makefile)\nlint: `make lint` (Makefile)",
            ),
            ({"justfile": "@test *options: init\n  pytest\n"}, "test: `just test` (justfile)"),
            (
                {"package.json": '{"scripts": {"test": "x", "build": "y", "start": "z"}}', "pnpm-lock.yaml": ""},
                "test: `pnpm run test` (package.json)\nbuild: `pnpm run build` (package.json)",
            ),
            ({"package.json": "[]"}, ""),
            ({"scripts__test": "#!/bin/sh"}, "test: `scripts/test` (scripts/test)"),
            ({"README.md": "Run `tox -e py`, or pip install it."}, "test: `tox -e py` (README.md)"),
            (
                {".github__workflows__ci.yml": "steps:\n  - run: go test ./...\n  - run: |\n      go vet ./...\n"},
                "test: `go test ./...` (.github/workflows/ci.yml)\nlint: `go vet ./...` (.github/workflows/ci.yml)",
            ),
            ({"docs__a.md": "Run `pytest`."}, ""),
            (
                {"CONTRIBUTING.md": "`cargo test -p cli`\n`pytest tests/a.py`\n`npm run docs:build`\n`make check`\n"},
                "test: `make check` (CONTRIBUTING.md)",
            ),
            (
                {
                    ".github__workflows__a-docs.yml": "- run: make build\n",
                    ".github__workflows__ci.yml": "- run: cargo build\n",
                },
                "build: `cargo build` (.github/workflows/ci.yml), `make build` (.github/workflows/a-docs.yml)",
            ),
        ):
            with self.subTest(files):
                self.assertEqual(self.described(**files), expected)

    def test_what_is_written_for_developers_comes_first(self) -> None:
        text = self.described(
            **{
                "go.mod": "",
                "Makefile": "test:\n",
                "CONTRIBUTING.md": "    $ make unit-tests\n",
                "AGENTS.md": "`make t`",
            }
        )
        expected = "`make unit-tests` (CONTRIBUTING.md), `make test` (Makefile), `go test ./...` (go.mod)"
        self.assertEqual(text.splitlines()[0], f"test: {expected}")

    def test_only_plain_commands_are_taken(self) -> None:
        for command in (
            "pytest; rm -rf ~", "pytest && evil", "pytest | sh", "pytest $(evil)", "pytest > /etc/passwd", "evil test",
            "make ${{ matrix.test }}", "pytest '$(evil)`evil`'", f"pytest {'x' * 100}",
        ):  # fmt: skip
            with self.subTest(command):
                self.assertEqual(self.described(**{"CONTRIBUTING.md": f"```\n{command}\n```\n"}), "")


class SubstanceTests(TestCase):
    def test_licences_tables_and_lists_of_changes_are_ballast(self) -> None:
        ranges = "\n".join(f"{number:04X}..{number + 9:04X}  ; Letter" for number in range(64, 128, 10))
        for title, source, text, expected in (
            ("LICENSE.md", "LICENSE.md", "You may copy it.", True),
            ("docs/changelog.rst › 0.9", "docs/changelog.rst", "Faster.", True),
            ("docs/releases/2.1.md › Notes", "docs/releases/2.1.md", "Faster.", True),
            ("README.md › Tool › License", "README.md", "MIT", True),
            ("vendor/x.txt", "vendor/x.txt", "Permission is hereby granted, free of charge", True),
            ("letters.txt", "letters.txt", ranges, True),
            ("a.md › Options", "a.md", "| name | text |\n|---|---|\n| a | b |", True),
            ("a.md › Options", "a.md", "Each has a default.\nIt may be changed.\n\n| name | text |", False),
            ("docs/changes-in-schema.md › Plan", "docs/schema-changes.md", "Migrate first.", False),
            ("docs/api.rst", "docs/api.rst", ".. contents:: :local:\n\n.. automodule:: a\n   :members:", True),
            ("docs/api.rst", "docs/api.rst", ".. note::\n\n   Each call opens a connection of its own.", False),
            ("tests/lists/a.md", "tests/lists/a.md", "One item after another.", True),
            ("tests/README.md › Run", "tests/README.md", "Start the database first.", False),
            ("docs/licensing-api.md › Use", "docs/keys.md", "Ask for a key.", False),
        ):
            with self.subTest(title):
                self.assertEqual(is_ballast(title, source, text), expected)


class BootstrapTestCase(HubTestCase):
    def loaded(self) -> dict[str, GuidelineStatus]:
        return {outcome.name: outcome.status for outcome in load_guidelines()}

    def removed(self) -> dict[str, GuidelineStatus]:
        return {outcome.name: outcome.status for outcome in remove_guidelines()}

    def names(self) -> set[str]:
        with use_store(GLOBAL_STORE):
            return set(KIND_MODELS["guideline"].objects.live().values_list("title", flat=True))

    def act(self, service: Any, schema: Any, **fields: Any) -> None:
        with use_store(GLOBAL_STORE), use_origin(source="mcp", actor="ada"):
            memory = Memory.objects.get(title=RULE)
            service(command=schema(id=memory.id, scope="global", **fields))


class DataTests(BootstrapTestCase):
    def test_every_guideline_is_whole_and_none_looks_like_a_secret(self):
        bundled = guidelines().values()
        self.assertTrue(bundled)
        for item in bundled:
            attributes: dict[str, Any] = item.attributes
            self.assertTrue(attributes["rationale"] and all(attributes["examples"][name] for name in ("good", "bad")))
            self.assertTrue(item.tags and item.type)
            self.assertLessEqual(set(item.tags), set(PREDEFINED))
        self.assertEqual(len({item.title for item in bundled}), len(bundled))
        load_guidelines()
        with use_store(GLOBAL_STORE):
            stored = {row.title: (row.content, row.attributes) for row in KIND_MODELS["guideline"].objects.all()}
        self.assertEqual(stored, {item.title: (item.content, item.attributes) for item in bundled})


class LoadTests(BootstrapTestCase):
    def test_a_project_inherits_the_guidelines_and_loading_again_changes_nothing(self):
        self.assertEqual(set(self.loaded().values()), {GuidelineStatus.ADDED})
        with self.store("alpha"):
            rule = selectors.get_memories(command=MemoryGet(name=RULE))[0]
        self.assertEqual((rule["scope"], rule["kind"], rule["author"]), ("global", "guideline", bootstrap.ACTOR))
        self.assertEqual(rule["attributes"]["priority"], 65)
        with use_store(GLOBAL_STORE):
            before = log.head()
            self.assertEqual(set(self.loaded().values()), {GuidelineStatus.UNCHANGED})
            self.assertEqual(log.head(), before)

    def test_an_edited_guideline_is_kept(self):
        load_guidelines()
        self.act(services.update_memory, MemoryUpdate, content="Keep times in Zurich's time.")
        self.assertEqual(self.loaded()[RULE], GuidelineStatus.EDITED)
        removed = self.removed()
        self.assertEqual(
            (removed.pop(RULE), set(removed.values())), (GuidelineStatus.EDITED, {GuidelineStatus.REMOVED})
        )
        self.assertEqual(self.names(), {RULE})
        with use_store(GLOBAL_STORE):
            self.assertIn("Zurich", Memory.objects.get(title=RULE).content)

    def test_an_existing_guideline_of_the_same_name_is_kept(self):
        with use_store(GLOBAL_STORE, create=True), use_origin(actor="ada"):
            mine = MemoryWrite(title=RULE, content="Mine.", kind="guideline", scope="global")
            services.write_memory(command=mine)
        for _ in range(2):
            self.assertEqual(self.loaded()[RULE], GuidelineStatus.TAKEN)
        self.assertNotIn(RULE, self.removed())
        with use_store(GLOBAL_STORE):
            self.assertEqual(Memory.objects.get(title=RULE).content, "Mine.")

    def test_a_new_text_replaces_an_unedited_guideline(self):
        load_guidelines()
        better = {**guidelines()}
        key = next(key for key, item in better.items() if item.title == RULE)
        better[key] = better[key].model_copy(update={"content": "Keep them in UTC, always."})
        with mock.patch.object(bootstrap, "guidelines", lambda: better):
            done = self.loaded()
        self.assertEqual((done.pop(RULE), set(done.values())), (GuidelineStatus.RENEWED, {GuidelineStatus.UNCHANGED}))
        with use_store(GLOBAL_STORE):
            self.assertEqual(Memory.objects.get(title=RULE).content, "Keep them in UTC, always.")


class RemoveTests(BootstrapTestCase):
    def test_removing_without_a_global_store_creates_none(self):
        self.assertEqual(self.removed(), {})
        self.assertFalse(stores.exists(GLOBAL_STORE))

    def test_removed_guidelines_are_restored_with_their_ids(self):
        first = {outcome.name: outcome.id for outcome in load_guidelines()}
        self.assertEqual(set(self.removed().values()), {GuidelineStatus.REMOVED})
        self.assertEqual((self.names(), self.removed()), (set(), {}))
        again = load_guidelines()
        self.assertEqual({entry.name: entry.id for entry in again}, first)
        self.assertEqual({item.status for item in again}, {GuidelineStatus.RESTORED})

    def test_a_guideline_deleted_or_erased_by_a_person_is_not_restored(self):
        load_guidelines()
        self.act(services.delete_memory, MemoryTouch)
        self.assertEqual(self.loaded()[RULE], GuidelineStatus.DELETED)
        self.removed()
        self.assertEqual(self.loaded()[RULE], GuidelineStatus.DELETED)
        with use_store(GLOBAL_STORE), use_origin(source="mcp", actor="ada"):
            erase_deleted(Memory.objects.get(title=RULE).id, scope="global")
        self.assertEqual(self.loaded()[RULE], GuidelineStatus.DELETED)
        self.assertNotIn(RULE, self.names())


class CommandTests(BootstrapTestCase):
    def test_the_command_reports_what_it_did(self):
        count = len(guidelines())
        lines = run_command("bootstrap").lines
        self.assertEqual(len(lines), count + 1)
        self.assertEqual(lines[0], "global#1 Never write secrets down: added")
        self.assertEqual(lines[-1], f"guidelines in the global scope: {count} added")
        self.assertEqual(run_command("bootstrap").lines, [f"guidelines in the global scope: {count} unchanged"])
        self.act(services.update_memory, MemoryUpdate, content="Mine.")
        removed = run_command("bootstrap", "--remove")
        self.assertIn(f"{RULE}: kept, edited since", removed.output)
        summary = f"guidelines in the global scope: {count - 1} removed; 1 kept, edited since"
        self.assertEqual(removed.lines[-1], summary)


class MemoryTestsTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            texts = {
                "Use jittered retries": "Waiting writers starve without jitter.",
                "Use exponential backoff": "Waiting writers back off exponentially.",
                "Port of the hub": "It listens on 8321.",
            }
            write_memories(commands=[MemoryWrite(title=title, content=text) for title, text in texts.items()])

    def run_file(self, text: str) -> CommandResult:
        path = self.home / "memory.tests.yml"
        path.write_text(text)
        return run_command("memtest", str(path), "--project", "alpha")

    def test_passing_tests_are_ok_and_nothing_is_written(self):
        with self.store("alpha"):
            before = log.head()
        report = self.run_file(
            "tests:\n"
            "  - {query: jitter for waiting writers, expect: [Use jittered retries], within: 1}\n"
            "  - {query: which port, expect: ['#3'], never: [Use jittered retries]}\n"
            "  - {pack: port, contains: ['8321'], lacks: [password]}\n"
        )
        self.assertIn("ok  jitter for waiting writers\n", report.output)
        self.assertIn("3 of 3 passed", report.output)
        outside, link = self.home / "outside.yml", self.home / "linked.yml"
        link.symlink_to(outside)
        refused = run_command("memtest", str(link), "--write", "--project", "alpha")
        self.assertIn("linked.yml exists", refused.errors)
        self.assertFalse(outside.exists())
        with self.store("alpha"):
            self.assertEqual(log.head(), before)

    def test_failing_tests_are_reported(self):
        with self.store("alpha"):
            create_relation(command=RelationCreate(source="1", relation="supersedes", target="2"))
        for test, sentence in (
            ("query: jitter, expect: [Port of the hub]", "'Port of the hub' is not among the first 3: #1"),
            ("query: waiting writers, never: ['#2']", "#2 Use exponential backoff is among the first 3"),
            ("query: which port, never: ['listens ON 8321']", "among the first 3, and contains 'listens ON 8321'"),
            ("pack: port, contains: ['9000']", "the pack does not contain '9000'"),
            ("pack: port, lacks: ['8321']", "the pack contains '8321'"),
            ("name: Nothing", "it has none of 'query', 'pack', 'run' and 'file'"),
            ("query: exponential", "#2 Use exponential backoff is superseded, and among the first 3"),
        ):
            with self.subTest(test):
                report = self.run_file(f"tests: [{{{test}}}]")
                self.assertEqual(report.code, 1)
                self.assertIn(sentence, report.output)
        allowed = self.run_file("tests: [{query: exponential, allow_superseded: true}]")
        self.assertIn("1 of 1 passed", allowed.output)

    def test_a_bad_file_is_reported_in_one_sentence(self):
        path = self.home / "memory.tests.yml"
        for text, sentence in (
            ("tests: [", "is not valid YAML"),
            ("tests: " + "[" * 2_000, "is nested too deeply"),
            ("tests: []", "tests"),
            ("tests: [{qery: x}]", "qery"),
            ("- a", "memory.tests.yml"),
        ):
            path.write_text(text)
            with self.subTest(text[:40]), self.assertRaisesRegex(Invalid, sentence):
                read_tests(path)
        with self.assertRaisesRegex(NotFound, "there is no .*absent.yml"):
            read_tests(self.home / "absent.yml")
