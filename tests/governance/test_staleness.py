"""What is stale and why, what affirms it, and the diffs that are shown."""

from __future__ import annotations

import random
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.test import tag

from decisions.schemas import DecisionEvidence, DecisionMark, DecisionSupersede
from decisions.services import add_evidence, mark_decision, supersede_decision
from governance.models import Affirmation
from governance.staleness.governed_files import governed_path
from governance.staleness.schemas import Retire, StaleList
from governance.staleness.selectors import count_stale, list_stale, stale_item
from governance.staleness.service import retire
from memories.models import Memory, MemoryKind
from memories.schemas import MemoryRestore, MemoryTouch, MemoryUpdate
from memories.services import delete_memory, restore_memory, update_memory
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, Gone, Invalid, NotFound
from memoryhub.core.log import erase_events, erase_streams
from memoryhub.core.log.quarantine import QUARANTINE_LIFTED, QuarantineLifted
from memoryhub.core.models import RawEvent
from sessions_app.git import read_commit
from sessions_app.schemas import ProjectDescribe, SessionStart, SettingsChange
from sessions_app.services import record_commits, start_session
from sessions_app.services.profile import change_settings, describe
from tests.decisions.base import NOON
from tests.governance.rollback_case import quarantine
from tests.governance.staleness import StalenessTestCase
from tests.sessions_app.test_git import Repository


class GoverningTests(StalenessTestCase):
    def test_a_commit_on_a_file_that_a_decision_names_makes_it_due(self):
        decision = self.record("Sign tokens", files=["src/auth.py"], impact="high").id
        self.record("Use SQLite", files=["src/db.py"])
        self.assertEqual(self.due(), [])
        commit = self.commit_now("Shorten tokens\n\nfor speed", "src/auth.py", "README.md")
        (item,) = self.stale()
        self.assertEqual((item["id"], item["kind"], item["type"]), (decision, "decision", "high"))
        self.assertEqual([reason["why"] for reason in item["reasons"]], ["touched"])
        self.assertEqual((item["governs"], item["since"]), (["src/auth.py"], "2026-11-20T13:00:00Z"))
        (shown,) = item["commits"]
        self.assertEqual((shown["id"], shown["subject"], shown["author"]), (commit, "Shorten tokens", "Bo"))
        self.assertEqual(shown["files"], [{"path": "src/auth.py", "insertions": 3, "deletions": 1}])

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
        sweeping = self.commit_now("Format all", *[f"src/{number}.py" for number in range(51)])
        add_evidence(command=DecisionEvidence(id=decision, commits=[f"#{sweeping}"]))
        self.commit_now("Change one", "src/1.py")
        self.assertEqual(self.due(), [])

    def test_commits_that_were_made_before_it_was_written_do_not_count_though_recorded_later(self):
        signed = self.record("Sign tokens", files=["src/auth.py"]).id
        self.commit("a1", "At the same moment", "src/auth.py")
        self.assertEqual(self.due(), [signed])
        self.pass_time(days=1)
        rotated = self.record("Rotate keys", files=["src/keys.py"]).id
        self.commit("b2", "Older than that", "src/keys.py")
        self.assertNotIn(rotated, self.due())

    def test_names_of_files_are_read_as_commits_have_them(self):
        for name, path in {
            "./src/auth/": "src/auth",
            " src/a b.py ": "src/a b.py",
            "file:///home/ada/hub/src/a%20b.py": "src/a b.py",
            "file://localhost/home/ada/hub/docs/": "docs",
            "/home/ada/hub/src/auth.py": "src/auth.py",
            **dict.fromkeys(("/home/ada/hubble/x.py", "/etc/passwd", "https://example.org/src/auth.py"), ""),
            **dict.fromkeys(("../other/x.py", ".", "./"), ""),
        }.items():
            with self.subTest(name):
                self.assertEqual(governed_path(name, "/home/ada/hub"), path)

    def test_what_is_not_in_force_is_never_due(self):
        active = self.guide("Holds", "src/")
        deleted, rejected, quarantined = (self.guide(title, "src/") for title in ("Deleted", "Rejected", "Aside"))
        decisions = [self.record(title, files=["src/"]).id for title in ("Replaced", "Deprecated", "Proposed")]
        delete_memory(command=MemoryTouch(id=deleted))
        Memory.objects.filter(id=rejected).update(review="rejected")
        quarantine(quarantined)
        mark_decision(command=DecisionMark(id=decisions[1], status="deprecated"))
        mark_decision(command=DecisionMark(id=decisions[2], status="proposed"))
        self.pass_time(hours=1)
        successor = supersede_decision(command=DecisionSupersede(id=decisions[0], chosen="Another.")).id
        commit = self.commit_now("Touch", "src/a.py")
        self.assertEqual(self.due(), [active])
        with log.transaction():
            log.append(log.prepare(QUARANTINE_LIFTED, QuarantineLifted(ids=[quarantined])), stream="quarantine")
        restore_memory(command=MemoryRestore(id=deleted))
        self.assertEqual(self.due(), [active, deleted, quarantined])
        self.assertNotIn(successor, self.due())
        quarantine(commit)
        self.assertEqual(self.due(), [])


class AgeTests(StalenessTestCase):
    def setUp(self) -> None:
        super().setUp()
        settings = {"guideline": 90, "guideline/style": 30, "decision": 365, "decision/critical": 60}
        change_settings(command=SettingsChange(settings={"review_after": settings}))

    def test_the_closest_name_decides_how_long_a_thing_holds(self):
        plain = self.write("Plain", kind="guideline")
        style = self.write("Style", kind="guideline", type="style")
        self.write("Fact")
        high, critical = self.record("High", impact="high").id, self.record("Critical", impact="critical").id
        due: list[int] = []
        for days, newly_due in ((29, []), (30, [style]), (60, [critical]), (90, [plain]), (364, []), (365, [high])):
            due += newly_due
            with self.subTest(days=days), clock.frozen(NOON + timedelta(days=days)):
                self.assertEqual(self.due(), due)

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

    def test_knowledge_is_due_when_its_end_has_passed_until_affirming_removes_or_moves_it(self):
        self.assertEqual(self.due(), [])
        self.pass_time(days=1)
        (item,) = self.stale(why="expired")
        self.assertEqual((item["id"], item["kind"], item["since"]), (self.fact, "knowledge", "2026-11-21T12:00:00Z"))
        self.affirm(self.fact, valid_until=self.time + timedelta(days=7), reason="asked Bo")
        self.assertEqual(self.due(), [])
        self.assertEqual(Memory.objects.get(id=self.fact).valid_until, self.time + timedelta(days=7))
        self.pass_time(days=8)
        self.assertEqual(self.due(), [self.fact])
        self.affirm(self.fact)
        self.assertEqual((self.due(), Memory.objects.get(id=self.fact).valid_until), ([], None))

    def test_an_end_that_has_passed_or_that_the_thing_cannot_have_is_refused_and_nothing_is_written(self):
        decision, head = self.record("WAL").id, log.head()
        for entity_id, until, message in (
            (self.fact, NOON - timedelta(days=1), "is in the past"),
            (decision, NOON + timedelta(days=9), "a decision has no valid_until"),
        ):
            with self.subTest(message), self.assertRaisesRegex(Invalid, message):
                self.affirm(entity_id, valid_until=until)
        self.assertEqual((log.head(), Affirmation.objects.count()), (head, 0))


class AffirmingTests(StalenessTestCase):
    def test_what_was_affirmed_is_due_again_at_the_next_commit(self):
        guideline = self.guide("Validate", "src/auth/")
        self.commit_now("First", "src/auth/a.py")
        answer = self.affirm(guideline, reason="read it")
        self.assertEqual((answer.kind, answer.title, answer.affirmed_at), ("guideline", "Validate", self.time))
        self.assertEqual(self.due(), [])
        self.commit_now("Second", "src/auth/b.py")
        (item,) = self.stale()
        self.assertEqual((item["affirmed_by"], item["commit_count"]), ("ada", 1))
        self.assertEqual([commit["subject"] for commit in item["commits"]], ["Second"])

    def test_revising_and_superseding_settle_it_too(self):
        guideline, decision = self.guide("Validate", "src/"), self.record("Sign", files=["src/"]).id
        self.commit_now("Touch", "src/a.py")
        self.assertEqual(self.due(), [guideline, decision])
        self.pass_time(minutes=5)
        update_memory(command=MemoryUpdate(id=guideline, content="Validate at the edge."))
        supersede_decision(command=DecisionSupersede(id=decision, chosen="Encrypt.", files=["src/"]))
        self.assertEqual(self.due(), [])

    def test_a_revert_is_settled_by_affirming(self):
        decision = self.record("Cache").id
        sha = "c" * 40
        self.commit(sha, f"Cache\n\nDecision: #{decision}", "src/cache.py")
        self.pass_time(hours=1)
        self.commit("d" * 40, f'Revert "Cache"\n\nThis reverts commit {sha}.', "src/cache.py")
        (item,) = self.stale(why="reverted")
        (reason,) = item["reasons"]
        self.assertRegex(reason["says"], "commit dddddddddd reverts cccccccccc")
        self.assertEqual([commit["sha"][0] for commit in item["commits"]], ["d"])
        self.affirm(decision)
        self.assertEqual(self.due(), [])

    def test_what_is_not_in_force_cannot_be_affirmed(self):
        deleted, proposed = self.write("Deleted"), self.write("Proposed")
        replaced, rejected = self.record("Replaced").id, self.record("Rejected", status="rejected").id
        commit = self.commit_now("Touch", "src/a.py")
        delete_memory(command=MemoryTouch(id=deleted))
        Memory.objects.filter(id=proposed).update(review="proposed")
        successor = supersede_decision(command=DecisionSupersede(id=replaced, chosen="Another.")).id
        for entity_id, error, message in (
            (999, NotFound, "there is no #999 in this store"),
            (commit, NotFound, f"#{commit} is a commit; give the id of a memory or decision"),
            (deleted, Gone, "restore"),
            (proposed, ConflictError, "accept it in the review queue"),
            (replaced, ConflictError, f"affirm its replacement: #{successor}"),
            (rejected, ConflictError, "is rejected; accept it"),
        ):
            with self.subTest(message), self.assertRaisesRegex(error, message):
                self.affirm(entity_id)
        self.assertEqual(Affirmation.objects.count(), 0)

    def test_the_same_key_again_affirms_once_in_the_history_of_the_thing_and_without_secrets(self):
        decision, reason = self.record("WAL").id, "token ghp_" + "a1B2" * 9
        first, second = (self.affirm(decision, idempotency_key="k-1", reason=reason) for _ in range(2))
        self.assertEqual((first.is_new, second.is_new, first.redacted), (True, False, ["github-token"]))
        event = RawEvent.objects.get(event_type="thing.affirmed")
        self.assertEqual((event.stream_id, event.stream_seq), (f"decision:{decision}", 2))
        self.assertNotIn("a1B2", Affirmation.objects.get().reason)

    def test_a_rebuild_comes_out_the_same_whatever_happened(self):
        chance = random.Random(7)
        things = [self.guide(f"Guide {n}", "src/") for n in range(4)]
        things += [self.record(f"Choice {n}", files=["src/"]).id for n in range(4)]
        for number in range(40):
            self.pass_time(minutes=1)
            thing = chance.choice(things)
            if chance.random() < 0.3:
                self.commit_now(f"Change {number}", f"src/{chance.randrange(5)}.py", minutes=1)
            elif thing in things[:4] and chance.random() < 0.3:
                update_memory(command=MemoryUpdate(id=thing, content=f"Text {number}."))
            else:
                self.affirm(thing, reason=f"reason {number}")
        affirmed = list(RawEvent.objects.filter(event_type="thing.affirmed").values_list("position", flat=True))
        erase_events(affirmed[-3:], reason="a name")
        erase_streams([f"memory:{things[0]}"], reason="asked to")
        before, due = list(Affirmation.objects.order_by("entity_id").values()), self.stale()
        self.assertTrue(before and due)
        self.assertNotIn(things[0], [item["entity_id"] for item in before])
        self.assertIn("", [item["reason"] for item in before])
        self.assert_rebuilds()
        self.assertEqual((list(Affirmation.objects.order_by("entity_id").values()), self.stale()), (before, due))


@tag("backend")
class ListingTests(StalenessTestCase):
    def test_pages_hold_each_thing_once_while_others_are_affirmed(self):
        things = [self.guide(f"Guide {n}", f"src/{n}.py") for n in range(7)]
        self.assertEqual(count_stale(), 0)
        for number in range(7):
            self.commit_now(f"Change {number}", f"src/{6 - number}.py")
        first = list_stale(command=StaleList(limit=3))
        self.assertEqual((first.meta.total_count, first.meta.has_more, count_stale()), (7, True, 7))
        self.affirm(first.results[0]["id"])
        self.assertEqual(count_stale(), 6)
        second = list_stale(command=StaleList(limit=20, cursor=first.meta.next_cursor, compact=True))
        self.assertEqual([item["id"] for item in [*first.results, *second.results]], things[::-1])
        self.assertEqual(set(second.results[0]), {"id", "title"})

    def test_it_is_filtered_by_kind_and_reason(self):
        guideline, decision = self.guide("Validate", "src/"), self.record("Sign", files=["src/"]).id
        fact = self.write("Port", kind="knowledge", attributes={"valid_until": "2026-11-20T12:30:00Z"})
        self.commit_now("Touch", "src/a.py")
        for filters, due in (
            ({}, [fact, guideline, decision]),
            ({"kind": "decision"}, [decision]),
            ({"kind": "guideline"}, [guideline]),
            ({"why": "expired"}, [fact]),
            ({"why": "age"}, []),
            ({"id": decision}, [decision]),
        ):
            with self.subTest(filters):
                self.assertEqual(self.due(**filters), due)

    def test_one_is_shown_at_a_time_and_the_oldest_first(self):
        self.assertIsNone(stale_item())
        things = [self.guide(f"Guide {n}", f"src/{n}.py") for n in range(3)]
        other = self.guide("Elsewhere", "docs/")
        for number in range(3):
            self.commit_now(f"Change {number}", f"src/{number}.py")
        first, second = stale_item(), stale_item(things[1])
        assert first and second
        self.assertEqual((first["id"], second["id"]), (things[0], things[1]))
        with self.assertRaisesRegex(NotFound, f"#{other} is not stale"):
            stale_item(other)

    def test_what_no_longer_holds_is_retired(self):
        guideline, decision = self.guide("Validate", "src/"), self.record("Sign", files=["src/"]).id
        self.commit_now("Touch", "src/a.py")
        answers = [retire(command=Retire(id=item, reason="gone")) for item in (guideline, decision)]
        self.assertEqual([answer.title for answer in answers], ["Validate", "Sign"])
        self.assertEqual((self.due(), self.get(decision)["status"]), ([], "deprecated"))
        self.assertIsNotNone(Memory.objects.get(id=guideline).deleted_at)
        with self.assertRaises(Gone):
            retire(command=Retire(id=guideline))


class DiffTests(StalenessTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(Path(tempfile.mkdtemp(prefix="repository-")))
        self.addCleanup(shutil.rmtree, self.repository.folder)
        self.repository.hours = int((NOON - datetime.fromtimestamp(1_700_000_000, UTC)).total_seconds() // 3600) + 1
        describe(command=ProjectDescribe(root_path=str(self.repository.folder)))
        self.guideline = self.guide("Validate", "src/")

    def commit_files(self, message: str, **files: bytes) -> None:
        named = {name.replace("__", "/") + ".py": content for name, content in files.items()}
        commit = read_commit(self.repository.folder, self.repository.commit(message, **named))
        assert commit is not None
        record_commits(commits=[commit])

    def diff(self) -> str:
        (item,) = self.stale(diff=True)
        return str(item["commits"][0]["diff"])

    def test_the_diff_shows_the_governed_files_alone(self):
        self.commit_files("Begin", src__auth=b"a = 1\nb = 2\n", docs__auth=b"words = 1\n")
        self.affirm(self.guideline)
        self.pass_time(hours=4)
        self.repository.hours += 4
        self.commit_files("Change", src__auth=b"a = 1\nb = 3\n", docs__auth=b"words = 2\n")
        diff = self.diff()
        self.assertIn("+++ b/src/auth.py", diff)
        self.assertIn("-b = 2\n+b = 3", diff)
        self.assertNotIn("words", diff)

    def test_what_someone_set_in_git_changes_nothing(self):
        for name, value in (("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true"), ("color.ui", "always"),
                            ("diff.external", "/bin/false"), ("log.showSignature", "true")):  # fmt: skip
            self.repository.git("config", name, value)
        self.repository.write(".gitattributes", b"*.py diff=loud\n")
        self.repository.git("config", "diff.loud.textconv", "/bin/false")
        self.commit_files("Ümlaut", src__ärger=b"a = 1\n")
        self.assertRegex(self.diff(), r"\Adiff --git a/src/ärger.py b/src/ärger.py\nnew file")

    def test_a_secret_in_a_diff_is_not_shown(self):
        self.commit_files("Careless", src__auth=b'TOKEN = "ghp_' + b"a1B2" * 9 + b'"\n')
        self.assertIn("[REDACTED:github-token:", self.diff())
        self.assertNotIn("a1B2", self.diff())

    def test_a_long_diff_is_cut_with_a_note(self):
        self.commit_files("Long", src__long=b"".join(b"line %d\n" % number for number in range(5_000)))
        diff = self.diff()
        self.assertLess(len(diff), 25_000)
        self.assertRegex(diff, r"… \d+ more lines\Z")

    def test_a_file_that_is_too_big_or_binary_is_named_only(self):
        self.commit_files("Big", src__big=b"x" * 79 + b"\n" * 600_000, src__binary=b"\0\1\2")
        self.assertIn("Binary files /dev/null and b/src/big.py differ", self.diff())
        self.assertLess(len(self.diff()), 1_000)

    def test_a_commit_that_the_repository_does_not_know_has_its_numbers_alone(self):
        self.commit_files("Known", src__auth=b"a = 1\n")
        self.commit_now("Unknown", "src/auth.py", hours=3)
        unknown, known = self.stale(diff=True)[0]["commits"]
        self.assertEqual((unknown["subject"], unknown["diff"], unknown["files"][0]["insertions"]), ("Unknown", None, 3))
        self.assertIn("+a = 1", known["diff"])
        describe(command=ProjectDescribe(root_path="/nowhere/at/all"))
        self.assertEqual([commit["diff"] for commit in self.stale(diff=True)[0]["commits"]], [None, None])

    def test_the_folder_where_a_session_works_will_do(self):
        describe(command=ProjectDescribe(root_path=""))
        start_session(command=SessionStart(directory=str(self.repository.folder / "src"), session_id="s-1"))
        self.commit_files("Known", src__auth=b"a = 1\n")
        self.assertIn("+a = 1", self.diff())
