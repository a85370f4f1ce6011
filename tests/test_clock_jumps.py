"""The system's clock is wrong for a while, and then right again: what is written stays, and what should run runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from django.contrib.sessions.models import Session as Login
from django.test import Client
from django_q.models import OrmQ, Schedule

from memories.pack import pack_context
from memories.schemas import MemoryDelete, MemoryGet, MemorySearch, MemoryUpdate, MemoryWrite
from memories.schemas.query import ContextPackRequest
from memories.selectors import get_memories, search
from memories.services import delete_memory, update_memory, write_memory
from memories.uses.events import Use
from memories.uses.notes import note_read
from memories.worth.report import worth_report
from memories.worth.schemas import Period, WorthRequest
from memoryhub.client.hook import team
from memoryhub.client.hook.post import ClientEvent
from memoryhub.client.setup.team import connect, parse_address
from memoryhub.config.hook_table import HookEffect
from memoryhub.core import clock, disk, log, spool
from memoryhub.core.backends.selected import views
from memoryhub.core.errors import Gone, PreconditionFailed
from memoryhub.core.jobs import find_job
from memoryhub.core.log.views import as_of, position_at
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.spool import SpooledEvent
from memoryhub.core.stores.store import Scope, StoreId, current_store
from memoryhub.models import JobResult, JobRun
from memoryhub.ops import jobs
from memoryhub.ops.backups.restoring import restore
from memoryhub.ops.backups.service import (
    BUNDLE,
    back_up_hub,
    back_up_store,
    backups_of,
    compared_with_backup,
    export_store,
    made_at,
    newest_sound_backup,
)
from memoryhub.ops.doctor.store import _beside
from memoryhub.ops.jobs import running, schedules
from memoryhub.ops.jobs.running import targets_of
from memoryhub.ops.jobs.schedules import enqueue
from memoryhub.registry import tokens
from memoryhub.teams import sending
from memoryhub.web import signin
from sessions_app.models import Session, Turn, TurnStatus
from sessions_app.schemas import SessionEnd, SessionStart, TurnBegin
from sessions_app.services import end_idle_sessions, end_session, start_session
from sessions_app.services.turns import begin_turn, expire_turns
from tests.databases import sqlite_only
from tests.support import HubTestCase

NOW = clock.now()
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TEN_YEARS = timedelta(days=3653)
# What the clock shows during the jump
JUMPS = {
    "an hour back": NOW - HOUR,
    "a day back": NOW - DAY,
    "ten years ahead": NOW + TEN_YEARS,
    "1970": datetime(1970, 1, 1, 0, 0, 30, tzinfo=UTC),
}
TOKEN = "mh_a1b2c3d4_" + "Zz9-" * 10 + "abc"


class ClockTestCase(HubTestCase):
    @contextmanager
    def project(self, name: str) -> Iterator[None]:
        with self.store(name.replace(" ", "-"), actor="ada"):
            yield

    @contextmanager
    def jump(self, name: str) -> Iterator[None]:
        """A project of its own for a jump."""
        with self.subTest(name), self.project(name):
            yield

    def write(self, title: str, at: datetime) -> int:
        with clock.frozen(at):
            return int(write_memory(command=MemoryWrite(title=title, content=f"text of {title}")).id)


class LogTests(ClockTestCase):
    def test_writes_before_during_and_after_are_stored_in_their_order(self) -> None:
        for name, moment in JUMPS.items():
            with self.jump(name):
                ids = [self.write("first", NOW), self.write("second", moment), self.write("third", NOW + HOUR)]
                self.assertEqual(ids, [1, 2, 3])
                self.assertEqual(RawEvent.objects.values("event_id").distinct().count(), 3)
                self.assertTrue(log.verify().ok)
                self.assertEqual([table.table for table in log.rebuild().tables if not table.identical], [])
                with clock.frozen(NOW + HOUR):
                    results = search(command=MemorySearch(query="text")).results
                    self.assertEqual({hit["id"] for hit in results}, {1, 2, 3})
                    entries = get_memories(command=MemoryGet(ids=ids))
                    self.assertEqual([entry["id"] for entry in entries], ids)

    def test_a_past_time_shows_what_was_there_then(self) -> None:
        for name, moment in JUMPS.items():
            with self.jump(name):
                for number in range(6):
                    self.write(f"before {number}", NOW - timedelta(days=9 - number))
                for number in range(2):
                    self.write(f"during {number}", moment + timedelta(seconds=number))
                for number in range(2):
                    self.write(f"after {number}", NOW + timedelta(hours=1 + number))
                with clock.frozen(NOW + DAY):
                    self.assertEqual(position_at(NOW - timedelta(days=7)), 3)
                    self.assertEqual(position_at(NOW + DAY), 10)
                    self.assertEqual(position_at(NOW + timedelta(minutes=90)), 9)

    def test_the_head_is_shown_at_once_when_the_clock_is_right_again(self) -> None:
        for number in range(3):
            with self.project("ahead"):
                self.write(f"during {number}", NOW + TEN_YEARS)
        with self.project("ahead"):
            self.write("after", NOW)
            with clock.frozen(NOW):
                self.assertEqual(position_at(NOW), 4)

    def test_the_views_that_were_used_last_stay(self) -> None:
        with self.project("views"):
            for number in range(8):
                self.write(f"m {number}", NOW)
            with clock.frozen(NOW + TEN_YEARS):
                for position in range(1, 5):
                    self.view(position, NOW + TEN_YEARS)
            self.view(6, NOW)
            self.view(7, NOW + HOUR)
            self.assertLessEqual({6, 7}, set(self.views_by_position()))

    def view(self, position: int, used_at: datetime) -> None:
        with clock.frozen(used_at):
            with as_of(position):
                pass
            views.touch_view(
                StoreId(Scope.VIEW, self.views_by_position()[position])
            )  # its files changed when it was read

    def views_by_position(self) -> dict[int, str]:
        return {int(name.split("-")[-2]): name for name, _ in views.view_names(current_store())}


class ConflictTests(ClockTestCase):
    def test_a_change_that_missed_a_version_of_the_future_is_refused_as_usual(self) -> None:
        with self.project("conflicts"):
            memory = self.write("first", NOW - DAY)
            with clock.frozen(NOW + TEN_YEARS):
                update_memory(command=MemoryUpdate(id=memory, content="second"))
            with clock.frozen(NOW), self.assertRaisesRegex(PreconditionFailed, "read it again"):
                update_memory(command=MemoryUpdate(id=memory, content="third", base_version=1))


class SessionTests(ClockTestCase):
    def test_a_turn_of_the_future_does_not_stay_open_for_ten_years(self) -> None:
        with self.project("turns"):
            with clock.frozen(NOW + TEN_YEARS):
                start_session(command=SessionStart(session_id="s"))
                begin_turn(command=TurnBegin(session_id="s", turn_id="t"))
            with clock.frozen(NOW + HOUR):
                self.assertEqual(expire_turns(), 1)
            self.assertEqual(Turn.objects.get().status, TurnStatus.INCOMPLETE)

    def test_a_session_of_the_future_ends_and_one_in_use_stays(self) -> None:
        with self.project("sessions"):
            with clock.frozen(NOW + TEN_YEARS):
                for name in ("idle", "used"):
                    start_session(command=SessionStart(session_id=name))
            with clock.frozen(NOW), use_origin(session_id="used"):
                write_memory(command=MemoryWrite(title="t", content="c"))
            with clock.frozen(NOW + HOUR):
                self.assertEqual(end_idle_sessions(), 1)
            self.assertEqual(dict(Session.objects.values_list("session_id", "status"))["used"], "active")

    def test_a_turn_goes_on_after_the_clock_was_set_back_a_little(self) -> None:
        with self.project("back"):
            with clock.frozen(NOW):
                start_session(command=SessionStart(session_id="s"))
                begin_turn(command=TurnBegin(session_id="s", turn_id="t"))
            for moment in (NOW - HOUR, NOW - DAY):
                with clock.frozen(moment):
                    self.assertEqual((expire_turns(), end_idle_sessions()), (0, 0))

    def test_work_goes_on_in_a_new_turn(self) -> None:
        for name, moment in JUMPS.items():
            with self.jump(name):
                for at, session in ((NOW, "a"), (moment, "b"), (NOW + HOUR, "c")):
                    with clock.frozen(at):
                        expire_turns()
                        end_idle_sessions()
                        begun = begin_turn(command=TurnBegin(session_id=session, turn_id="t"))
                        with use_origin(source="rest", ack_token=begun.ack_token):
                            write_memory(command=MemoryWrite(title=session, content=session))
                self.assertEqual(RawEvent.objects.filter(event_type="memory.written").count(), 3)


class SpoolTests(ClockTestCase):
    def spooled(self, name: str, at: datetime) -> SpooledEvent:
        return SpooledEvent(id=name, at=int(at.timestamp() * 1000), client="c", event="e")

    def test_events_stay_in_the_order_in_which_they_came(self) -> None:
        for name, moment in JUMPS.items():
            with self.subTest(name):
                times = {"a": NOW, "b": moment, "c": moment + timedelta(seconds=9), "d": NOW + 2 * HOUR}
                path = self.home / f"{name}.jsonl"
                path.write_text("".join(f"{spool.line_of(self.spooled(*item))}\n" for item in times.items()))
                self.assertEqual([event.id for event in spool.read(path)[0]], ["a", "b", "c", "d"])

    def test_one_that_a_slow_process_wrote_late_comes_first(self) -> None:
        path = self.home / "slow.jsonl"
        events = [self.spooled("late", NOW + timedelta(seconds=3)), self.spooled("early", NOW)]
        path.write_text("".join(f"{spool.line_of(event)}\n" for event in events))
        self.assertEqual([event.id for event in spool.read(path)[0]], ["early", "late"])


class TeamTests(ClockTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.connection = connect(self.home, parse_address("http://127.0.0.1:1", "shop"), token=TOKEN)

    def test_a_refused_token_is_tried_again_when_the_clock_is_right(self) -> None:
        event = SpooledEvent(id="a", at=0, client="c", event="e")
        spool.append(event, at=self.connection.spool)
        digest = sending._Sender(self.connection, None)._digest
        at = int((NOW + TEN_YEARS).timestamp() * 1000)
        problem = sending.SendingProblem("the hub refused the token", at, digest)
        sending._write_json(Path(self.connection.place) / sending.PROBLEM, problem)
        with clock.frozen(NOW):
            self.assertFalse(sending.send_waiting(self.connection))
        later = sending.read_problem(self.connection)
        assert later
        self.assertNotIn("refused the token", later.sentence)

    def test_a_prompt_waits_for_its_context_again(self) -> None:
        path = f"{self.connection.place}/{sending.PROBLEM}"
        sending._Sender(self.connection, None)._note("the hub cannot be reached")
        os.utime(path, ((NOW + TEN_YEARS).timestamp(),) * 2)
        event = ClientEvent("claude-code", "UserPromptSubmit")
        event.effect, event.deadline = HookEffect.PROMPT, float("inf")
        self.assertEqual(team._deadline(event, self.connection), float("inf"))


class JobTests(ClockTestCase):
    def setUp(self) -> None:
        super().setUp()
        # In PostgreSQL, it would end the transaction of the test
        self.enterContext(mock.patch("django_q.scheduler.close_old_django_connections"))
        Schedule.objects.all().delete()
        OrmQ.objects.all().delete()
        jobs.install_schedules()
        self.enterContext(clock.frozen(clock.now()))  # django-q2 reads the system's clock

    def test_schedules_go_on_when_the_clock_is_right_and_keep_their_time_of_day(self) -> None:
        for name, moment in JUMPS.items():
            with self.subTest(name):
                OrmQ.objects.all().delete()
                Schedule.objects.update(next_run=moment + timedelta(minutes=30))
                schedules.queue_due()
                for schedule in Schedule.objects.all():
                    step = schedule.calculate_next_run(NOW) - NOW
                    latest = clock.now() + step + timedelta(minutes=5)
                    self.assertLessEqual(schedule.next_run, latest, schedule.name)
                    if step >= DAY:
                        self.assertEqual((schedule.next_run - moment) % DAY, timedelta(minutes=30))

    def test_a_schedule_of_1970_is_not_followed_minute_by_minute(self) -> None:
        Schedule.objects.update(next_run=JUMPS["1970"])
        calls = []

        def calculate(schedule: Schedule, next_run: datetime | None = None) -> datetime:
            calls.append(schedule.name)
            assert len(calls) < 1000, "it counts the minutes since 1970"
            return (next_run or NOW) + timedelta(minutes=1 if schedule.schedule_type == Schedule.MINUTES else 1440)

        with mock.patch.object(Schedule, "calculate_next_run", calculate):
            schedules.queue_due()
        self.assertEqual(OrmQ.objects.count(), Schedule.objects.count())

    def test_a_run_of_the_future_is_none_that_has_been_done(self) -> None:
        with self.project("alpha"):
            pass
        target = next(each for each in targets_of(find_job("backup")) if each.store)
        for result in (JobResult.OK, *[JobResult.INTERRUPTED] * running.ATTEMPTS):
            self.note_run("backup", target.alias, NOW + TEN_YEARS, result)
        self.assertEqual(running.done_since(find_job("backup"), NOW - HOUR), set())

    def test_runs_of_the_future_do_not_push_out_those_of_now(self) -> None:
        for number in range(running.KEPT):
            self.note_run("backup", "a", NOW + TEN_YEARS + timedelta(hours=number), JobResult.OK)
        with self.project("alpha"):
            alias = next(each.alias for each in targets_of(find_job("backup")) if each.store)
            JobRun.objects.update(store=alias)
            jobs.run_job(job=find_job("backup"), asked_by="ada")
        self.assertTrue(JobRun.objects.filter(store=alias, started_at__lt=NOW + DAY).exists())

    def note_run(self, job: str, alias: str, at: datetime, result: str) -> None:
        JobRun.objects.create(
            job=job, store=alias, started_at=at, ended_at=at, result=result, pid=1, asked_by="schedule"
        )

    def test_a_queued_task_is_not_held_for_ten_years(self) -> None:
        Schedule.objects.all().delete()
        enqueue(job=find_job("backup"), targets=[], asked_by="ada")
        OrmQ.objects.update(lock=NOW + TEN_YEARS)
        schedules.queue_due()
        self.assertLessEqual(OrmQ.objects.get().lock, clock.now())


class DeletionTests(ClockTestCase):
    """Jobs that delete without asking: a clock that is wrong for less than half a day deletes nothing."""

    def run_job(self, name: str, at: datetime) -> list[str]:
        with clock.frozen(at):
            outcomes = jobs.run_job(job=find_job(name), asked_by="schedule")
        self.assertEqual({outcome.result for outcome in outcomes}, {JobResult.OK})
        return [outcome.message for outcome in outcomes if outcome.message]

    def erased(self) -> int:
        return int(RawEvent.objects.filter(payload_json__isnull=True).count())

    def deleted_memory(self, at: datetime) -> int:
        memory = self.write("marmalade", at)
        with clock.frozen(at):
            delete_memory(command=MemoryDelete(id=memory))
            with use_origin(source="rest"):
                note_read(Use.FETCHED, [memory])
        return memory

    def test_retention_deletes_nothing_while_the_clock_is_wrong_nor_after(self) -> None:
        for moment in JUMPS.values():
            with self.subTest(moment), self.project(f"r{moment:%Y%m%d%H}"):
                self.deleted_memory(NOW - 10 * DAY)
                for at in (NOW - DAY, NOW, moment, moment + HOUR, NOW + HOUR, NOW + DAY):
                    self.run_job("retention", at)
                self.assertEqual(self.erased(), 0)

    def test_retention_deletes_what_is_due_at_its_second_run(self) -> None:
        with self.project("due"):
            self.deleted_memory(NOW - 100 * DAY)
            (message,) = self.run_job("retention", NOW)
            self.assertIn("kept until a later run", message)
            self.assertEqual(self.erased(), 0)
            self.run_job("retention", NOW + HOUR)
            self.assertEqual(self.erased(), 0)
            self.run_job("retention", NOW + DAY)
            self.assertEqual(self.erased(), 2)

    def test_use_statistics_and_sign_ins_stay(self) -> None:
        Login.objects.create(session_key="k" * 32, session_data="", expire_date=NOW + 14 * DAY)
        with self.project("uses"):
            self.deleted_memory(NOW)
            self.run_job("count uses", NOW)
            for at in (NOW, NOW + DAY, NOW + TEN_YEARS, NOW + 2 * DAY):
                for name in ("prune use statistics", "clear logins"):
                    self.run_job(name, at)
            self.assertFalse(RawEvent.objects.filter(event_type="memories.uses_pruned").exists())
        self.assertTrue(Login.objects.exists())
        self.run_job("clear logins", NOW + 20 * DAY)
        self.run_job("clear logins", NOW + 21 * DAY)
        self.assertFalse(Login.objects.exists())


class BundleTests(ClockTestCase):
    def test_a_new_bundle_stays(self) -> None:
        self.enterContext(mock.patch.dict(os.environ, {"MEMORY_HUB_BACKUPS": "2"}))
        for name, moment in JUMPS.items():
            with self.jump(name):
                self.write("first", NOW)
                for at in (NOW, moment, moment + timedelta(seconds=1), NOW + HOUR, NOW + 2 * HOUR):
                    with clock.frozen(at):
                        self.assertTrue(export_store().path.exists())
                        self.assertLessEqual(len(backups_of(current_store(), BUNDLE)), 2)


@sqlite_only("PostgreSQL has bundles instead")
class BackupTests(ClockTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, {"MEMORY_HUB_BACKUPS": "3"}))

    def test_a_new_backup_stays_and_is_the_newest(self) -> None:
        for name, moment in JUMPS.items():
            with self.jump(name):
                store = current_store()
                self.write("first", NOW)
                for at in (NOW, moment, moment + timedelta(seconds=1), NOW + HOUR, NOW + 2 * HOUR):
                    with clock.frozen(at):
                        self.write(f"at {at}", at)
                        path = back_up_store().path
                        self.assertTrue(path.exists(), at)
                        if abs(moment - NOW) > 2 * DAY:
                            self.assertEqual(newest_sound_backup(store), path)
                with clock.frozen(NOW + 2 * HOUR):
                    self.assertEqual(newest_sound_backup(store), path)
                    self.assertLess(abs(made_at(backups_of(store)[-1]) - NOW), 3 * HOUR)

    def test_a_backup_of_the_future_does_not_refuse_a_restored_store(self) -> None:
        with self.project("alpha"):
            store = current_store()
            self.write("first", NOW)
            with clock.frozen(NOW - DAY):
                early = back_up_store().path
            self.write("second", NOW)
            for moment in (NOW + TEN_YEARS, JUMPS["1970"]):
                with clock.frozen(moment):
                    back_up_store()
        for hours, moment in enumerate((JUMPS["1970"] + DAY, NOW)):
            with clock.frozen(moment):
                restore(store=store, source=early, replace=True)
            with self.project("alpha"), clock.frozen(NOW + (1 + hours) * HOUR):
                self.assertEqual(compared_with_backup(store), "")
                self.assertTrue(back_up_store().path.exists())

    def test_one_of_the_future_does_not_hide_that_there_is_none_for_days(self) -> None:
        with self.project("alpha"):
            self.write("first", NOW)
            with clock.frozen(NOW + TEN_YEARS):
                back_up_store()
            with clock.frozen(NOW):
                findings = [what for what, _ in _beside(current_store())]
        self.assertIn("the last backup is from", " ".join(findings))

    def test_a_copy_of_the_hub_stays(self) -> None:
        (self.home / "hub.db").write_bytes(b"")
        for at in (NOW, NOW + TEN_YEARS, NOW + TEN_YEARS + HOUR, NOW + HOUR, NOW + DAY, JUMPS["1970"], NOW + 2 * DAY):
            with self.subTest(at), clock.frozen(at):
                path = back_up_hub()
                assert path
                self.assertTrue(path.exists())


class AccessTests(ClockTestCase):
    def test_a_sign_in_link_of_the_future_is_valid_for_no_longer_than_others(self) -> None:
        signin.ensure_owner()
        with clock.frozen(NOW + TEN_YEARS):
            token = signin.create_link_token()
        with clock.frozen(NOW):
            self.assertRaises(Gone, signin.redeem_link_token, token)
            self.assertEqual(signin.redeem_link_token(signin.create_link_token()).get_username(), "owner")

    def test_a_token_that_expired_for_a_while_is_valid_again_and_its_use_is_recorded(self) -> None:
        for number, moment in enumerate(JUMPS.values()):
            with clock.frozen(NOW):
                token, text = tokens.create_token(command=tokens.TokenCreate(name=f"ci-{number}"), by="owner")
            for at in (moment, NOW + HOUR):
                with clock.frozen(at):
                    note = tokens.due_note(token, "here")
                    if note:
                        note()
                    token.refresh_from_db()
            with clock.frozen(NOW + HOUR):
                self.assertEqual(tokens.recognise(text), token)
            self.assertEqual(token.last_used_at, NOW + HOUR)


class PageTests(ClockTestCase):
    def test_the_report_on_packs_and_the_front_page_show_what_was_written_in_the_future(self) -> None:
        signin.ensure_owner()
        for name, moment in JUMPS.items():
            with self.jump(name):
                self.write("first", moment)
                with clock.frozen(moment), use_origin(session_id="s"):
                    pack_context(command=ContextPackRequest())
                with clock.frozen(NOW):
                    for period in Period:
                        report = worth_report(command=WorthRequest(period=period))
                        self.assertTrue(report.spent)

    def test_a_session_that_ended_before_it_began_is_shown(self) -> None:
        client = Client(headers={"host": "localhost"})
        client.force_login(signin.ensure_owner())
        for name, moment in JUMPS.items():
            with self.jump(name):
                with clock.frozen(NOW):
                    start_session(command=SessionStart(session_id="s"))
                    begin_turn(command=TurnBegin(session_id="s", turn_id="t"))
                with clock.frozen(moment + HOUR * 2):
                    end_session(command=SessionEnd(session_id="s", summary="done"))
                project = current_store().name
                session = Session.objects.get()
                for page in (
                    "",
                    "sessions_app/session/",
                    f"sessions_app/session/{session.id}/change/",
                    "core/rawevent/",
                ):
                    response = client.get(f"/p/{project}/admin/{page}", follow=True)
                    self.assertEqual(response.status_code, 200, page)
                    self.assertNotContains(response, ">-")


class FileTests(ClockTestCase):
    def test_a_file_of_the_future_is_settled(self) -> None:
        for name, moment in JUMPS.items():
            with self.subTest(name), clock.frozen(NOW):
                changed = int(moment.timestamp() * 1e9)
                self.assertTrue(disk.is_settled(changed, seconds=1.0))
                self.assertFalse(disk.is_settled(int(NOW.timestamp() * 1e9), seconds=1.0))
