from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from django.db import transaction

from governance.jobs import wipe
from governance.redaction.copies import search_home
from governance.redaction.finding import find_places
from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories import services
from memories.models import Memory, Tag
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.schemas.links import TagCreate
from memories.services.tags import create_tag
from memoryhub.config.current_settings import project_settings
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.backends.sqlite.scratch import attached, temporary_copy
from memoryhub.core.errors import ConfirmationRequired, Conflict, Invalid, NotFound
from memoryhub.core.jobs import Run
from memoryhub.core.log.copy import follow
from memoryhub.core.log.event_view import as_of
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store
from memoryhub.core.stores.wiping import is_unwiped
from memoryhub.core.text import flat
from sessions_app.schemas import CommitRead, EventAppend, SessionStart, SettingsChange, TurnBegin
from sessions_app.services import record_commit, start_session
from sessions_app.services.profile import change_settings
from sessions_app.services.turns import append_event, begin_turn
from tests import tampering
from tests.databases import on_postgresql, sqlite_only
from tests.support import HubTestCase

WORD = "marmaladeish"
_TRY_TO_WRITE = """
import sys
from memoryhub.core.backends.sqlite import driver
driver.install()
import sqlite3
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
"""


class _RedactionCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    def write(self, title: str, content: str = "", **fields: object) -> int:
        return services.write_memory(command=MemoryWrite(title=title, content=content or title, **fields)).id

    def preview(self, **fields: object) -> RedactionPreview:
        return preview_redaction(command=RedactionSelect(**fields))

    def redact(self, reason: str = "", **fields: object) -> RedactionDone:
        token = self.preview(**fields).confirm_token
        return redact(command=RedactionRun(**fields, confirm_token=token, reason=reason))

    def memory(self, memory_id: int) -> Memory:
        found: Memory = Memory.objects.get(id=memory_id)
        return found

    def require_whole(self) -> None:
        self.assertTrue(log.verify().ok, log.verify().reason)
        self.assertTrue(log.rebuild().identical)

    def places_with(self, word: str) -> list[Path | str]:
        return [*search_home({word}).left, *tampering.tables_with(word)]


class WhatIsTextTests(_RedactionCase):
    def test_two_keys_that_become_one_keep_both_values(self):
        start_session(command=SessionStart(session_id="s-1"))
        turn = begin_turn(command=TurnBegin(session_id="s-1", turn_id="t-1"))
        payload = {"tool": "grep", "input": {"quince-1": "red", "quince-2": "blue"}, "output": "none"}
        append_event(command=EventAppend(type="message.tool", payload=payload, ack_token=turn.ack_token))
        self.redact(pattern="quince-[0-9]")
        kept = json.loads(RawEvent.objects.get(event_type="message.tool").payload_json)
        self.assertEqual(sorted(kept["input"].values()), ["blue", "red"])
        self.require_whole()

    def test_a_word_that_is_a_field_s_name_or_value_too_goes_where_it_is_text(self):
        written = self.write(
            "The content and its title", "Any guideline.", kind="guideline", attributes={"priority": 5}
        )
        for word in ("title", "content", "guideline"):
            self.redact(text=word)
        memory = self.memory(written)
        self.assertEqual(memory.title, "The [REDACTED:removed] and its [REDACTED:removed]")
        self.assertEqual((memory.content, memory.kind), ("Any [REDACTED:removed].", "guideline"))
        self.require_whole()

    def test_a_field_of_a_fixed_form_is_told_of(self):
        self.write("A rule", "Any guideline.", kind="guideline", attributes={"priority": 5})
        kept = next(one for one in self.preview(text="guideline").kept if one.where == "kind of memory.written")
        self.assertIn("fixed form", kept.why)

    def test_what_is_no_text_of_anybody_s_stays_so_that_the_rest_can_go(self):
        change_settings(command=SettingsChange(settings={"turn_policy": "auto", "review_after": {"guideline": 9}}))
        text = "On auto, a guideline is found, with examples of 2026."
        written = self.write("A tool", text, kind="tool", attributes={"constraints": text, "examples": []})
        record_commit(
            command=CommitRead(sha="a1b2c3d4e5f6a7b8c9d0" * 2, message=text, committed_at="2026-01-02T03:04:05Z")
        )
        for word in ("auto", "guideline", "found", "examples", "2026"):
            self.redact(text=word)
        self.assertEqual(self.memory(written).content.count("[REDACTED:removed]"), 5)
        self.assertEqual(list(self.memory(written).attributes), ["constraints", "examples"])
        settings = project_settings()
        self.assertEqual((settings.turn_policy, settings.review_after), ("auto", {"guideline": 9}))
        self.require_whole()

    def test_a_name_of_a_session_stays_as_the_headers_do(self):
        start_session(command=SessionStart(session_id=f"s-{WORD}", purpose=f"Ask {WORD}"))
        self.redact(text=WORD)
        self.assertEqual(
            rows.fetch("SELECT session_id, purpose FROM sessions_app_session"),
            [(f"s-{WORD}", "Ask [REDACTED:removed]")],
        )
        self.require_whole()

    def test_a_text_that_somebody_wrote_as_a_tag_goes_too(self):
        written = self.write("Tags", f"Of [REDACTED:{WORD}], key=open [REDACTED:foo] sesame.")
        self.redact(text=WORD)
        self.redact(pattern="key=.*sesame")
        self.assertEqual(self.memory(written).content, "Of [REDACTED:removed], [REDACTED:removed].")

    def test_what_stands_in_its_place_is_never_found_again(self):
        written = self.write("Tags", "Two REDACTED things were removed.")
        self.redact(pattern="[a-zA-Z]+", ids=[written])
        with self.assertRaises(NotFound):
            self.preview(pattern="[a-zA-Z]+", ids=[written])

    def test_a_text_with_any_letters_goes(self):
        for text in ('say "hi\\there"', "one\ntwo\tthree", "👩‍👩‍👧 kin", "e\u0301clair", "bell\x07x", "a\u2028b"):
            with self.subTest(text=text):
                self.write(f"About {flat(text)}", f"{text}{text}", tags=["x"])
                self.assertEqual(self.redact(text=text).left, [])
        self.require_whole()


class LimitTests(_RedactionCase):
    def test_what_becomes_too_long_is_cut(self):
        written = self.write("zq " * 66 + "zq", "Long")
        self.redact(text="zq")
        self.assertEqual(len(self.memory(written).title), 300)
        self.require_whole()

    def test_names_that_only_one_may_have_stay_apart(self):
        one, two = (self.write(f"Of {character}", topic_key=f"initech-{character}") for character in "12")
        for character in "12":
            create_tag(command=TagCreate(name=f"umbrella-{character}"))
        self.redact(pattern="(initech|umbrella)-[0-9]")
        self.assertNotEqual(self.memory(one).topic_key, self.memory(two).topic_key)
        self.assertEqual(Tag.objects.filter(name__contains="[redacted:removed]").count(), 2)
        self.require_whole()

    def test_neither_label_nor_reason_may_hold_it(self):
        self.write(f"The {WORD} tank")
        with self.assertRaisesRegex(Invalid, "label contains"):
            self.preview(text=WORD, label=f"not-{WORD}")
        with self.assertRaisesRegex(Invalid, "reason contains"):
            self.redact(text=WORD, reason=f"{WORD} has asked")
        self.assertTrue(self.places_with(WORD))

    def test_the_reason_of_what_went_before_is_text(self):
        gone = self.write("Another thing")
        self.redact(whole=True, ids=[gone], reason=f"{WORD} has asked")
        self.write("A third thing of tin")
        self.redact(text="tin", reason=f"{WORD} has asked again")
        self.assertEqual(self.redact(text=WORD).events, 2)
        self.assertEqual(self.places_with(WORD), [])
        self.require_whole()


class WholeTests(_RedactionCase):
    def test_all_that_goes_with_what_was_selected_is_shown_before(self):
        written = self.write("One", "First")
        services.update_memory(command=MemoryUpdate(id=written, content="Second"))
        for fields in ({"ids": [written + 1]}, {"ids": [written], "event_types": ["memory.revised"]}):
            with self.subTest(fields=fields):
                self.assertEqual(self.preview(whole=True, **fields).events, 2)
        self.assertEqual(self.redact(whole=True, ids=[written + 1]).events, 2)

    def test_what_was_added_since_the_look_is_not_erased_unseen(self):
        written = self.write("One", "First")
        token = self.preview(whole=True, ids=[written]).confirm_token
        services.update_memory(command=MemoryUpdate(id=written, content="Second"))
        with self.assertRaises(ConfirmationRequired):
            redact(command=RedactionRun(whole=True, ids=[written], confirm_token=token))

    def test_the_proof_finds_a_long_text_that_stands_elsewhere(self):
        long = " ".join(f"line {number} of the recipe" for number in range(1_000))
        self.write("Copy", f"As said: {long}")
        done = self.redact(whole=True, ids=[self.write("One", long)])
        tables = ["the table memories_memory", "the table raw_events"]
        self.assertEqual(
            [left.where for left in done.left], tables if on_postgresql() else ["projects/alpha/events.db"]
        )
        self.assertIn("elsewhere in this store", done.left[0].why)


class AtTheSameTimeTests(_RedactionCase):
    def why_another_cannot_write(self, path: Path) -> str:
        command = [sys.executable, "-c", _TRY_TO_WRITE, str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr

    @sqlite_only("a process loses a file's locks when it closes the file")
    def test_the_proof_leaves_this_process_its_locks(self):
        self.write("One")
        with log.transaction():
            rows.execute("UPDATE store_meta SET value = value")
            search_home({WORD})
            self.assertIn("database is locked", self.why_another_cannot_write(path_of(current_store())))

    @sqlite_only("the copy is a file")
    def test_others_wait_while_what_was_made_beside_the_store_is_put_in_place(self):
        self.write("One")
        path = path_of(current_store())
        with temporary_copy(current_store()):
            follow(path, up_to=1)
            with attached(path, write=True), transaction.atomic(using=require_current_alias()):
                self.assertIn("database is locked", self.why_another_cannot_write(path))
        self.assertEqual(self.why_another_cannot_write(path), "")

    def test_a_redaction_does_not_bring_back_what_another_took_out_meanwhile(self):
        written = self.write("One", "First tin, then zinc.")
        found = find_places(RedactionSelect(text="zinc"))
        self.redact(text="tin")
        with self.assertRaisesRegex(Conflict, "preview the redaction again"):
            log.redact_payloads(found.payloads(), what="zinc", seen=found.erasure)
        self.assertEqual(self.memory(written).content, "First [REDACTED:removed], then zinc.")

    def test_a_view_of_the_past_that_is_open_shows_no_more_of_it(self):
        written = self.write("One", f"It is {WORD}.")
        with as_of(written):
            self.assertIn(WORD, self.memory(written).content)
        self.redact(text=WORD)
        with as_of(written):
            self.assertNotIn(WORD, self.memory(written).content)

    @sqlite_only("the copy is a file")
    def test_the_copy_that_is_worked_in_has_no_name(self):
        with temporary_copy(current_store()):
            self.assertEqual(list((self.home / "cache" / "views").glob(".draft-*")), [])

    def test_what_a_process_that_died_left_in_the_files_is_wiped(self):
        self.write("One", f"It is {WORD}.")
        found = find_places(RedactionSelect(text=WORD))
        log.redact_payloads(found.payloads(), what="a word", seen=found.erasure)
        self.assertTrue(is_unwiped())
        self.assertTrue(self.places_with(WORD))
        self.assertEqual(wipe(Run(seconds=60)), "removed erased text from the store's files")
        self.assertEqual(self.places_with(WORD), [])
        self.assertEqual((is_unwiped(), wipe(Run(seconds=60))), (False, ""))
