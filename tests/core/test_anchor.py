"""Writes to a log that differs from its anchor are refused by every interface; reads continue with a warning."""

from __future__ import annotations

from django.test import Client, tag

from memories import services
from memories.schemas import MemoryTouch, MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends import selected
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.errors import Damaged, Invalid
from memoryhub.core.log.anchor import advance_anchor, read_anchor
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.ops.doctor.store import Finding, examine_store
from memoryhub.rest.auth import read_token
from tests import tampering
from tests.databases import at_home, sqlite_only
from tests.mcp.case import McpTestCase
from tests.support import HubTestCase, forget_all_stores, run_command

ALPHA = project_store("alpha")


def anchored_position() -> int:
    anchor = read_anchor(ALPHA)
    return anchor.position if anchor else 0


def write(title: str) -> int:
    return services.write_memory(command=MemoryWrite(title=title, content=f"about {title}")).id


class AnchorTestCase(HubTestCase):
    def write_all(self, title: str, count: int = 5) -> None:
        with self.store("alpha"):
            for number in range(count):
                write(f"{title} {number}")
        forget_all_stores()

    def assert_write_refused(self, reason: str) -> None:
        with self.assertRaisesRegex(Damaged, reason), self.store("alpha"):
            write("over the lost ones")


# Five events are copied aside, five more are acknowledged, and then the older file is restored.
@tag("backend")
class CutLogTests(AnchorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write_all("early")
        older = tampering.Copy(ALPHA)
        self.write_all("late")
        older.put_back()

    def test_a_write_is_refused_and_names_doctor(self):
        self.assert_write_refused(
            "nothing was written: the log ends at #5, but #10 was acknowledged.*`memory-hub doctor`"
        )
        with self.store("alpha"):
            self.assertEqual(log.head()[0], 5)
            self.assertFalse(log.verify().ok)

    def test_a_log_as_long_as_it_was_but_with_other_events_is_refused(self):
        selected.anchors.remove(ALPHA)
        self.write_all("other")
        tampering.set_anchor(ALPHA, 7, "a" * 64)
        self.assert_write_refused("#7 is not the event that was acknowledged")

    @sqlite_only("an anchor is a file")
    def test_an_anchor_that_cannot_be_read_is_refused_and_one_that_a_power_cut_left_empty_is_not(self):
        anchor_path(ALPHA).write_text("nonsense")
        self.assert_write_refused("the store's anchor cannot be read")
        anchor_path(ALPHA).write_bytes(b"")
        with self.store("alpha"):
            write("one more")
        self.assertEqual(anchored_position(), 6)

    def test_an_accepted_loss_is_an_event_and_writing_goes_on(self):
        event = log.accept_loss(store=ALPHA, reason="the disk died")
        self.assertEqual((event.position, event.type), (6, "log.loss_accepted"))
        payload = event.payload
        self.assertEqual((payload.anchored_position, payload.found_position, payload.reason), (10, 5, "the disk died"))
        self.assertRegex(payload.anchored_digest or "", "^[0-9a-f]{64}$")
        with self.store("alpha"):
            self.assertEqual(write("after"), 7)
            self.assert_sound()
        with self.assertRaisesRegex(Invalid, "nothing is lost"):
            log.accept_loss(store=ALPHA)

    def test_a_broken_chain_cannot_be_accepted(self):
        tampering.change(ALPHA, "UPDATE raw_events SET actor = 'eve' WHERE position = 3")
        with self.assertRaisesRegex(Damaged, "broken at #3.*restore a backup"):
            log.accept_loss(store=ALPHA)


# The log's last events are deleted and the anchor is set back: only the read models still have what was acknowledged.
@tag("backend")
class CutLogAndAnchorTests(AnchorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write_all("memory", 10)
        with self.store("alpha"):
            digest = log.digest_at(5)
        forget_all_stores()
        tampering.change(ALPHA, "DELETE FROM raw_events WHERE position > 5")
        selected.anchors.remove(ALPHA)
        tampering.set_anchor(ALPHA, 5, str(digest))

    def findings(self) -> list[Finding]:
        return [finding for finding in examine_store(ALPHA)[0] if "no backup" not in finding.what]

    def test_writes_are_refused_and_verify_notices_it(self):
        reason = "the log ends at #5, but #10 is in the read models"
        sentence = f"nothing was written: {reason}; run `memory-hub doctor`"
        self.assert_write_refused(sentence)
        with self.assertRaisesRegex(Damaged, sentence), self.store("alpha"):
            services.delete_memory(command=MemoryTouch(id=8))
        with self.store("alpha"):
            self.assertEqual(log.head()[0], 5)
            verified = log.verify()
        self.assertFalse(verified.ok)
        self.assertIn(reason, verified.describe())

    def test_doctor_names_it_and_its_remedy_makes_the_store_writable(self):
        (finding,) = [each for each in self.findings() if "the log ends at #5, but #10 is in the read" in each.what]
        self.assertIn("`memory-hub jobs rebuild --project alpha`", finding.repair)
        with self.store("alpha"):
            log.rebuild()
            self.assertTrue(log.verify().ok)
            self.assertEqual(write("after"), 6)
        forget_all_stores()
        self.assertEqual(self.findings(), [])


@tag("backend")
class LostStoreTests(AnchorTestCase):
    def test_a_missing_or_empty_store_beside_its_anchor_is_recreated_only_when_its_loss_is_accepted(self):
        self.write_all("early", 3)
        for message, lose, exists in (
            ("is gone, though its log had events", tampering.lose, False),
            ("is empty", tampering.lose_content, True),
        ):
            with self.subTest(message):
                lose(ALPHA)
                with self.assertRaisesRegex(Damaged, f"{message}.*`memory-hub doctor`"), self.store("alpha"):
                    pass
                self.assertEqual(selected.stores.exists(ALPHA), exists)
                self.assertTrue(tampering.has_no_content(ALPHA))
                event = log.accept_loss(store=ALPHA)
                self.assertEqual((event.position, event.payload.found_position), (1, 0))
                with use_store(ALPHA):
                    self.assertEqual([write("again"), RawEvent.objects.count()], [2, 2])
                    self.assertTrue(log.verify().ok)
                forget_all_stores()


@tag("backend")
class AnchorLockTests(HubTestCase):
    def test_a_process_that_holds_the_anchor_stops_no_writer(self):
        with self.store("alpha"):
            write("first")
            with tampering.anchor_locked(ALPHA), self.assertLogs("memoryhub.core.log.anchor", "WARNING") as logs:
                write("second")
                write("third")
            self.assertIn("is locked by another process and lags behind #2", logs.output[0])
            self.assertEqual(anchored_position(), 1)
            write("fourth")
            self.assertEqual(anchored_position(), 4)

    def test_an_event_that_a_restore_has_taken_back_is_not_anchored_late(self):
        with self.store("alpha"):
            write("first")
            before = read_anchor(ALPHA)
            advance_anchor(ALPHA, 2, "b" * 64)
            self.assertEqual(read_anchor(ALPHA), before)


class DoorTests(McpTestCase):
    def test_every_interface_refuses_the_write_and_warns_in_reads(self):
        self.write_by_a_server("kept", "an early one")
        older = tampering.Copy(ALPHA)
        self.write_by_a_server("lost", "a late one")
        older.put_back()
        self.check_mcp()
        self.check_rest()
        forget_all_stores()
        self.check_commands()

    def write_by_a_server(self, title: str, content: str) -> None:
        server = self.connect()
        server.say("memory_write", title=title, content=content)
        server.end()

    def check_mcp(self) -> None:
        server = self.connect()
        refused = server.say("memory_write", title="new", content="over the lost one")
        self.assertRegex(refused, "^damaged: nothing was written: the log ends at #.*`memory-hub doctor`")
        found = server.say("memory_search", query="early")
        self.assertRegex(found, r"kept(.|\n)*\(warning: the log ends at #.*Writes are refused: run `memory-hub doctor`")
        as_json = server.call("memory_search", query="early", format="json")["structuredContent"]
        self.assertIn("the log ends at #", as_json["warning"])
        pack = server.say("memory_context")
        self.assertRegex(pack, r"kept(.|\n)*this pack has no number and is not recorded: nothing was written")
        server.end()

    def check_rest(self) -> None:
        client = Client(headers={"host": "localhost", "authorization": f"Bearer {read_token()}"})
        path = "/api/v1/projects/alpha/memories"
        written = client.post(path, {"title": "new", "content": "over the lost one"}, "application/json")
        self.assertEqual((written.status_code, written.json()["code"]), (503, "damaged"))
        listed = client.get(path)
        self.assertEqual(listed.status_code, 200)
        self.assertIn("the log ends at #", listed["Memory-Hub-Warning"])

    def check_commands(self) -> None:
        for words, exit_code, sentences in (
            (("search", "early"), 0, ["warning: the log ends at #"]),
            (("doctor",), 15, ["its tail was cut", "memory-hub doctor --accept-loss --project alpha"]),
            (("doctor", "--accept-loss", "gone with the disk"), 0, [r"accepted: \d+ events? lost, recorded as #\d+"]),
            (("verify",), 0, []),
        ):
            done = run_command(*words, "--project", "alpha")
            printed = done.output + done.errors
            self.assertEqual(done.code, exit_code, printed)
            for sentence in sentences:
                self.assertRegex(printed, sentence)


class PackTests(McpTestCase):
    def test_a_locked_store_still_gives_a_pack_with_a_note_that_it_is_not_recorded(self):
        server = self.connect()
        server.say("memory_write", title="a fact", content="to be packed")
        with at_home(self.home), tampering.locked(ALPHA):
            pack = server.call("memory_context")
        self.assertFalse(pack["isError"], pack)
        text = pack["content"][0]["text"]
        self.assertIn("a fact", text)
        self.assertIn("is not recorded: memory database is locked by another process", text)
        self.assertRegex(server.say("memory_context"), r"context pack #\d+ of alpha")
