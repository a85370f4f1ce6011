"""Anchors as people and clients name them, and what changes them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from decisions.schemas import DecisionEvidence, DecisionGet, DecisionRecord
from decisions.selectors import get_decisions
from decisions.services import add_evidence, record_decision
from memories.events import ENTRY_ANCHORED
from memories.models import AnchorSource, CodeAnchor
from memories.schemas import MemoryDelete, MemoryGet, MemoryUpdate, MemoryWrite
from memories.schemas.validity import AnchorsChange
from memories.selectors import get_memories
from memories.services import delete_memory, update_memory, write_memory
from memories.validity.anchoring import anchors_named, change_anchors
from memories.validity.freshness import name_of
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Gone, Invalid, NotFound
from sessions_app.git.worktree import WorkingTree
from sessions_app.schemas import ProjectDescribe
from sessions_app.selectors import caller_tree
from sessions_app.services.profile import describe
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase

SOURCE = b"""LIMIT = 5


class Client:
    def send(self, text):
        return self.post(text, timeout=3)

    def close(self):
        self.post("")


class Server:
    def close(self):
        self.stop()
"""


class AnchoringTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(Path(tempfile.mkdtemp(prefix="repository-")))
        self.addCleanup(shutil.rmtree, self.repository.folder)
        self.repository.write("src/net.py", SOURCE)
        self.repository.write("src/data.bin", b"\0\1")
        self.repository.commit("Begin")
        self.enterContext(self.store("alpha", actor="ada"))
        describe(command=ProjectDescribe(root_path=str(self.repository.folder)))

    @property
    def tree(self) -> WorkingTree:
        tree = caller_tree()
        assert tree
        return tree

    def write(self, title: str, **fields: Any) -> int:
        return write_memory(command=MemoryWrite(title=title, content=f"About {title}.", **fields)).id

    def names(self, memory_id: int) -> list[str]:
        (memory,) = get_memories(command=MemoryGet(ids=[memory_id]))
        return list(memory["anchors"])


class NameTests(AnchoringTestCase):
    def named(self, name: str, text: str = "") -> CodeAnchor:
        (record,) = anchors_named([name], text, self.tree)
        return record  # type: ignore[return-value]

    def test_lines_definitions_files_and_folders_are_named(self):
        for name, place in (
            ("src/net.py", ("", 0, 0)),
            ("./src/net.py:5", ("", 5, 5)),
            ("src/net.py:4-9", ("", 4, 9)),
            ("src/net.py#Client.send", ("Client.send", 5, 6)),
            ("src/net.py#send", ("Client.send", 5, 6)),
            ("src/net.py#Client::send", ("Client.send", 5, 6)),
            ("src/", ("", 0, 0)),
        ):
            anchor = self.named(name)
            self.assertEqual((anchor.symbol, anchor.first, anchor.last), place, name)
            self.assertEqual(anchor.made_from, AnchorSource.PERSON)
        self.assertEqual(name_of(self.named("./src/net.py:5-5")), "src/net.py:5")
        self.assertEqual(name_of(self.named("src/net.py#send")), "src/net.py#Client.send")

    def test_a_whole_file_has_the_words_of_the_entry_and_without_any_only_needs_to_exist(self):
        anchor = self.named("src/net.py", "`Client.send` has a timeout of 3 seconds.")
        self.assertTrue(anchor.words)
        self.assertTrue(anchor.digest)
        self.assertEqual(self.named("src/net.py", "Unrelated.").digest, "")

    def test_what_names_nothing_is_refused_with_a_sentence(self):
        for name, problem in (
            ("/etc/passwd", "is an absolute path"),
            ("~/notes.md", "is an absolute path"),
            ("../other/file.py", "there is no text file"),
            ("src/none.py", "there is no text file src/none.py"),
            ("src/data.bin", "there is no text file"),
            ("src/none/", "there is no text file"),
            ("src/net.py:20", "there is no line 20 in src/net.py, which has 14 lines"),
            ("src/net.py:9-4", "there is no line 9-4"),
            ("src/net.py:0", "there is no line 0"),
            ("src/net.py#none", "there is no definition of none"),
            ("src/net.py#close", "several definitions of close in src/net.py: Client.close, Server.close"),
            ("src/net.py#", "is no anchor"),
            ("#send", "is no anchor"),
        ):
            with self.assertRaisesMessage(Invalid, problem):
                anchors_named([name], "", self.tree)
        with self.assertRaisesMessage(ConflictError, "there is no working tree"):
            anchors_named(["src/net.py"], "", None)


class ChangeTests(AnchoringTestCase):
    def test_a_write_has_the_anchors_that_it_names_or_none(self):
        self.assertEqual(self.names(self.write("One", anchors=["src/net.py:5", "src/net.py:5"])), ["src/net.py:5"])
        self.assertEqual(self.names(self.write("`Client.send` of src/net.py", anchors=[])), [])
        with self.assertRaises(Invalid):
            self.write("Two", anchors=["src/none.py"])

    def test_an_update_of_the_anchors_alone_makes_no_version(self):
        memory = self.write("One", anchors=["src/net.py:5"])
        command = MemoryUpdate(id=memory, anchors=["src/net.py#Client"], idempotency_key="k")
        for _ in range(2):
            result = update_memory(command=command)
            self.assertEqual((result.status, result.version), ("anchored", 1))
        self.assertEqual(self.names(memory), ["src/net.py#Client"])
        again = update_memory(command=MemoryUpdate(id=memory, anchors=["src/net.py#Client"]))
        self.assertEqual(again.status, "unchanged")
        self.assertEqual(log.events().of_type(ENTRY_ANCHORED).count(), 1)
        update_memory(command=MemoryUpdate(id=memory, content="Another text.", anchors=["src/net.py:1"]))
        self.assertEqual(self.names(memory), ["src/net.py:1"])
        update_memory(command=MemoryUpdate(id=memory, anchors=[]))
        self.assertEqual(self.names(memory), [])
        self.assert_rebuilds()

    def test_anchors_that_are_named_again_stay_as_they_are(self):
        memory = self.write("One", anchors=["src/net.py:1"])
        before = CodeAnchor.objects.get(entity_id=memory)
        self.repository.write("src/net.py", b"LIMIT = 6\n")
        change_anchors(command=AnchorsChange(id=memory, anchors=["src/net.py:1", "src/net.py"]))
        self.assertEqual(CodeAnchor.objects.get(entity_id=memory, number=0).digest, before.digest)
        self.repository.git("rm", "-q", "-f", "src/net.py")
        result = change_anchors(command=AnchorsChange(id=memory, anchors=["src/net.py:1"]))
        self.assertEqual([(anchor.name, anchor.state) for anchor in result.anchors], [("src/net.py:1", "gone")])

    def test_where_there_is_nothing_to_change(self):
        memory = self.write("One")
        delete_memory(command=MemoryDelete(id=memory))
        with self.assertRaises(Gone):
            change_anchors(command=AnchorsChange(id=memory, anchors=[]))
        with self.assertRaises(NotFound):
            change_anchors(command=AnchorsChange(id=10**6, anchors=[]))


class DecisionTests(AnchoringTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.decision = record_decision(command=DecisionRecord(title="Timeouts", chosen="3 seconds")).id

    def anchors(self) -> list[str]:
        return list(get_decisions(command=DecisionGet(ids=[self.decision]))[0]["anchors"])

    def add(self, **fields: Any) -> bool:
        return add_evidence(command=DecisionEvidence(id=self.decision, **fields)).is_new

    def test_evidence_replaces_the_anchors(self) -> None:
        self.assertTrue(self.add(anchors=["src/net.py:5-6"], notes=["measured"]))
        self.assertEqual(self.anchors(), ["src/net.py:5-6"])
        self.assertFalse(self.add(anchors=["src/net.py:5-6"]))
        self.assertTrue(self.add(anchors=["src/net.py#Client.send"], idempotency_key="k"))
        self.assertFalse(self.add(anchors=["src/net.py#Client.send"], idempotency_key="k"))
        self.assertTrue(self.add(anchors=[]))
        self.assertEqual(self.anchors(), [])
        self.assert_rebuilds()

    def test_an_anchor_that_names_nothing_adds_nothing(self) -> None:
        head = log.head()
        for name in ("src/gone.py", "/etc/passwd", "src/net.py:99", "src/net.py#nobody"):
            with self.subTest(name=name), self.assertRaisesMessage(Invalid, name.partition("#")[0].partition(":")[0]):
                self.add(anchors=[name], notes=["measured"])
        with self.assertRaisesMessage(Invalid, "anchors"):
            self.add()
        self.assertEqual(log.head(), head)
