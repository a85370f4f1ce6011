from __future__ import annotations

from datetime import timedelta
from typing import Any

from decisions.schemas import DecisionEvidence, DecisionMark, DecisionSupersede
from decisions.services import add_evidence, mark_decision, supersede_decision
from governance.models import Affirmation
from governance.staleness.governed_files import governed_path
from memories.models import Memory, MemoryKind
from memories.schemas import MemoryRestore, MemoryTouch, MemoryUpdate
from memories.services import delete_memory, restore_memory, update_memory
from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.quarantine import QUARANTINE_LIFTED, QUARANTINE_PLACED, QuarantineLifted, QuarantinePlaced
from sessions_app.models import Commit
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.decisions.base import NOON
from tests.governance.staleness import StalenessTestCase


class GoverningTests(StalenessTestCase):
    def test_a_commit_on_a_file_that_a_decision_names_makes_it_due(self):
        decision = self.record("Sign tokens", files=["src/auth.py"], impact="high").id
        self.record("Use SQLite", files=["src/db.py"])
        self.assertEqual(self.due(), [])
        commit = self.commit_now("Shorten tokens\n\nfor speed", "src/auth.py", "README.md")
        (found,) = self.stale()
        self.assertEqual((found["id"], found["kind"], found["type"]), (decision, "decision", "high"))
        self.assertEqual([reason["why"] for reason in found["reasons"]], ["touched"])
        self.assertEqual(found["governs"], ["src/auth.py"])
        (shown,) = found["commits"]
        self.assertEqual((shown["id"], shown["subject"], shown["author"]), (commit, "Shorten tokens", "Bo"))
        self.assertEqual(shown["files"], [{"path": "src/auth.py", "insertions": 3, "deletions": 1}])
        self.assertEqual(found["since"], "2026-11-20T13:00:00Z")

    def test_a_folder_governs_all_that_is_in_it_and_nothing_beside_it(self):
        folder = self.record("Layers", files=["./src/auth/"]).id
        guideline = self.guide("Validate", "src/auth")
        self.commit_now("Beside it", "src/auth_old.py", "src/auth.py", "src/auth0/a.py")
        self.assertEqual(self.due(), [])
        self.commit_now("In it", "src/auth/deep/er.py")
        self.assertEqual(self.due(), [folder, guideline])

    def test_the_files_of_the_commits_that_carried_a_decision_out_are_governed_but_not_by_those_commits(self):
        decision = self.record("Queue", files=["docs/queue.md"]).id
        carried_out = self.commit_now("Queue it", "src/queue.py", "docs/queue.md")
        self.assertEqual(self.due(), [decision])
        add_evidence(command=DecisionEvidence(id=decision, commits=[f"#{carried_out}"]))
        self.assertEqual(self.due(), [])
        self.commit_now("Unrelated", "src/other.py")
        self.assertEqual(self.due(), [])
        self.commit_now("Drop retries", "src/queue.py")
        self.assertEqual(self.stale()[0]["governs"], ["docs/queue.md", "src/queue.py"])

    def test_a_sweeping_commit_governs_nothing(self):
        decision = self.record("Format").id
        paths = [f"src/{number}.py" for number in range(51)]
        sweeping = self.commit_now("Format all", *paths)
        add_evidence(command=DecisionEvidence(id=decision, commits=[f"#{sweeping}"]))
        self.commit_now("Change one", "src/1.py")
        self.assertEqual(self.due(), [])

    def test_commits_that_were_made_before_it_was_written_do_not_count_though_recorded_later(self):
        self.record("Sign tokens", files=["src/auth.py"])
        self.commit("a1", "An old one", "src/auth.py")
        Commit.objects.get(sha="a1".ljust(40, "0"))
        self.assertEqual(self.due(), [self.record_id_of("Sign tokens")])
        self.pass_time(days=1)
        self.record("Rotate keys", files=["src/keys.py"])
        self.commit("b2", "Older than that", "src/keys.py")
        self.assertNotIn(self.record_id_of("Rotate keys"), self.due())

    def record_id_of(self, title: str) -> int:
        from decisions.models import Decision

        return int(Decision.objects.get(title=title).id)

    def test_names_of_files_are_read_as_commits_have_them(self):
        for given, wanted in {
            "./src/auth/": "src/auth",
            " src/a b.py ": "src/a b.py",
            "file:///home/ada/hub/src/a%20b.py": "src/a b.py",
            "file://localhost/home/ada/hub/docs/": "docs",
            "/home/ada/hub/src/auth.py": "src/auth.py",
            "/home/ada/hubble/x.py": "",
            "/etc/passwd": "",
            "https://example.org/src/auth.py": "",
            "../other/x.py": "",
            ".": "",
            "./": "",
        }.items():
            with self.subTest(given):
                self.assertEqual(governed_path(given, "/home/ada/hub"), wanted)

    def test_what_does_not_hold_is_never_due(self):
        holding = self.guide("Holds", "src/")
        deleted, rejected, aside = (self.guide(title, "src/") for title in ("Deleted", "Rejected", "Aside"))
        decisions = [self.record(title, files=["src/"]).id for title in ("Replaced", "Deprecated", "Proposed")]
        delete_memory(command=MemoryTouch(id=deleted))
        Memory.objects.filter(id=rejected).update(review="rejected")
        self.place(QUARANTINE_PLACED, QuarantinePlaced(ids=[aside]))
        mark_decision(command=DecisionMark(id=decisions[1], status="deprecated"))
        mark_decision(command=DecisionMark(id=decisions[2], status="proposed"))
        self.pass_time(hours=1)
        successor = supersede_decision(command=DecisionSupersede(id=decisions[0], chosen="Another.")).id
        self.commit_now("Touch", "src/a.py")
        self.assertEqual(self.due(), [holding])
        self.place(QUARANTINE_LIFTED, QuarantineLifted(ids=[aside]))
        restore_memory(command=MemoryRestore(id=deleted))
        self.assertEqual(self.due(), [holding, deleted, aside])
        self.assertNotIn(successor, self.due())

    def place(self, event_type: Any, payload: Any) -> None:
        with log.transaction():
            log.append(log.prepare(event_type, payload), stream="quarantine")

    def test_a_commit_in_quarantine_makes_nothing_due(self):
        self.guide("Holds", "src/")
        commit = self.commit_now("Touch", "src/a.py")
        self.place(QUARANTINE_PLACED, QuarantinePlaced(ids=[commit]))
        self.assertEqual(self.due(), [])

    def test_another_project_sees_nothing(self):
        self.guide("Holds", "src/")
        self.commit_now("Touch", "src/a.py")
        with self.store("beta"):
            self.assertEqual(self.due(), [])
            with self.assertRaises(NotFound):
                self.affirm(1)


class AgeTests(StalenessTestCase):
    def setUp(self) -> None:
        super().setUp()
        settings = {"guideline": 90, "guideline/style": 30, "decision": 365, "decision/critical": 60}
        change_settings(command=SettingsChange(settings={"review_after": settings}))

    def test_the_closest_name_says_how_long_a_thing_holds(self):
        plain = self.write("Plain", kind="guideline")
        style = self.write("Style", kind="guideline", type="style")
        fact = self.write("Fact")
        high, critical = self.record("High", impact="high").id, self.record("Critical", impact="critical").id
        due = {}
        for days in (29, 30, 60, 90, 364, 365):
            with clock.frozen(NOON + timedelta(days=days)):
                due[days] = self.due()
        self.assertEqual(due[29], [])
        self.assertEqual(due[30], [style])
        self.assertEqual(due[60], [style, critical])
        self.assertEqual(due[90], [style, critical, plain])
        self.assertEqual(due[364], due[90])
        self.assertEqual(due[365], [*due[90], high])
        self.assertNotIn(fact, due[365])

    def test_a_revision_and_an_affirmation_begin_the_time_anew(self):
        revised, affirmed = (self.write(title, kind="guideline") for title in ("Revised", "Affirmed"))
        self.pass_time(days=80)
        update_memory(command=MemoryUpdate(id=revised, content="Better words."))
        self.affirm(affirmed)
        self.pass_time(days=20)
        self.assertEqual(self.due(), [])
        self.pass_time(days=70)
        self.assertEqual(self.due(), [revised, affirmed])

    def test_a_decision_ages_from_when_it_was_decided(self):
        old = self.record("Old", decided_at=NOON - timedelta(days=400)).id
        self.assertEqual(self.due(), [old])
        self.assertEqual(self.stale()[0]["reasons"][0]["since"], "2026-10-16T12:00:00.000Z")

    def test_a_name_that_is_no_kind_and_a_number_that_is_no_span_are_refused(self):
        for wrong in ({"guidelines": 90}, {"decision": 0}, {"decision": "soon"}, ["decision"]):
            with self.subTest(wrong), self.assertRaisesRegex(Invalid, "review_after"):
                change_settings(command=SettingsChange(settings={"review_after": wrong}))
        for kind in MemoryKind:
            change_settings(command=SettingsChange(settings={"review_after": {f"{kind}/any": 1}}))


class ExpiryTests(StalenessTestCase):
    def setUp(self) -> None:
        super().setUp()
        ends = {"valid_until": clock.to_text(NOON + timedelta(days=1))}
        self.fact = self.write("Port", kind="knowledge", attributes=ends)

    def test_knowledge_is_due_when_its_end_has_passed(self):
        self.assertEqual(self.due(), [])
        self.pass_time(days=1)
        (found,) = self.stale(why="expired")
        self.assertEqual((found["id"], found["kind"], found["since"]), (self.fact, "knowledge", "2026-11-21T12:00:00Z"))

    def test_affirming_takes_the_end_away_or_moves_it(self):
        self.pass_time(days=2)
        self.affirm(self.fact, valid_until=self.time + timedelta(days=7), reason="asked Bo")
        self.assertEqual(self.due(), [])
        self.assertEqual(Memory.objects.get(id=self.fact).valid_until, self.time + timedelta(days=7))
        self.pass_time(days=8)
        self.assertEqual(self.due(), [self.fact])
        self.affirm(self.fact)
        self.assertEqual((self.due(), Memory.objects.get(id=self.fact).valid_until), ([], None))

    def test_an_end_that_has_passed_or_that_the_thing_cannot_have_is_refused_and_nothing_is_written(self):
        decision, head = self.record("WAL").id, log.head()
        for entity_id, until, said in (
            (self.fact, NOON - timedelta(days=1), "is in the past"),
            (decision, NOON + timedelta(days=9), "a decision has no valid_until"),
        ):
            with self.subTest(said), self.assertRaisesRegex(Invalid, said):
                self.affirm(entity_id, valid_until=until)
        self.assertEqual((log.head(), Affirmation.objects.count()), (head, 0))
