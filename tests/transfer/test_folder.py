from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from decisions.importing import import_adrs
from decisions.models import Decision
from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.importing import import_markdown
from memories.importing.files import split_front_matter
from memories.models import Memory
from memories.schemas import MemoryDelete, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.services import delete_memory, write_memory
from memories.services.relations import create_relation
from memoryhub.core.errors import Conflict, Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.folder import Form, Selection, export_files, write_folder
from tests.hostile import MARKUP
from tests.support import HubTestCase

TITLES = ("../../etc/passwd", "CON", "Use WAL", "use wal", "a/b\\c:d*e?f", "漢字", "x" * 200, "- [x] | #^ ]] title")


class FolderTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.folder = self.home / "out"

    def write(self, title: str, **fields: Any) -> int:
        return write_memory(command=MemoryWrite(**{"title": title, "content": f"Text of {title}.", **fields})).id

    def files(self, form: Form = Form.MARKDOWN, **selection: Any) -> dict[str, str]:
        return dict(export_files(form, Selection(**selection)))

    def test_file_names_are_unique_and_safe_on_every_system(self) -> None:
        ids = [self.write(title, content=f"---\nnot: matter\n---\n{number}") for number, title in enumerate(TITLES)]
        files = self.files()
        self.assertEqual(len({name.lower() for name in files}), len(TITLES))
        for name, memory_id in zip(files, ids, strict=True):
            self.assertRegex(name, rf"\Amemories/0*{memory_id}(-[a-z0-9]+)*\.md\Z")
            self.assertLess(len(name), 90)
        self.assertEqual(write_folder(self.folder, Form.MARKDOWN, Selection()), len(TITLES))
        written = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()}
        self.assertEqual(written, set(files))

    def test_front_matter_and_decisions_are_read_back(self) -> None:
        self.write("Use WAL", tags=["storage", "two words"], kind="guideline", topic_key="db/wal")
        record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite", rationale="It is small."))
        write_folder(self.folder, Form.MARKDOWN, Selection())
        matter, body = split_front_matter((self.folder / "memories/0001-use-wal.md").read_text())
        self.assertEqual(
            {name: matter[name] for name in ("id", "title", "tags", "topic_key")},
            {"id": "1", "title": "Use WAL", "tags": ["storage", "two words"], "topic_key": "db/wal"},
        )
        self.assertEqual(body.strip(), "# Use WAL\n\nText of Use WAL.")
        with self.store("beta"):
            import_markdown(directory=self.folder / "memories")
            import_adrs(directory=self.folder / "decisions")
            memory = Memory.objects.get()
            self.assertEqual(memory.content, "Text of Use WAL.")
            self.assertLessEqual({"storage", "two words"}, set(memory.tags))
            self.assertEqual(Decision.objects.get().rationale, "It is small.")

    def test_hostile_texts_are_read_back_by_a_parser_of_yaml(self) -> None:
        odd = ("a\x7f\x80\x9fb", "a\ufeffb\ufffe", "\U0001f600 \U000e0041", "a\x85b\u2028c\u2029d")
        texts = [*MARKUP.values(), *odd, "---\nproject: x\n---", "!!python/object:os.system x", "*a &a", "yes", "0x1F"]
        titles = {self.write(flat(text), source=flat(text), content=f"{text}\n---\nid: 9\n"): text for text in texts}
        record_decision(command=DecisionRecord(title=flat(odd[3]), chosen=odd[0], topic=flat(odd[1])))
        for form in Form:
            files = self.files(form)
            self.assertEqual(len(files), len(texts) + 1)
            for name, file in files.items():
                with self.subTest(name, form=form):
                    matter = yaml.safe_load(re.split(r"^---$", file, maxsplit=2, flags=re.MULTILINE)[1])
                    if not name.startswith("decisions/"):
                        memory_id = matter["id"]
                        self.assertEqual(matter["title"], Memory.objects.get(id=memory_id).title)
                        self.assertEqual(matter["source"], Memory.objects.get(id=memory_id).source)
                        self.assertIn(memory_id, titles)
                    self.assertRegex(name, r"\A(memories|decisions)/[0-9]{4}(-[a-z0-9]+)*\.md\Z")

    def test_links_lead_to_files_of_the_export(self) -> None:
        wal, old = self.write("Use WAL"), self.write("No | locks")
        first = record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite")).id
        record_decision(command=DecisionRecord(title="Keep it small", chosen="SQLite", refines=[first]))
        for target in (old, first):
            create_relation(command=RelationCreate(source=str(wal), relation="related_to", target=str(target)))
        texts = self.files()
        links = {
            str(Path(name).parent / link) for name, text in texts.items() for link in re.findall(r"\]\((.*?)\)", text)
        }
        self.assertEqual({os.path.normpath(link) for link in links} - set(texts), set())
        self.assertIn(r"- related to [No \| locks](../memories/0002-no-locks.md)", texts["memories/0001-use-wal.md"])
        vault = self.files(Form.OBSIDIAN)
        stems = {Path(name).stem for name in vault}
        wiki = {link for text in vault.values() for link in re.findall(r"\[\[(.*?)(?:\|.*?)?\]\]", text)}
        self.assertEqual(wiki, {"0001-use-wal", "0002-no-locks", "0003-keep-it"})
        self.assertLessEqual(wiki, stems)
        self.assertNotIn("](", "".join(vault.values()))
        self.assertIn("- related to Keep it (#3)", self.files(kind=["observation"])["memories/0001-use-wal.md"])

    def test_what_is_selected(self) -> None:
        self.write("One", tags=["a"])
        self.write("Two", tags=["a", "b"], kind="guideline")
        delete_memory(command=MemoryDelete(id=self.write("Gone", tags=["a", "b"])))
        record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite"))
        ids = {
            str(selection): [int(name.split("/")[1][:4]) for name in self.files(**selection)]
            for selection in (
                {},
                {"tag": ["a", "b"]},
                {"kind": ["guideline", "decision"]},
                {"until": "2020-01-01T00:00:00Z"},
            )
        }
        self.assertEqual(list(ids.values()), [[1, 2, 5], [2], [2, 5], []])

    def test_files_that_differ_and_links_are_left_alone(self) -> None:
        self.write("One")
        self.write("Two")
        changed = self.folder / "memories/0002-two.md"
        changed.parent.mkdir(parents=True)
        changed.write_text("mine")
        with self.assertRaisesRegex(Conflict, "0002-two.md exists and differs"):
            write_folder(self.folder, Form.MARKDOWN, Selection())
        self.assertEqual([path.name for path in changed.parent.iterdir()], [changed.name])
        outside = self.home / "outside.md"
        outside.write_text("outside")
        changed.unlink()
        changed.symlink_to(outside)
        write_folder(self.folder, Form.MARKDOWN, Selection(), force=True)
        self.assertEqual((outside.read_text(), changed.is_symlink()), ("outside", False))
        (self.home / "linked").mkdir()
        (self.home / "linked/memories").symlink_to(self.folder)
        with self.assertRaisesRegex(Invalid, "is a link"):
            write_folder(self.home / "linked", Form.MARKDOWN, Selection(), force=True)
