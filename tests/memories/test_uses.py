from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from random import Random
from statistics import fmean
from typing import Any, ClassVar
from unittest import TestCase, mock

from django.test import tag

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.lessons.corrections import is_correction
from memories.models import IGNORED_AFTER, Memory, MemoryUse
from memories.pack import pack_context
from memories.query import query
from memories.schemas import MemoryGet, MemorySearch
from memories.schemas.query import ContextPackRequest, MemoryQuery
from memories.selectors import get_memories, search
from memories.uses import notes
from memories.uses.counting import named_in
from memories.uses.drain import count_uses
from memories.uses.selectors import MOST, uses_of, weight_of
from memories.worth import sessions
from memories.worth.report import reject_zombies, restore_zombies, worth_report
from memories.worth.schemas import Period, Reading, WorthReport, WorthRequest
from memories.worth.sessions import (
    SessionPrompt,
    count_corrections,
    count_repeats,
    difference_interval,
    t_quantile,
)
from memoryhub.core import clock
from memoryhub.core.errors import Invalid
from memoryhub.core.jobs import find_job
from memoryhub.core.log.views import as_of
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, current_store, project_store, use_store
from memoryhub.ops.jobs import run_job
from memoryhub.web.signin import ensure_owner
from sessions_app.events.client import ASSISTANT_MESSAGE, USER_MESSAGE
from sessions_app.schemas import SessionEnd, SessionStart
from sessions_app.services import end_session, start_session
from sessions_app.services.sessions import assign_held_out
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from tests.admin.base import AdminTestCase, text_of
from tests.api.client import RestTestCase
from tests.memories.base import MemoriesTestCase
from tests.support import run_command
from tests.web.server import ROOT

# Folds alpha's notes in a process that is killed before or after their event is kept
_KILLED = """
import django, os, signal, sys
django.setup()
from memories.uses import drain
from memoryhub.core.stores.store import project_store, use_store
def killed(function):
    def run(*arguments):
        if sys.argv[1] == "after": function(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    return run
drain._record_uses = killed(drain._record_uses)
with use_store(project_store("alpha")):
    drain.count_uses()
"""


class UsesTestCase(MemoriesTestCase):
    origin: ClassVar[dict[str, Any]] = {"actor": "ada", "source": "mcp", "session_id": "s-1"}

    def fetch(self, *ids: int) -> None:
        get_memories(command=MemoryGet(ids=list(ids)))

    def use(self, memory_id: int) -> dict[str, int]:
        count_uses()
        return {name: value for name, value in uses_of([memory_id])[memory_id].items() if type(value) is int and value}

    def note_files(self) -> list[str]:
        return sorted(path.name for path in notes.folder_of(current_store()).glob("*.*"))


class CountingTests(UsesTestCase):
    def test_memories_in_enough_packs_count_as_ignored_until_used(self) -> None:
        given, left = self.write("Port of the hub"), self.write("Colour of the logo")
        for number in range(1, IGNORED_AFTER + 1):
            with use_origin(session_id=f"s-{number}"):
                pack_context(command=ContextPackRequest())
            is_ignored = uses_of([given])[given]["ignored"]
            self.assertEqual([self.use(given), is_ignored], [{"given": number}, number == IGNORED_AFTER])
            self.assertEqual(MemoryUse.objects.ignored().count(), 2 * (number == IGNORED_AFTER))
        self.fetch(given)
        self.assertEqual(self.use(given), {"given": IGNORED_AFTER, "fetched": 1})
        self.assertEqual(list(MemoryUse.objects.ignored().values_list("memory_id", flat=True)), [left])

    def test_only_shown_hits_count_as_found(self) -> None:
        first = self.write("Green tea", "Tea tea tea, green.")
        second = self.write("Black tea", "Tea. " + "Filler " * 90)
        self.assertEqual(self.hits("green tea", limit=1), [first])
        self.assertEqual((self.use(first), self.use(second)), ({"found": 1}, {}))
        query(command=MemoryQuery(search="black tea", limit=1))
        self.assertEqual(self.use(second), {"found": 1})

    def test_memories_decisions_answers_and_summaries_cite_once_each(self) -> None:
        cited = self.write("Port")
        self.update(cited, content=f"#{cited} is 8400 now.")
        self.assertEqual(self.use(cited), {"updated": 1}, "it cannot cite itself")
        self.write("Proxy", f"Leads to the port of #{cited}; see #{cited} again, and #99.")
        record_decision(command=DecisionRecord(title="Move", chosen="8400", rationale=f"#{cited} is taken"))
        start_session(command=SessionStart(session_id="s-1"))
        turn = automatic_turn(session_id="s-1")
        append_automatically(turn=turn, type="message.user", payload={"content": f"What of #{cited}?"})
        append_automatically(turn=turn, type="message.assistant", payload={"content": f"As #{cited} says."})
        end_session(command=SessionEnd(session_id="s-1", summary=f"Moved the port of #{cited}."))
        self.assertEqual(self.use(cited), {"updated": 1, "cited": 4})
        self.assertEqual(MemoryUse.objects.count(), 1)
        text = "#4, (#5) and #6. But global#7, PR #8, issue #9, owner/name#10, &#11; and #1a2b3c"
        self.assertEqual(named_in(text), {4, 5, 6})

    def test_only_reads_by_agents_leave_notes(self) -> None:
        memory_id = self.write("Port")
        for source in ("admin", "cli", "job", "service"):
            with use_origin(source=source):
                self.hits("port")
                self.fetch(memory_id)
        self.assertEqual(self.note_files(), [])
        with use_origin(source="hook"):
            self.hits("port")
        self.client.force_login(ensure_owner())
        shown = self.client.get(f"/api/v1/projects/alpha/memories/{memory_id}", {"use": "true"})
        self.assertEqual(shown.json()["use"]["fetched"], 0)
        self.assertEqual(self.use(memory_id), {"found": 1, "fetched": 1})
        plain = self.client.get(f"/api/v1/projects/alpha/memories/{memory_id}").json()
        self.assertNotIn("use", plain)

    def test_wider_scopes_count_in_their_own_stores(self) -> None:
        self.write("Port")
        shared = self.write("Port of all", scope="global")
        pack_context(command=ContextPackRequest())
        self.hits("port")
        with self.store("beta", source="mcp"):
            pass
        outcomes = run_job(job=find_job("count uses"), asked_by="ada")
        messages = {outcome.target.title: outcome.message for outcome in outcomes}
        counted = {"project alpha": "1 use counted", "project beta": "", "the global scope": "2 uses counted"}
        self.assertEqual(messages, counted)
        with use_store(GLOBAL_STORE):
            self.assertEqual(self.use(shared), {"given": 1, "found": 1})
        with self.store("beta"):
            self.assertFalse(MemoryUse.objects.exists())


class FoldingTests(UsesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.port = self.write("Port")

    @tag("backend")
    def test_a_read_leaves_a_note_of_ids_and_the_session_that_becomes_one_event(self) -> None:
        before = RawEvent.objects.count()
        self.hits("port")
        self.fetch(self.port)
        self.assertEqual(RawEvent.objects.count(), before)
        folder = notes.folder_of(current_store())
        (path,) = folder.iterdir()
        self.assertEqual([stat.S_IMODE(item.stat().st_mode) for item in (folder, path)], [0o700, 0o600])
        self.assertRegex(path.read_text(), rf"\A\d+ fo @s-1 {self.port}\n\d+ fe @s-1 {self.port}\n\Z")
        self.assertEqual((count_uses(), count_uses()), (2, 0))
        self.assertEqual((RawEvent.objects.count(), self.note_files()), (before + 1, []))
        self.assertEqual(self.use(self.port), {"found": 1, "fetched": 1})

    def test_each_note_counts_once_even_if_the_job_is_killed(self) -> None:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        for count, when in ((1, "before"), (2, "after")):
            self.hits("port")
            command = [sys.executable, "-c", _KILLED, when]
            ended = subprocess.run(command, cwd=ROOT, env=environment, timeout=120, check=False).returncode
            self.assertEqual((ended, len(self.note_files())), (-signal.SIGKILL, 1))
            self.assertEqual(self.use(self.port), {"found": count})
            events = RawEvent.objects.filter(event_type="memories.used").count()
            self.assertEqual((events, self.note_files()), (count, []))

    def test_a_file_is_bounded_and_broken_lines_or_a_blocked_folder_fail_no_read(self) -> None:
        self.fetch(self.port)
        (path,) = notes.folder_of(current_store()).glob(f"*{notes.WAITING}")
        line = f"1 fe {self.port}\n"
        with path.open("a") as file:
            file.write("nonsense\n1 xx 1\n\n2 fe one\n")
            file.write(line * ((notes.MAX_BYTES - file.tell()) // len(line)))
        size = path.stat().st_size
        self.fetch(self.port)
        self.assertEqual(path.stat().st_size, size)
        self.assertGreater(self.use(self.port)["fetched"], 1000)
        folder = notes.folder_of(current_store())
        shutil.rmtree(folder)
        folder.write_text("in the way")
        self.assertEqual(self.hits("port"), [self.port])
        self.assertEqual(count_uses(), 0)


@tag("backend")
class ProjectionTests(UsesTestCase):
    def test_erasing_a_text_removes_its_citations_and_a_rebuild_agrees(self) -> None:
        port = self.write("Port")
        proxy = self.write("Proxy", f"Leads to #{port}.")
        pack_context(command=ContextPackRequest())
        self.fetch(port, proxy)
        self.assertEqual(self.use(port), {"given": 1, "fetched": 1, "cited": 1})
        with as_of(proxy):
            self.assertEqual(uses_of([port])[port]["fetched"], 0)
        get_memories(command=MemoryGet(ids=[port], as_of=proxy))
        search(command=MemorySearch(query="port", as_of=proxy))
        self.assertEqual(self.note_files(), [], "reading the past leaves no note")
        only_cited = self.write("Cited alone")
        citing = self.write("Citing", f"See #{only_cited} and #{port}.")
        self.assertEqual(self.use(port)["cited"], 2)
        self.erase(citing)
        self.assertEqual((self.use(port)["cited"], self.use(only_cited)), (1, {}))
        self.fetch(port, proxy)
        self.erase(port)
        self.assertEqual((self.use(port), self.use(proxy)), ({}, {"given": 1, "fetched": 2}))
        self.assert_rebuilds()


class RankingTests(UsesTestCase):
    @tag("backend")
    def test_of_equal_answers_the_one_used_in_this_project_comes_first(self) -> None:
        twins = {f"Port {name}": f"It listens on 8321 {name}." for name in ("one", "two")}
        with use_store(project_store("beta"), create=True):
            self.write_all(twins)
            before = self.hits("where it listens")
        self.write_all(twins)
        worse = self.write("Port", "Filler. " * 40 + "It listens elsewhere.")
        last = self.hits("where it listens")[1]
        self.fetch(last)
        for _ in range(40):
            self.fetch(worse)
        count_uses()
        self.assertEqual(self.hits("where it listens")[0], last)
        self.assertEqual(self.hits("it listens on 8321")[-1], worse)
        with mock.patch.dict(os.environ, MEMORY_HUB_RANK_BY_USE="false"):
            self.assertNotEqual(self.hits("where it listens")[0], last)
        with use_store(project_store("beta")):
            self.assertEqual(self.hits("where it listens"), before)

    def test_no_use_adds_more_than_a_tenth(self) -> None:
        self.assertEqual([weight_of(points) for points in (0, 5)], [1, 1 + MOST / 2])
        self.assertLess(weight_of(10**9), 1 + MOST + 1e-9)


class IntervalTests(TestCase):
    def test_it_is_that_of_a_published_example_and_its_quantiles_those_of_tables(self) -> None:
        first = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
        second = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
        interval = difference_interval(first, second)
        assert interval
        self.assertAlmostEqual(interval.low, -3.9841, places=3)
        self.assertAlmostEqual(interval.high, -0.3493, places=3)
        self.assertFalse(interval.contains_zero)
        for freedom, quantile in {5: 2.5706, 19: 2.0930, 30: 2.0423, 100: 1.9840, 10_000: 1.9602}.items():
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
        missed = 0
        for _ in range(800):
            first, second = ([min(9, int(random.expovariate(0.7))) for _ in range(size)] for size in (20, 60))
            interval = difference_interval(first, second)
            missed += bool(interval and not interval.contains_zero)
        self.assertAlmostEqual(missed / 800, 0.05, delta=0.03)


class PromptTests(TestCase):
    def test_corrections_are_recognized_by_how_a_later_prompt_begins(self) -> None:
        corrections = (
            "No, the other file.|no - not there|That's wrong.|that’s not what I meant|I said without a dependency|"
            "Nein, das andere.|Das ist falsch|C'est faux|Eso no es lo que pedí"
        )
        others = "Now the tests|No tests fail now|Note the port|What is wrong here?|Nicht vergessen|"
        self.assertEqual([text for text in corrections.split("|") if not is_correction(text)], [])
        self.assertEqual([text for text in others.split("|") if is_correction(text)], [])
        texts = (("a", "No, stop."), ("a", "No, stop."), ("b", "Go on"), ("b", "Wrong"))
        prompts = [SessionPrompt(number, session, text) for number, (session, text) in enumerate(texts)]
        self.assertEqual(count_corrections(prompts), {"a": 1, "b": 1})

    def test_only_what_another_session_asked_before_is_repeated(self) -> None:
        asked = "Why does the upload of large pictures to the storage fail behind the company proxy in Oslo?"
        other = "Please: why does the upload of large pictures to the storage fail behind the company proxy?"
        parser = "Write the parser for settings with tomllib and test every branch of it"
        texts = (asked, asked, other, parser, "Run the tests", "Run the tests")
        prompts = [SessionPrompt(number, "aabbcd"[number], text) for number, text in enumerate(texts)]
        self.assertEqual(+count_repeats(prompts), {"b": 1})


class WorthTestCase(MemoriesTestCase):
    def note(self, title: str) -> int:
        return MemoriesTestCase.write(self, title)

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

    def test_lines_count_once_by_the_best_that_became_of_them(self) -> None:
        with self.store("beta"):
            empty = self.report(Period.ALL)
        self.assertEqual((empty.packs, empty.tokens, empty.lines.total, empty.zombies.total), (0, 0, 0, 0))
        self.assertEqual((empty.experiment.percent, empty.experiment.measures), (0, []))
        self.use_all_but_one()
        report = self.report()
        self.assertEqual((report.packs, report.sessions), (IGNORED_AFTER, IGNORED_AFTER))
        self.assertEqual(report.lines.model_dump(), {"cited": 2, "used": 1, "ignored": 1, "undecided": 0})
        self.assertEqual((report.judged.used, report.judged.unused, report.judged.pending), (IGNORED_AFTER, 0, 0))
        used_by = {entry.id: entry.used_by for entry in report.top}
        self.assertEqual(used_by, dict.fromkeys((self.cited, self.decided, self.read), IGNORED_AFTER))
        self.assertEqual(sum(spent.tokens for spent in report.spent), report.tokens)

    def test_packs_of_ended_sessions_that_used_nothing_are_listed_for_their_period(self) -> None:
        self.session("idle", "Go on")
        self.session("open", "Go on", end=False)
        report = self.report()
        self.assertEqual((report.judged.unused, report.judged.pending), (1, 1))
        (pack,) = report.unused_packs
        self.assertEqual((pack.session_id, pack.tokens), ("idle", report.judged.unused_tokens))
        now = clock.now()
        with clock.frozen(now.replace(year=now.year + 1)):
            self.assertEqual((self.report().packs, self.report(Period.ALL).packs), (0, 2))

    def test_an_idle_memory_is_a_zombie_that_is_rejected_and_comes_back(self) -> None:
        self.use_all_but_one(IGNORED_AFTER - 1)
        self.assertEqual(self.report().zombies.total, 0)
        self.session("last", "Go on", answer=f"As #{self.cited} says.", read=self.read)
        self.write("written late")
        report = self.report()
        self.assertEqual((report.never_given, report.memories), (1, 5))
        (zombie,) = report.zombies.items
        self.assertEqual((zombie.id, zombie.given, zombie.version), (self.idle, IGNORED_AFTER, 1))
        self.assertGreater(zombie.tokens, IGNORED_AFTER * 5)
        self.enterContext(use_origin(source="admin"))
        done = reject_zombies({self.idle: 1, self.read: 1})
        self.assertEqual((done.ids, done.refused), ([self.idle], [f"#{self.read} was used meanwhile; it stays"]))
        rejected = Memory.objects.get(id=self.idle)
        self.assertEqual((rejected.review, rejected.review_reason), ("rejected", "in 5 packs and never used"))
        self.assertEqual(self.report().zombies.total, 0)
        self.assertNotIn("idle shape", pack_context(command=ContextPackRequest(session_id="next")).text)
        self.assertEqual(restore_zombies([self.idle]).ids, [self.idle])
        self.assertEqual([item.id for item in self.report().zombies.items], [self.idle])
        self.update(self.idle, content="Another text.")
        self.assertEqual(reject_zombies({self.idle: 1}).ids, [])
        with self.assertRaises(Invalid):
            reject_zombies({})
        self.assert_rebuilds()


class ComparisonTests(WorthTestCase):
    def sessions(self, count: int, *, correct: int) -> None:
        """Let sessions that are held out correct their agent ``correct`` times, and the others never."""
        self.enterContext(mock.patch.dict("os.environ", MEMORY_HUB_HELD_OUT_PERCENT="50"))
        self.enterContext(mock.patch.object(sessions, "LEAST_SESSIONS", 4))
        names = [f"n-{number}" for number in range(200)]
        for side in (True, False):
            for index, name in enumerate([name for name in names if assign_held_out(name) is side][:count]):
                wrong = ["No, the other one."] * (correct + index % 2 if side else 0)
                self.session(name, f"Write part {name}", *wrong)

    def test_small_groups_are_shown_without_a_conclusion(self) -> None:
        self.sessions(3, correct=2)
        experiment = self.report().experiment
        self.assertEqual(experiment.too_few, "Too few sessions: 3 held out, 3 given; at least 4 each are needed.")
        self.assertEqual({measure.reading for measure in experiment.measures}, {Reading.TOO_FEW})
        self.assertEqual({measure.low for measure in experiment.measures}, {None})

    @tag("backend")
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
        self.assert_rebuilds()
        self.assertEqual(self.report().experiment, first)


class WorthPageTests(AdminTestCase, WorthTestCase):
    def setUp(self) -> None:
        super().setUp()
        with use_origin(actor="ada"):
            self.idle = self.note("idle shape")
            self.used = self.note("used colour")
            for number in range(IGNORED_AFTER):
                self.session(f"s-{number}", "Go on", answer=f"As #{self.used} says.")

    def test_zombies_are_rejected_together_and_the_undo_brings_them_back(self) -> None:
        self.assert_shows(self.page(), "/p/alpha/admin/worth/")
        page = self.page("worth/")
        self.assert_shows(" ".join(text_of(page).split()), "1 given at least 5 times and never used")
        self.assert_shows(page, "No session is held out", "?period=90d")
        self.assert_shows(self.post("worth/", do="chosen", memory=f"{self.idle}:1"), "1 memory rejected")
        self.assertEqual(self.memory(self.idle).review, "rejected")
        undone = self.post("worth/", do="undo", memory=str(self.idle))
        self.assert_shows(undone, "1 memory back in packs and search")
        self.assertEqual(self.memory(self.idle).review, "accepted")
        self.assert_shows(self.post("worth/", do="all", all=f"{self.idle}:1"), "1 memory rejected")

    def test_a_held_out_session_is_marked(self) -> None:
        with mock.patch.dict("os.environ", MEMORY_HUB_HELD_OUT_PERCENT="50"):
            name = next(f"n-{number}" for number in range(100) if assign_held_out(f"n-{number}"))
            started = start_session(command=SessionStart(session_id=name))
        page = self.page(f"sessions_app/session/{started.id}/change/")
        self.assert_shows(page, "Memory was held out of this session")

    def test_bad_input_changes_nothing(self) -> None:
        for fields in ({"do": "chosen"}, {"do": "chosen", "memory": "x:1"}, {"do": "all", "memory": f"{self.idle}:1"}):
            self.assert_shows(self.post("worth/", **fields), "Choose 1 to 25 memories; nothing was changed.")
        self.assert_shows(self.post("worth/", do="chosen", memory=f"{self.used}:1"), "stays")
        self.assertEqual(self.memory(self.idle).review, "accepted")
        self.assert_shows(self.page("worth/", period="x"), "30 days")
        self.assertEqual(self.client.get("/global/admin/worth/").status_code, 404)


class WorthDoorTests(RestTestCase, WorthTestCase):
    def test_rest_and_the_command_answer_the_same(self) -> None:
        self.note("idle shape")
        self.session("s-1", "Go on")
        answer = self.call("GET", "projects/alpha/worth?period=7d").data
        self.assertEqual((answer["period"], answer["packs"], answer["judged"]["unused"]), ("7d", 1, 1))
        printed = run_command("worth", "--project", "alpha", "--period", "7d", "--json").output
        reports = [WorthReport.model_validate({**data, "since": None}) for data in (json.loads(printed), answer)]
        self.assertEqual(*reports)
        self.assertIn("1 of 1 pack with nothing used", run_command("worth", "--project", "alpha").output)
        self.call("GET", "projects/alpha/worth?period=1d", expect=422)
