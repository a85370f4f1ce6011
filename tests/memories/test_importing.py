from __future__ import annotations

import tempfile
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import TestCase, mock

from django.core.management import call_command

from memories import bootstrap, selectors, services
from memories.bootstrap import Done, guidelines, load_guidelines, remove_guidelines
from memories.importing import MarkdownReport, import_markdown
from memories.importing.files import MAX_BYTES, find_files, read_text
from memories.importing.sections import parse_document, split_text
from memories.models import KIND_MODELS, Memory
from memories.schemas import MAX_CONTENT, MemoryGet, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.services import delete_memory
from memories.vocabulary import PREDEFINED
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, use_store
from tests.memories.base import erase_deleted
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase


def sections(text: str, ending: str = ".md") -> list[tuple[tuple[str, ...], str, str]]:
    return [(section.headings, section.key, section.text) for section in parse_document(text, ending).sections]


class SectionsTest(TestCase):
    def test_a_section_is_the_text_under_a_heading_without_its_sub_sections(self) -> None:
        text = "intro\n\n# One\n\na\n\n## Two\nb\n\n### Three ###\nc\n\n## Four\n\n# Five\nd\n"
        self.assertEqual(
            sections(text),
            [
                ((), "", "intro"),
                (("One",), "one", "a"),
                (("One", "Two"), "one/two", "b"),
                (("One", "Two", "Three"), "one/two/three", "c"),
                (("Five",), "five", "d"),
            ],
        )

    def test_underlined_headings_are_headings(self) -> None:
        self.assertEqual(
            sections("One\n===\na\n\nTwo\n---\nb"), [(("One",), "one", "a"), (("One", "Two"), "one/two", "b")]
        )

    def test_code_quotations_and_lists_contain_no_headings(self) -> None:
        code = "```sh\n# not this\n```\n\n    # nor this\n\n~~~\n## no\n~~~\n"
        text = f"# One\n{code}\n> # nor this\n\n- # nor this\n\n#nor-this"
        [(headings, _, body)] = sections(text)
        self.assertEqual((headings, body), (("One",), text.removeprefix("# One\n")))

    def test_repeated_headings_have_keys_of_their_own(self) -> None:
        text = "# A\n## X\n1\n## X\n2\n### Y\n3\n# A\n## X\n4\n# A 2\n5"
        self.assertEqual([key for _, key, _ in sections(text)], ["a/x", "a/x-2", "a/x-2/y", "a-2/x", "a-2-2"])

    def test_headings_lose_the_marks_of_their_formatting(self) -> None:
        text = "# The `a_b` **tool** of [us](http://x) and _them_ {#id}\nx\n# snake_case_name\ny"
        self.assertEqual(
            [path for path, _, _ in sections(text)], [("The a_b tool of us and them",), ("snake_case_name",)]
        )

    def test_front_matter_gives_tags_and_is_not_imported(self) -> None:
        for front in (
            "tags: [Alpha, 'beta x']",
            "title: x\ntags: Alpha, beta x",
            'tags:\n  - Alpha\n  - "beta x"\nx: y',
        ):
            document = parse_document(f"---\n{front}\n---\n# One\ntext", ".md")
            self.assertEqual(document.tags, ["Alpha", "beta x"])
            self.assertEqual([section.text for section in document.sections], ["text"])

    def test_a_horizontal_rule_at_the_top_is_not_front_matter(self) -> None:
        self.assertEqual([text for _, _, text in sections("---\n\ntext")], ["---\n\ntext"])

    def test_restructured_text_is_cut_at_its_underlined_headings(self) -> None:
        title, table = "=====\nTitle\n=====\n\nintro\n\n", "====  ====\nA     B\n====  ====\n"
        text = f"{title}Part\n----\n\na\n\nSub\n~~~~\nb\n\nNext\n----\nc\n\n{table}"
        self.assertEqual(
            [(headings, body.split("\n")[0]) for headings, _, body in sections(text, ".rst")],
            [
                (("Title",), "intro"),
                (("Title", "Part"), "a"),
                (("Title", "Part", "Sub"), "b"),
                (("Title", "Next"), "c"),
            ],
        )

    def test_plain_text_is_markdown_only_with_headings_between_blank_lines(self) -> None:
        self.assertEqual(len(sections("# One\n\na\n\n## Two\n\nb", ".txt")), 2)
        for text in ("# a comment\nrequests==1\n# another\ndjango", "Licence\n-------\ntext"):
            self.assertEqual(sections(text, ".txt"), [((), "", text)])

    def test_a_file_without_headings_is_one_section_and_an_empty_one_none(self) -> None:
        self.assertEqual(sections("just text\n"), [((), "", "just text")])
        self.assertEqual(sections(" \n\n"), [])

    def test_sections_that_only_lead_to_others_are_left_out(self) -> None:
        self.assertEqual(sections("# A\n\n## Contents\n\n* [B](#b)\n\n## B\n\nb\n"), [(("A", "B"), "a/b", "b")])
        prose = "The box has a key.\n\n- and a lock"
        self.assertEqual(sections(f"## Contents\n\n{prose}"), [(("Contents",), "contents", prose)])
        self.assertEqual(sections(".. _a:\n\nAlpha\n=====\n\na\n", ".rst"), [(("Alpha",), "alpha", "a")])

    def test_long_texts_are_split_between_paragraphs_lines_or_words(self) -> None:
        for gap in ("\n\n", "\n", " "):
            text = gap.join(["word" * 5] * 50)
            parts = split_text(text, 200)
            self.assertTrue(all(len(part) <= 200 and set(part.split()) == {"word" * 5} for part in parts))
            self.assertEqual("".join(text.split()), "".join("".join(parts).split()))
        self.assertEqual(split_text("x" * 450, 200), ["x" * 200, "x" * 200, "x" * 50])


class FilesTest(TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve() / "alpha"
        self.root.mkdir()

    def write(self, path: str, content: bytes = b"text") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def test_text_files_are_found_and_hidden_or_foreign_folders_are_not(self) -> None:
        kept = ["a.md", "b/c.MARKDOWN", "b/d.mdx", "e.rst", "f.txt"]
        for path in [*kept, "g.py", ".h.md", ".git/i.md", "node_modules/j/k.md", "b/.venv/l.md", "venv/m.txt"]:
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

    def test_binary_and_large_files_have_no_text(self) -> None:
        self.assertIsNone(read_text(self.write("a.md", b"a\0b")))
        self.assertIsNone(read_text(self.write("b.md", b"x" * (MAX_BYTES + 1))))
        self.assertIsNone(read_text(self.root / "none.md"))

    def test_encodings_and_line_ends_are_normalised(self) -> None:
        self.assertEqual(read_text(self.write("a.md", b"\xef\xbb\xbfa\r\nb\rc")), "a\nb\nc")
        self.assertEqual(read_text(self.write("b.md", b"caf\xe9")), "café")


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

    def test_every_section_becomes_a_memory_with_its_source(self) -> None:
        report = self.bring_in(tags=["Docs"])
        self.assertEqual((self.counts(report), report.files), ((2, 0, 0, 0), 1))
        one, two = self.memories()
        self.assertEqual((one.title, one.content), ("guide/setup.md › Set up", "Install it."))
        self.assertEqual((two.title, two.content), ("guide/setup.md › Set up › Start", "Run it."))
        self.assertEqual(two.topic_key, "import:markdown:guide/setup.md#set-up/start")
        self.assertEqual((two.source, two.tags), ("guide/setup.md", ["docs", "guide", "how-to"]))
        self.assertEqual(self.memories("beta"), [])

    def test_a_second_import_changes_nothing(self) -> None:
        self.bring_in()
        before = [(memory.id, memory.version) for memory in self.memories()]
        self.assertEqual(self.counts(self.bring_in()), (0, 0, 2, 0))
        self.assertEqual([(memory.id, memory.version) for memory in self.memories()], before)

    def test_changed_new_and_lost_sections_are_revised_written_and_deleted(self) -> None:
        self.bring_in()
        self.write("guide/setup.md", "---\ntags: [How-To]\n---\n# Set up\n\nInstall it well.\n\n## Stop\n\nEnd it.\n")
        self.assertEqual(self.counts(self.bring_in()), (1, 1, 0, 1))
        self.assertEqual([(m.content, m.version) for m in self.memories()], [("Install it well.", 2), ("End it.", 1)])
        self.write("guide/setup.md", "# Set up\n\nInstall it well.\n\n## Start\n\nRun it.\n")
        self.bring_in()
        self.assertEqual({memory.content for memory in self.memories()}, {"Install it well.", "Run it."})

    def test_files_that_are_not_read_again_keep_their_memories(self) -> None:
        self.write("other.md", "# Other\n\ntext")
        self.bring_in()
        (self.docs / "other.md").write_bytes(b"\0")
        report = self.bring_in()
        self.assertEqual(
            (report.skipped, report.deleted, len(self.memories())),
            ([("other.md", "binary, unreadable or larger than 2 MB")], 0, 3),
        )

    def test_data_files_are_left_out_and_earlier_memories_of_them_deleted(self) -> None:
        self.write("pieces.txt", "A text that somebody wrote, with a few words.\n")
        self.bring_in()
        words = "".join(f"[unused{number}]\n" for number in range(99))
        for path, text in {
            "pieces.txt": words,
            "vocab.txt": "[PAD]\nthe",
            "requirements-dev.txt": "django==5.2",
            "tables.md": "<!-- This file was generated by make docs. -->\n# Tables\n\nOne.",
            "bundle.txt": "word " * 9_000,
            "amazing.txt": "what an amazing download",
        }.items():
            self.write(path, text)
        report = self.bring_in()
        self.assertEqual((report.files, report.deleted), (1, 1))
        reason = "a list, generated, or a few words: data, not text"
        self.assertEqual({why for _, why in report.skipped}, {reason})
        self.assertEqual({memory.source for memory in self.memories()}, {"guide/setup.md"})

    def test_a_text_about_lists_and_generators_is_no_data(self) -> None:
        for path, text in {
            "notes.txt": "These are the reasons for it:\n" * 20 + "- item\n" * 60,
            "README.md": "# gen\n\nAuto-generated clients: code generated by gen is small. It is generated once.\n",
            "requirements.rst": "Requirements\n============\n\nThe system needs PostgreSQL 15.\n",
            "constraints.txt": "We never delete what users wrote, without a ticket.\n",
        }.items():
            self.write(path, text)
        report = self.bring_in()
        self.assertEqual((report.files, report.skipped), (5, []))

    def test_a_section_deleted_by_a_person_stays_deleted(self) -> None:
        self.bring_in()
        with self.store():
            delete_memory(command=MemoryTouch(id=self.memories()[1].id, reason="no use"))
        report = self.bring_in()
        self.assertEqual((self.counts(report), report.left_deleted), ((0, 0, 1, 0), 1))
        self.assertEqual([memory.content for memory in self.memories()], ["Install it."])

    def test_a_private_block_is_left_out_even_over_headings_and_splits(self) -> None:
        hidden = "hidden words " * 12_000
        self.write(
            "notes.md",
            f"# A\n\nopen\n\n<private>\n\n# B\n\n{hidden}\n\n# C\n\n{hidden}\n</private>\n\n# D\n\nalso open",
        )
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

    def test_in_a_git_checkout_the_starting_folder_does_not_matter(self) -> None:
        Repository(self.docs)
        self.bring_in()
        with self.store():
            report = import_markdown(directory=self.docs / "guide")
        self.assertEqual(self.counts(report), (0, 0, 2, 0))

    def test_progress_is_reported_per_file(self) -> None:
        self.write("b.md", "text")
        done: list[int] = []
        with self.store():
            import_markdown(directory=self.docs, progress=done.append)
        self.assertEqual(done, [1, 2])

    def test_a_missing_folder_is_an_error(self) -> None:
        with self.store(), self.assertRaisesRegex(Invalid, "is not a folder"):
            import_markdown(directory=self.home / "none")


RULE = "Keep times in UTC"


class BootstrapTestCase(HubTestCase):
    def loaded(self) -> dict[str, Done]:
        return {outcome.name: outcome.done for outcome in load_guidelines()}

    def removed(self) -> dict[str, Done]:
        return {outcome.name: outcome.done for outcome in remove_guidelines()}

    def names(self) -> set[str]:
        with use_store(GLOBAL_STORE):
            return set(KIND_MODELS["guideline"].objects.live().values_list("title", flat=True))

    def act(self, service: Any, schema: Any, **fields: Any) -> None:
        with use_store(GLOBAL_STORE), use_origin(source="mcp", actor="ada"):
            memory = Memory.objects.get(title=RULE)
            service(command=schema(id=memory.id, scope="global", **fields))

    def head(self) -> int:
        with use_store(GLOBAL_STORE):
            return log.head()[0]


class DataTests(BootstrapTestCase):
    def test_every_guideline_is_whole(self):
        found = guidelines().values()
        self.assertTrue(found)
        for item in found:
            attributes: dict[str, Any] = item.attributes
            self.assertTrue(
                attributes["rationale"] and attributes["examples"]["good"] and attributes["examples"]["bad"]
            )
            self.assertTrue(set(item.tags) <= set(PREDEFINED), item.tags)
            self.assertTrue(item.tags and item.type)
        self.assertEqual(len({memory.title for memory in found}), len(found))

    def test_no_guideline_looks_like_a_secret(self):
        load_guidelines()
        with use_store(GLOBAL_STORE):
            kept = {row.title: (row.content, row.attributes) for row in KIND_MODELS["guideline"].objects.all()}
        self.assertEqual(kept, {value.title: (value.content, value.attributes) for value in guidelines().values()})


class LoadTests(BootstrapTestCase):
    def test_a_project_inherits_the_guidelines(self):
        self.assertEqual(set(self.loaded().values()), {Done.ADDED})
        with self.store("alpha"):
            found = selectors.get_memories(command=MemoryGet(name=RULE))[0]
        self.assertEqual((found["scope"], found["kind"], found["author"]), ("global", "guideline", bootstrap.ACTOR))
        self.assertEqual(found["attributes"]["priority"], 65)

    def test_loading_again_changes_nothing(self):
        load_guidelines()
        before = self.head()
        self.assertEqual(set(self.loaded().values()), {Done.UNCHANGED})
        self.assertEqual(self.head(), before)

    def test_an_edited_guideline_is_kept(self):
        load_guidelines()
        self.act(services.update_memory, MemoryUpdate, content="Keep times in Zurich's time.")
        self.assertEqual(self.loaded()[RULE], Done.EDITED)
        with use_store(GLOBAL_STORE):
            self.assertIn("Zurich", Memory.objects.get(title=RULE).content)

    def test_an_existing_guideline_of_the_same_name_is_kept(self):
        with use_store(GLOBAL_STORE, create=True), use_origin(actor="ada"):
            mine = MemoryWrite(title=RULE, content="Mine.", kind="guideline", scope="global")
            services.write_memory(command=mine)
        for _ in range(2):
            self.assertEqual(self.loaded()[RULE], Done.TAKEN)
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
        self.assertEqual((done.pop(RULE), set(done.values())), (Done.RENEWED, {Done.UNCHANGED}))
        with use_store(GLOBAL_STORE):
            self.assertEqual(Memory.objects.get(title=RULE).content, "Keep them in UTC, always.")


class RemoveTests(BootstrapTestCase):
    def test_removing_without_a_global_store_creates_none(self):
        self.assertEqual(self.removed(), {})
        self.assertFalse(stores.exists(GLOBAL_STORE))

    def test_removed_guidelines_are_restored_with_their_ids(self):
        first = {outcome.name: outcome.id for outcome in load_guidelines()}
        self.assertEqual(set(self.removed().values()), {Done.REMOVED})
        self.assertEqual((self.names(), self.removed()), (set(), {}))
        again = load_guidelines()
        self.assertEqual({entry.name: entry.id for entry in again}, first)
        self.assertEqual({item.done for item in again}, {Done.RESTORED})

    def test_an_edited_guideline_is_not_removed_but_reported(self):
        load_guidelines()
        self.act(services.update_memory, MemoryUpdate, tags=["mine"])
        done = self.removed()
        self.assertEqual((done.pop(RULE), set(done.values())), (Done.EDITED, {Done.REMOVED}))
        self.assertEqual(self.names(), {RULE})

    def test_a_guideline_deleted_by_a_person_is_not_restored(self):
        load_guidelines()
        self.act(services.delete_memory, MemoryTouch)
        self.assertEqual(self.loaded()[RULE], Done.DELETED)
        self.removed()
        self.assertEqual(self.loaded()[RULE], Done.DELETED)
        self.assertNotIn(RULE, self.names())

    def test_a_guideline_erased_by_a_person_is_not_restored(self):
        load_guidelines()
        self.act(services.delete_memory, MemoryTouch)
        with use_store(GLOBAL_STORE), use_origin(source="mcp", actor="ada"):
            erase_deleted(Memory.objects.get(title=RULE).id, scope="global")
        self.assertEqual(self.loaded()[RULE], Done.DELETED)
        self.assertNotIn(RULE, self.names())


class CommandTests(BootstrapTestCase):
    def run_command(self, *arguments: str) -> list[str]:
        output = StringIO()
        call_command("bootstrap", *arguments, stdout=output)
        return output.getvalue().splitlines()

    def test_the_command_reports_what_it_did(self):
        first, count = self.run_command(), len(guidelines())
        self.assertEqual(len(first), count + 1)
        self.assertRegex(first[0], r"^global#1 Never write secrets down: added$")
        self.assertEqual(first[-1], f"guidelines in the global scope: {count} added")
        self.assertEqual(self.run_command(), [f"guidelines in the global scope: {count} unchanged"])
        self.act(services.update_memory, MemoryUpdate, content="Mine.")
        removed = self.run_command("--remove")
        self.assertIn(f"{RULE}: kept, edited since", "\n".join(removed))
        self.assertEqual(removed[-1], f"guidelines in the global scope: {count - 1} removed; 1 kept, edited since")
