from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from memories import services
from memories.embeddings import meaning, vectors
from memories.embeddings.choice import BUNDLED, find_files, use_engine, wanted_name
from memories.embeddings.following import embed_current_store
from memories.embeddings.local import LocalEngine
from memories.embeddings.wordpiece import BUNDLED_VOCABULARY
from memories.models import EmbeddingModel, Vector
from memories.schemas import MemoryDelete, MemoryTouch, MemoryUpdate, MemoryWrite
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, Unavailable
from memoryhub.core.log.event_view import as_of
from memoryhub.core.models import ProjectionOffset
from memoryhub.core.stores.store import current_store
from memoryhub.core.stores.store_id import folder_of
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.support import HubTestCase

CATS = "Cats sleep on warm roofs all afternoon"
DATABASE = "We chose SQLite, since it needs no server"
DEPLOY = "Releases go out on Friday evenings"


class EmbeddingTestCase(HubTestCase):
    engine: LocalEngine

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.engine = LocalEngine()

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(use_engine(self.engine))
        self.enterContext(self.store("alpha", actor="ada"))

    def write(self, *texts: str) -> list[int]:
        commands = [MemoryWrite(title=f"{text[:20]} {number}", content=text) for number, text in enumerate(texts)]
        return [result.id for result in services.write_memories(commands=commands)]

    def embed(self, seconds: float = 60.0) -> str:
        return embed_current_store(until=time.monotonic() + seconds)

    def first(self, question: str) -> int | None:
        hits = meaning.nearest(question).hits
        return hits[0][0] if hits else None

    def index_files(self) -> list[Path]:
        return sorted((folder_of(current_store()) / "index").glob("*"))


class FollowingTests(EmbeddingTestCase):
    def test_an_embedded_text_is_found_by_meaning(self):
        cats, database, deploy = self.write(CATS, DATABASE, DEPLOY)
        self.assertIn("no text is embedded", meaning.nearest("felines").problem)
        self.assertEqual(self.embed(), "embedded 3 texts")
        self.assertEqual(
            [self.first(item) for item in ("feline animals", "storage engine", "shipping a version")],
            [cats, database, deploy],
        )

    def test_a_revised_text_gets_a_new_vector(self):
        (memory_id,) = self.write(CATS)
        self.embed()
        services.update_memory(command=MemoryUpdate(id=memory_id, title="Storage", content=DATABASE))
        self.assertEqual(self.embed(), "embedded 1 text")
        (_, before), (_, after) = (meaning.nearest(item).hits[0] for item in ("sleeping cats", "a database"))
        self.assertGreater(after, before)

    def test_an_unchanged_text_is_never_embedded_twice(self):
        (memory_id,) = self.write(CATS)
        self.embed()
        services.update_memory(command=MemoryUpdate(id=memory_id, tags=["pets"]))
        self.assertEqual(self.embed(), "")

    def test_the_same_text_elsewhere_is_embedded_once(self):
        self.write(CATS)
        self.embed()
        services.write_memory(command=MemoryWrite(title=f"{CATS[:20]} 0", content=CATS, kind="knowledge"))
        self.assertEqual(self.embed(), "")
        self.assertEqual(Vector.objects.count(), 2)

    def test_deleting_a_text_deletes_its_vector_and_restoring_brings_it_back(self):
        cats, _ = self.write(CATS, DATABASE)
        self.embed()
        services.delete_memory(command=MemoryDelete(id=cats))
        self.assertFalse(Vector.objects.filter(document_id=cats).exists())
        services.restore_memory(command=MemoryTouch(id=cats))
        self.embed()
        self.assertTrue(Vector.objects.filter(document_id=cats).exists())

    def test_an_interrupted_run_continues_where_it_stopped(self):
        self.write(*(f"Note {number}" for number in range(70)))
        head = log.head()[0]
        self.assertEqual(self.embed(seconds=0), f"embedded 32 texts, {head - 32} events to go")
        self.assertEqual(ProjectionOffset.objects.get(projector__startswith="embeddings-").position, 32)
        self.assertEqual(self.embed(), "embedded 38 texts")
        self.assertEqual(Vector.objects.count(), 70)

    def test_a_rebuild_embeds_nothing_again(self):
        self.write(CATS, DATABASE)
        self.embed()
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(Vector.objects.count(), 2)
        self.assertEqual(self.embed(), "")
        self.assertEqual(meaning.nearest("felines").problem, "")

    def test_another_project_has_its_own_vectors(self):
        self.write(CATS)
        self.embed()
        with self.store("beta"):
            (other,) = self.write(DEPLOY)
            self.embed()
            self.assertEqual([hit for hit, _ in meaning.nearest("felines").hits], [other])


class EraseTests(EmbeddingTestCase):
    def test_nothing_derived_from_an_erased_text_is_left(self):
        cats, _ = self.write(CATS, DATABASE)
        self.embed()
        self.first("felines")
        numbers = bytes(Vector.objects.get(document_id=cats).numbers)
        folder = folder_of(current_store())
        self.assertTrue(any(numbers in index_file.read_bytes() for index_file in self.index_files()))
        services.delete_memory(command=MemoryDelete(id=cats))
        with self.assertRaises(ConfirmationRequired) as caught:
            services.delete_memory(command=MemoryDelete(id=cats, permanent=True))
        token = caught.exception.data["confirm_token"]
        services.delete_memory(command=MemoryDelete(id=cats, permanent=True, confirm_token=token))
        files = [path for path in folder.rglob("*") if path.is_file()]
        self.assertEqual([path.name for path in files if numbers in path.read_bytes()], [])
        self.assertNotIn(cats, [hit for hit, _ in meaning.nearest("felines").hits])


class ModelTests(EmbeddingTestCase):
    def folder(self) -> str:
        folder = self.home / "model"
        folder.mkdir()
        (folder / "model.onnx").symlink_to(find_files(BUNDLED).model)
        (folder / "vocab.txt").symlink_to(BUNDLED_VOCABULARY)
        return str(folder)

    def choose(self, model: str) -> None:
        change_settings(command=SettingsChange(settings={"embedding_model": model}))

    def names(self) -> list[str]:
        return list(EmbeddingModel.objects.order_by("id").values_list("name", flat=True))

    def test_the_old_model_answers_until_the_new_one_is_done(self):
        texts = [*(f"Note {number}" for number in range(40)), CATS]
        cats = self.write(*texts)[-1]
        self.embed()
        self.choose(self.folder())
        self.assertIn("to go", self.embed(seconds=0))
        self.assertEqual(len(self.names()), 2)
        self.assertEqual((self.first("felines"), meaning.nearest("felines").model), (cats, BUNDLED))
        self.embed()
        self.assertEqual(self.names(), [str(self.home / "model")])
        self.assertEqual(self.first("felines"), cats)
        self.assertEqual(Vector.objects.count(), 41)

    def test_the_setting_none_keeps_no_vectors_and_reports_nothing(self):
        self.write(CATS)
        self.embed()
        self.choose("none")
        self.assertEqual(self.embed(), "")
        self.assertEqual((Vector.objects.count(), self.names()), (0, []))
        self.assertEqual(meaning.nearest("felines"), meaning.Meaning())
        self.assertEqual(meaning.renewal(), "off")

    def test_a_write_reports_the_state_of_its_vector(self):
        first = services.write_memory(command=MemoryWrite(title="Cats", content=CATS))
        tagged = services.update_memory(command=MemoryUpdate(id=first.id, tags=["pets"]))
        changed = services.update_memory(command=MemoryUpdate(id=first.id, content=DATABASE))
        deleted = services.delete_memory(command=MemoryDelete(id=first.id))
        restored = services.restore_memory(command=MemoryTouch(id=first.id))
        results = (first, tagged, changed, deleted, restored)
        self.assertEqual([result.embedding for result in results], ["queued", "kept", "queued", None, "queued"])

    def test_a_folder_without_a_model_is_refused_with_what_it_needs(self):
        self.choose(str(self.home))
        self.write(CATS)
        with self.assertRaisesRegex(Unavailable, r"contains no model: a model.onnx and a tokenizer.json or vocab.txt"):
            self.embed()

    def test_a_name_that_is_neither_folder_nor_hub_id_is_refused(self):
        with self.assertRaisesRegex(Unavailable, "use auto, none, a folder that begins with / or ~, or a hub id"):
            find_files("not a model")

    def test_auto_is_the_bundled_model_where_it_is_installed(self):
        self.assertEqual((wanted_name("auto"), wanted_name("none"), wanted_name("a/b")), (BUNDLED, None, "a/b"))

    def test_a_model_replaced_in_its_folder_does_not_use_old_vectors(self):
        folder = Path(self.folder())
        self.choose(str(folder))
        self.write(CATS)
        self.embed()
        pieces = BUNDLED_VOCABULARY.read_text().replace("[unused0]", "[other]")
        (folder / "vocab.txt").unlink()
        (folder / "vocab.txt").write_text(pieces)
        with use_engine(LocalEngine()):
            self.assertIn("has changed", meaning.nearest("felines").problem)
            self.embed()
            self.assertEqual(meaning.nearest("felines").problem, "")
        self.assertEqual(len(self.names()), 1)


class IndexTests(EmbeddingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.cats, self.database = self.write(CATS, DATABASE)
        self.embed()
        self.assertEqual(self.first("felines"), self.cats)
        (self.path,) = self.index_files()

    def test_a_missing_index_is_rebuilt(self):
        self.path.unlink()
        self.assertEqual(self.first("felines"), self.cats)
        self.assertTrue(self.path.exists())

    def test_a_damaged_index_is_rebuilt(self):
        whole = self.path.read_bytes()
        damages: dict[str, bytes] = {
            "a byte": whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
            "half of it": whole[: len(whole) // 2],
            "nothing in it": b"",
            "other things in it": b"x" * len(whole),
        }
        for name, damage in damages.items():
            with self.subTest(name), self.assertLogs("memories.embeddings.indexes", "WARNING"):
                self.path.write_bytes(damage)
                self.assertEqual(self.first("felines"), self.cats)
                self.assertEqual(self.path.read_bytes(), whole)

    def test_the_next_answer_includes_new_writes(self):
        (deploy,) = self.write(DEPLOY)
        self.embed()
        self.assertEqual(self.first("shipping a version"), deploy)

    def test_past_states_are_searched_by_words_only(self):
        def ask() -> Any:
            return meaning.nearest("felines")

        with as_of(1):
            self.assertEqual(ask().problem, "past states have no vectors")

    def test_without_a_running_hub_the_reason_is_reported(self):
        from memories.embeddings.remote import NOT_RUNNING, RemoteEngine

        with use_engine(RemoteEngine()):
            self.assertEqual(meaning.nearest("felines").problem, NOT_RUNNING)
            with self.assertRaisesRegex(Unavailable, "is not running"):
                self.embed()

    def test_a_store_without_vectors_has_no_model(self):
        vectors.drop_all()
        self.assertIsNone(meaning.model_name())
