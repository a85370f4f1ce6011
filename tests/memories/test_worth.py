from __future__ import annotations

import json
from io import StringIO
from random import Random
from statistics import fmean
from typing import Any
from unittest import TestCase, mock

from django.core.management import call_command

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories import services
from memories.models import Memory
from memories.models.search import IGNORED_AFTER
from memories.pack import pack_context
from memories.schemas import MemoryGet, MemoryUpdate, MemoryWrite
from memories.schemas.query import ContextPackRequest
from memories.selectors import get_memories
from memories.worth import sessions
from memories.worth.interval import difference_interval, t_quantile
from memories.worth.report import worth_report
from memories.worth.schemas import Period, Reading, WorthReport, WorthRequest
from memories.worth.sessions import Prompt, count_corrections, count_repeats, is_correction
from memories.worth.zombies import reject_zombies, restore_zombies
from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid
from memoryhub.core.origin import use_origin
from sessions_app import held_out
from sessions_app.events.client import ASSISTANT_MESSAGE, USER_MESSAGE
from sessions_app.schemas import SessionEnd, SessionStart
from sessions_app.services import end_session, start_session
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from tests.admin.base import AdminTestCase
from tests.api.client import RestTestCase
from tests.support import HubTestCase


class IntervalTests(TestCase):
    def test_it_is_that_of_a_published_example(self) -> None:
        first = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
        second = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
        found = difference_interval(first, second)
        assert found
        self.assertAlmostEqual(found.low, -3.9841, places=3)
        self.assertAlmostEqual(found.high, -0.3493, places=3)
        self.assertFalse(found.contains_zero)

    def test_quantiles_are_those_of_the_tables(self) -> None:
        tables = {5: 2.5706, 19: 2.0930, 30: 2.0423, 100: 1.9840, 10_000: 1.9602}
        for freedom, quantile in tables.items():
            self.assertAlmostEqual(t_quantile(0.975, freedom), quantile, delta=0.0004)

    def test_samples_without_spread_have_none(self) -> None:
        for first, second in (([], []), ([1], [2]), ([1], [2, 3]), ([], [1, 2]), ([2, 2, 2], [3, 3])):
            self.assertIsNone(difference_interval(first, second), (first, second))
        one_sided = difference_interval([2, 2, 2], [2, 3, 4])
        assert one_sided
        self.assertAlmostEqual((one_sided.low + one_sided.high) / 2, -1)

    def test_it_is_symmetrical_and_holds_the_difference(self) -> None:
        random = Random(1)
        for _ in range(200):
            first, second = ([random.randrange(9) for _ in range(random.randrange(2, 40))] for _ in range(2))
            found, turned = difference_interval(first, second), difference_interval(second, first)
            if found and turned:
                self.assertAlmostEqual(found.low, -turned.high)
                self.assertLess(found.low, fmean(first) - fmean(second))
                self.assertLess(fmean(first) - fmean(second), found.high)

    def test_it_misses_the_truth_about_once_in_twenty(self) -> None:
        random = Random(2)
        groups = (
            [[min(9, int(random.expovariate(0.7))) for _ in range(size)] for size in (20, 60)] for _ in range(800)
        )
        missed = sum(not found.contains_zero for pair in groups if (found := difference_interval(*pair)))
        self.assertAlmostEqual(missed / 800, 0.05, delta=0.03)


class PromptTests(TestCase):
    def test_corrections_are_told_by_how_a_prompt_begins(self) -> None:
        for text in (
            "No, the other file.",
            "no - not there",
            "That's wrong.",
            "that’s not what I meant",
            "I said without a dependency",
            "Nein, das andere.",
            "Das ist falsch",
            "C'est faux",
            "Eso no es lo que pedí",
        ):
            self.assertTrue(is_correction(text), text)
        for text in (
            "Now the tests",
            "No tests fail now",
            "Note the port",
            "What is wrong here?",
            "Nicht vergessen",
            "",
        ):
            self.assertFalse(is_correction(text), text)

    def test_the_first_prompt_corrects_nothing(self) -> None:
        prompts = [
            Prompt(1, "a", "No, stop."),
            Prompt(2, "a", "No, stop."),
            Prompt(3, "b", "Go on"),
            Prompt(4, "b", "Wrong"),
        ]
        self.assertEqual(count_corrections(prompts), {"a": 1, "b": 1})

    def test_only_what_another_session_asked_before_is_repeated(self) -> None:
        asked = "Why does the upload of large pictures to the storage fail behind the company proxy in Oslo?"
        other = "Please: why does the upload of large pictures to the storage fail behind the company proxy?"
        prompts = [
            Prompt(1, "a", asked),
            Prompt(2, "a", asked),
            Prompt(3, "b", other),
            Prompt(4, "b", "Write the parser for settings with tomllib and test every branch of it"),
            Prompt(5, "c", "Run the tests"),
            Prompt(6, "d", "Run the tests"),
        ]
        self.assertEqual(+count_repeats(prompts), {"b": 1})


class WorthTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    def write(self, title: str, **fields: Any) -> int:
        command = MemoryWrite.model_validate({"title": title, "content": f"All about {title}.", **fields})
        return services.write_memory(command=command).id

    def session(self, name: str, *prompts: str, answer: str = "", read: int = 0, end: bool = True) -> None:
        """Begin a session with a pack, and let it ask, read and answer."""
        start_session(command=SessionStart(session_id=name))
        with use_origin(session_id=name):
            pack_context(command=ContextPackRequest(session_id=name))
        for prompt in prompts:
            turn = automatic_turn(session_id=name)
            append_automatically(turn=turn, type=USER_MESSAGE.name, payload={"content": prompt})
            if answer:
                append_automatically(turn=turn, type=ASSISTANT_MESSAGE.name, payload={"content": answer})
            close_turn(turn)
        if read:
            with use_origin(session_id=name, source="mcp"):
                get_memories(command=MemoryGet(ids=[read]))
        if end:
            end_session(command=SessionEnd(session_id=name))

    def report(self, period: Period = Period.MONTH) -> WorthReport:
        return worth_report(command=WorthRequest(period=period))


class ReportTests(WorthTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.cited, self.read, self.idle = (self.write(name) for name in ("cited port", "read colour", "idle shape"))
        self.decided = record_decision(command=DecisionRecord(title="One port", chosen="Port 8321.")).id
        self.rule = self.write("commit often", kind="guideline")

    def use_all_but_one(self, count: int = IGNORED_AFTER) -> None:
        for number in range(count):
            self.session(f"s-{number}", "Go on", answer=f"As #{self.cited} and #{self.decided} say.", read=self.read)

    def test_an_empty_project_has_no_numbers(self) -> None:
        with self.store("beta"):
            report = self.report(Period.ALL)
        self.assertEqual((report.packs, report.tokens, report.lines.total, report.zombies.total), (0, 0, 0, 0))
        self.assertEqual((report.experiment.percent, report.experiment.measures), (0, []))

    def test_lines_count_once_by_the_best_that_became_of_them(self) -> None:
        self.use_all_but_one()
        report = self.report()
        self.assertEqual((report.packs, report.sessions), (IGNORED_AFTER, IGNORED_AFTER))
        self.assertEqual(report.lines.model_dump(), {"cited": 2, "used": 1, "ignored": 1, "undecided": 0})
        self.assertEqual((report.judged.used, report.judged.unused, report.judged.pending), (IGNORED_AFTER, 0, 0))
        self.assertEqual({entry.id for entry in report.top}, {self.cited, self.decided, self.read})
        self.assertEqual([entry.used_by for entry in report.top], [IGNORED_AFTER] * 3)
        self.assertEqual(sum(spent.tokens for spent in report.spent), report.tokens)

    def test_a_guideline_is_no_zombie_and_an_idle_memory_is_one(self) -> None:
        self.use_all_but_one(IGNORED_AFTER - 1)
        self.assertEqual(self.report().zombies.total, 0)
        self.session("last", "Go on", answer=f"As #{self.cited} says.", read=self.read)
        (zombie,) = self.report().zombies.items
        self.assertEqual((zombie.id, zombie.given, zombie.version), (self.idle, IGNORED_AFTER, 1))
        self.assertGreater(zombie.tokens, IGNORED_AFTER * 5)
        late = self.write("written late")
        self.assertEqual((self.report().never_given, self.report().memories), (1, 5))
        self.assertNotIn(late, [item.id for item in self.report().zombies.items])

    def test_packs_of_ended_sessions_that_used_nothing_are_listed(self) -> None:
        self.session("idle", "Go on")
        self.session("open", "Go on", end=False)
        report = self.report()
        self.assertEqual((report.judged.unused, report.judged.pending), (1, 1))
        (pack,) = report.unused_packs
        self.assertEqual((pack.session_id, pack.tokens), ("idle", report.judged.unused_tokens))

    def test_a_period_leaves_out_what_was_before(self) -> None:
        now = clock.now()
        self.session("now", "Go on")
        later = now.replace(year=now.year + 1)
        with clock.frozen(later):
            self.assertEqual((self.report().packs, self.report(Period.ALL).packs), (0, 1))

    def test_zombies_are_rejected_and_come_back(self) -> None:
        self.use_all_but_one()
        self.enterContext(use_origin(source="admin"))
        done = reject_zombies({self.idle: 1, self.read: 1})
        self.assertEqual((done.ids, done.refused), ([self.idle], [f"#{self.read} was used meanwhile; it stays"]))
        rejected = Memory.objects.get(id=self.idle)
        self.assertEqual((rejected.review, rejected.review_reason), ("rejected", "in 5 packs and never used"))
        self.assertEqual(self.report().zombies.total, 0)
        self.assertNotIn("idle shape", pack_context(command=ContextPackRequest(session_id="next")).text)
        self.assertEqual(restore_zombies([self.idle]).ids, [self.idle])
        self.assertEqual([item.id for item in self.report().zombies.items], [self.idle])
        services.update_memory(command=MemoryUpdate(id=self.idle, content="Another text."))
        self.assertEqual(reject_zombies({self.idle: 1}).ids, [])
        with self.assertRaises(Invalid):
            reject_zombies({})
        self.assertTrue(log.rebuild().identical)


class ComparisonTests(WorthTestCase):
    def sessions(self, count: int, *, correct: int) -> None:
        """Let sessions that are held out correct their agent ``correct`` times, and the others never."""
        self.enterContext(mock.patch.dict("os.environ", MEMORY_HUB_HELD_OUT_PERCENT="50"))
        self.enterContext(mock.patch.object(sessions, "LEAST_SESSIONS", 4))
        names = [f"n-{number}" for number in range(200)]
        for side in (True, False):
            for index, name in enumerate([name for name in names if held_out.assign(name) is side][:count]):
                wrong = ["No, the other one."] * (correct + index % 2 if side else 0)
                self.session(name, f"Write part {name}", *wrong)

    def test_small_groups_are_shown_without_a_conclusion(self) -> None:
        self.sessions(3, correct=2)
        experiment = self.report().experiment
        self.assertEqual(experiment.too_few, "Too few sessions: 3 held out, 3 given; at least 4 each are needed.")
        self.assertEqual({measure.reading for measure in experiment.measures}, {Reading.TOO_FEW})
        self.assertEqual({measure.low for measure in experiment.measures}, {None})

    def test_a_difference_has_an_interval_and_survives_a_rebuild(self) -> None:
        self.session("before", "Go on", "No, not so.")  # in no group, as nothing was held out
        self.sessions(6, correct=2)
        self.session("open", "Go on", end=False)
        first = self.report().experiment
        by_name = {measure.name: measure for measure in first.measures}
        self.assertEqual((first.held_out, first.given, first.active, first.too_few), (6, 6, 1, ""))
        corrections = by_name["corrections"]
        self.assertEqual((corrections.held_out, corrections.given, corrections.reading), (2.5, 0, Reading.HIGHER))
        assert corrections.low is not None and corrections.high is not None
        self.assertLess(0, corrections.low)
        self.assertLess(corrections.low, 2.5)
        self.assertEqual(by_name["repeats"].reading, Reading.NO_SPREAD)
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(self.report().experiment, first)


class WorthPageTests(AdminTestCase, WorthTestCase):
    def setUp(self) -> None:
        super().setUp()
        with use_origin(actor="ada"):
            self.idle = WorthTestCase.write(self, "idle shape")
            self.used = WorthTestCase.write(self, "used colour")
            for number in range(IGNORED_AFTER):
                self.session(f"s-{number}", "Go on", answer=f"As #{self.used} says.")

    def test_zombies_are_rejected_together_and_the_undo_brings_them_back(self) -> None:
        page = self.page("worth/")
        self.assertIn("1 given at least 5 times and never used", " ".join(_text(page).split()))
        self.assertIn("No session is held out", page)
        self.assertIn("?period=90d", page)
        done = self.post("worth/", do="chosen", memory=f"{self.idle}:1")
        self.assertIn("1 memory rejected", done)
        self.assertEqual(self.memory(self.idle).review, "rejected")
        self.assertIn("1 memory back in packs and search", self.post("worth/", do="undo", memory=str(self.idle)))
        self.assertEqual(self.memory(self.idle).review, "accepted")
        self.assertIn("1 memory rejected", self.post("worth/", do="all", all=f"{self.idle}:1"))

    def test_a_held_out_session_is_marked(self) -> None:
        with mock.patch.dict("os.environ", MEMORY_HUB_HELD_OUT_PERCENT="50"):
            name = next(f"n-{number}" for number in range(100) if held_out.assign(f"n-{number}"))
            started = start_session(command=SessionStart(session_id=name))
        self.assertIn("Memory was held out of this session", self.page(f"sessions_app/session/{started.id}/change/"))

    def test_bad_input_changes_nothing(self) -> None:
        for fields in ({"do": "chosen"}, {"do": "chosen", "memory": "x:1"}, {"do": "all", "memory": f"{self.idle}:1"}):
            self.assertIn("Choose 1 to 25 memories; nothing was changed.", self.post("worth/", **fields))
        self.assertIn("stays", self.post("worth/", do="chosen", memory=f"{self.used}:1"))
        self.assertEqual(self.memory(self.idle).review, "accepted")
        self.assertIn("30 days", self.page("worth/", period="x"))
        self.assertEqual(self.client.get("/global/admin/worth/").status_code, 404)

    def test_the_overview_leads_to_it(self) -> None:
        self.assertIn("/p/alpha/admin/worth/", self.page())


class WorthDoorTests(RestTestCase, WorthTestCase):
    def test_rest_and_the_command_answer_the_same(self) -> None:
        WorthTestCase.write(self, "idle shape")
        self.session("s-1", "Go on")
        answer = self.call("GET", "projects/alpha/worth?period=7d").data
        self.assertEqual((answer["period"], answer["packs"], answer["judged"]["unused"]), ("7d", 1, 1))
        out = StringIO()
        call_command("worth", "--project", "alpha", "--period", "7d", "--json", stdout=out)
        both = [WorthReport.model_validate({**data, "since": None}) for data in (json.loads(out.getvalue()), answer)]
        self.assertEqual(*both)
        out = StringIO()
        call_command("worth", "--project", "alpha", stdout=out)
        self.assertIn("1 of 1 pack with nothing used", out.getvalue())
        self.call("GET", "projects/alpha/worth?period=1d", expect=422)


def _text(page: str) -> str:
    import re

    return re.sub(r"<[^>]+>", " ", page)
