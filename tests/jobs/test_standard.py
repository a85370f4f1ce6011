from __future__ import annotations

from datetime import timedelta

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import clock
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.jobs import find_job
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import GLOBAL_STORE, project_store, use_store
from memoryhub.models import StoreCheck
from memoryhub.ops.jobs import run_job
from sessions_app.models import Session, Turn
from sessions_app.schemas import SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import begin_turn
from tests.support import HubTestCase, forget_all_stores

BOTH = ("project alpha", "project beta")


def run(name: str) -> dict[str, str]:
    outcomes = run_job(job=find_job(name), asked_by="ada")
    return {outcome.target.title: outcome.message for outcome in outcomes if outcome.message}


class VerifyTests(HubTestCase):
    def test_every_store_is_checked_and_the_finding_kept(self) -> None:
        for project in ("alpha", "beta"):
            with self.store(project):
                write_memory(command=MemoryWrite(title="t", content=project))
        with use_store(GLOBAL_STORE, create=True):
            pass
        findings = run("verify stores")
        self.assertEqual(list(findings), ["project alpha", "project beta", "the global scope"])
        check = StoreCheck.objects.get(store="store:project:alpha")
        self.assertEqual((check.ok, check.events), (True, 1))

    def test_a_store_that_cannot_be_read_does_not_stop_the_others(self) -> None:
        for project in ("alpha", "beta"):
            with self.store(project):
                pass
        forget_all_stores()
        path_of(project_store("alpha")).write_bytes(b"not a database!!" * 1000)
        with self.assertLogs("memoryhub.ops.jobs", "WARNING"):
            run("verify stores")
        checks = {check.store: check.ok for check in StoreCheck.objects.all()}
        self.assertEqual(checks, {"store:project:alpha": False, "store:project:beta": True})

    def test_a_second_check_replaces_the_first(self) -> None:
        with self.store("alpha"):
            pass
        run("verify stores")
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="t", content="c"))
        run("verify stores")
        self.assertEqual(StoreCheck.objects.get().events, 1)


class SessionJobsTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with clock.frozen(clock.now() - timedelta(days=2)):
            for project in ("alpha", "beta"):
                with self.store(project):
                    start_session(command=SessionStart(session_id="s"))
                    begin_turn(command=TurnBegin(session_id="s", turn_id="t"))

    def states(self, project: str) -> tuple[str, str]:
        with self.store(project):
            return Session.objects.get().status, Turn.objects.get().status

    def test_turns_expire_in_every_project(self) -> None:
        self.assertEqual(run("expire turns"), dict.fromkeys(BOTH, "1 turn left open"))
        self.assertEqual([self.states(name) for name in ("alpha", "beta")], [("active", "incomplete")] * 2)
        self.assertEqual(run("expire turns"), {})

    def test_sessions_end_in_every_project_and_say_who_ended_them(self) -> None:
        self.assertEqual(run("end idle sessions"), dict.fromkeys(BOTH, "1 session ended"))
        self.assertEqual(self.states("beta")[0], "completed")
        with self.store("alpha"):
            last = RawEvent.objects.order_by("position").last()
            assert last
            self.assertEqual((last.source, last.actor), ("job", "end idle sessions"))
        self.assertEqual(run("end idle sessions"), {})

    def test_a_store_that_cannot_be_read_stops_no_other(self) -> None:
        forget_all_stores()
        path_of(project_store("alpha")).write_bytes(b"not a database!!" * 1000)
        with self.assertLogs("memoryhub.ops.jobs", "WARNING"):
            found = run("expire turns")
        self.assertIn("memory database unavailable", found["project alpha"])
        self.assertEqual((found["project beta"], self.states("beta")[1]), ("1 turn left open", "incomplete"))
