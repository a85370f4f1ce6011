from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connections
from django.test import SimpleTestCase

from memories import selectors
from memories.query import query
from memories.resources import SearchByOffset, search_by_offset
from memories.schemas import MemorySearch, MemoryWrite, Stats
from memories.schemas.query import MemoryQuery
from memories.search.blend import Ranker, RankingAnswer, RankingRequest, _rankers, blend
from memories.services import write_memory
from memories.timeline import stats
from memoryhub.core.errors import Unavailable
from memoryhub.core.paging import as_lines
from memoryhub.core.stores import rows
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.databases import on_postgresql
from tests.support import HubTestCase

WORD = "readers"


@contextmanager
def silent(request: RankingRequest) -> Iterator[Callable[[], RankingAnswer]]:
    yield RankingAnswer


class BlendTests(SimpleTestCase):
    ranker = Ranker("meaning", silent, weight=0.5, ordinary=3, lead=0.4, alone=0.3, alone_at_most=1)

    def blended(self, *near: tuple[int, float]) -> dict[int, float]:
        return {hit: round(score, 3) for hit, score in blend([(1, 8.0), (2, 4.0)], near, self.ranker)}

    def test_another_ranking_counts_by_how_far_its_hits_are_ahead_of_an_ordinary_one(self):
        self.assertEqual(self.blended((1, 0.7), (2, 0.5), (3, 0.3)), {1: 8.0, 2: 4.0, 3: 0.0})
        self.assertEqual(self.blended((1, 0.5), (2, 0.4), (3, 0.3)), {1: 6.0, 2: 3.0, 3: 0.0})

    def test_few_hits_count_by_their_own_scores(self):
        self.assertEqual(self.blended((2, 0.4), (1, 0.2)), {1: 6.0, 2: 6.0})

    def test_hits_without_the_words_are_limited(self):
        self.assertEqual(self.blended((7, 0.9), (8, 0.8), (2, 0.5)), {7: 4.0, 1: 4.0, 2: 2.0})


class SearchModeTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store())
        self.memory = write_memory(command=MemoryWrite(title="Use WAL", content="one reader never waits")).id

    def choose(self, mode: str) -> None:
        change_settings(command=SettingsChange(settings={"search_mode": mode}))

    def modes(self, word: str = WORD) -> set[str | None]:
        offset = search_by_offset(command=SearchByOffset(query=word))
        return {
            selectors.search(command=MemorySearch(query=word)).meta.mode,
            query(command=MemoryQuery(search=word)).meta.mode,
            offset["metadata"]["mode"],
            stats(command=Stats())["mode"],
        }

    def found(self, word: str = WORD) -> tuple[int, int]:
        searched = selectors.search(command=MemorySearch(query=word))
        return searched.meta.total_count, query(command=MemoryQuery(search=word)).meta.total_count

    def drop_index(self) -> None:
        rows.execute(f"DROP TABLE {'search_postings' if on_postgresql() else 'search_fts'}")
        vars(connections["store:project:alpha"]).pop("hub_has_full_text", None)

    def test_basic_uses_like_despite_an_index_and_reports_it(self):
        self.assertEqual((self.modes(), self.found()), ({"fts5"}, (1, 1)))
        self.choose("basic")
        self.assertEqual((self.modes(), self.found()), ({"basic"}, (0, 0)))  # LIKE knows no word stems
        self.assertEqual(self.found("reader"), (1, 1))
        listing = selectors.search(command=MemorySearch(query="reader"))
        self.assertIn("mode: basic", as_lines(listing, lambda hit: hit["title"], none=""))

    def test_fts5_uses_words_only(self):
        asked: list[str] = []

        @contextmanager
        def asking(question: RankingRequest) -> Iterator[Callable[[], RankingAnswer]]:
            asked.append(question.question)
            yield RankingAnswer

        ranker = Ranker("meaning", asking, weight=0.5, ordinary=100, lead=0.5, alone=0.5, alone_at_most=5)
        _rankers.append(ranker)
        self.addCleanup(_rankers.remove, ranker)
        self.found()
        self.assertEqual(asked, [WORD])
        self.choose("fts5")
        self.assertEqual((self.modes(), self.found()), ({"fts5"}, (1, 1)))
        self.assertEqual(asked, [WORD])

    def test_fts5_without_an_index_is_refused_with_the_next_step(self):
        self.choose("fts5")
        self.drop_index()
        for ask in (
            lambda: selectors.search(command=MemorySearch(query=WORD)),
            lambda: query(command=MemoryQuery(search=WORD)),
            lambda: search_by_offset(command=SearchByOffset(query=WORD)),
        ):
            with self.assertRaisesRegex(Unavailable, "search_mode is 'fts5'.*set search_mode to 'auto' or 'basic'"):
                ask()
        self.assertEqual(query(command=MemoryQuery()).meta.total_count, 1)
        self.choose("auto")
        self.assertEqual(self.modes("reader"), {"basic"})
