from __future__ import annotations

from memories import services
from memories.importing import import_markdown
from memories.pack import pack_context
from memories.present import write_text
from memories.schemas import MemoryTouch, MemoryUpdate, MemoryWrite, WriteResult
from memories.schemas.query import ContextPackRequest
from memoryhub.core import log
from memoryhub.core.errors import Invalid
from tests.support import HubTestCase

LONG = (
    "The store retries with jitter because transactions that wait in line for SQLite's write lock are woken in bursts; "
    "exponential backoff starved the slowest writer for seconds in the measurements."
)


class WritingTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    def write(self, title: str, content: str) -> WriteResult:
        return services.write_memory(command=MemoryWrite(title=title, content=content))


class SimilarTests(WritingTestCase):
    def similar(self, title: str, content: str) -> list[int]:
        return [item.id for item in self.write(title, content).similar]

    def test_a_similar_text_is_named_and_nothing_is_merged(self):
        first = self.write("Fair waiting", LONG)
        again = self.write("Waiting fairly", LONG.replace("for seconds", "a long time"))
        self.assertEqual([item.id for item in again.similar], [first.id])
        self.assertGreater(again.similar[0].alike, 0.7)
        self.assertNotEqual(again.id, first.id)
        self.assertIn(f"; #{first.id} is nearly the same: Fair waiting", write_text(again))

    def test_a_text_that_shares_some_words_is_not_named(self):
        self.write("Fair waiting", LONG)
        self.assertEqual(
            self.similar("Exponential backoff", "Transactions and measurements of another thing, by far."), []
        )

    def test_a_deleted_memory_is_not_named(self):
        first = self.write("Fair waiting", LONG)
        services.delete_memory(command=MemoryTouch(id=first.id))
        self.assertEqual(self.similar("Waiting fairly", LONG + " Again."), [])

    def test_words_that_are_operators_break_nothing(self):
        self.write("Operators", 'AND OR NOT NEAR "quoted" title:body (paren) star* - minus ^caret')
        self.assertEqual(self.similar("Few", 'NOT "AND" OR'), [])

    def test_another_project_is_never_named(self):
        self.write("Fair waiting", LONG)
        with self.store("beta"):
            self.assertEqual(self.similar("Waiting fairly", LONG + " Again."), [])


class ToldTests(WritingTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(5):
            self.write(f"Fact {number}", f"The number of this fact is {number}.")
        self.pack = pack_context(command=ContextPackRequest()).text

    def refuses(self, content: str) -> None:
        before = log.head()[0]
        with self.assertRaisesRegex(Invalid, "comes from a Memory Hub context pack"):
            self.write("Learnt", content)
        self.assertEqual(log.head()[0], before)

    def test_a_pack_is_refused_as_a_memory(self):
        self.refuses(self.pack)
        self.refuses(f"Context:\n{self.pack}\nThat was it.")

    def test_lines_of_a_pack_are_refused(self):
        lines = [line for line in self.pack.split("\n") if line.startswith("- ")]
        self.refuses("\n".join(lines[:3]))

    def test_one_line_may_be_quoted_and_lists_of_other_numbers_are_no_pack(self):
        line = next(line for line in self.pack.split("\n") if line.startswith("- "))
        self.assertTrue(self.write("Quote", f"It said:\n{line}").id)
        self.assertTrue(self.write("Issues", "- #12 fix the door\n- #13 paint the door").id)

    def test_an_update_is_refused_too(self):
        with self.assertRaisesRegex(Invalid, "comes from a Memory Hub context pack"):
            services.update_memory(command=MemoryUpdate(id=1, content=self.pack))

    def test_an_import_skips_a_pack_and_reports_it(self):
        folder = self.home / "notes"
        folder.mkdir()
        (folder / "a.md").write_text(f"# Saved\n\n{self.pack}\n\n# Own\n\nWords of mine.\n")
        report = import_markdown(directory=folder)
        self.assertEqual((report.created, report.skipped), (1, [("a.md › Saved", "a context pack of this hub")]))
