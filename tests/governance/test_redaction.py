"""Redaction: the matches and their preview, what is left afterwards, and what happens at the same time."""

from __future__ import annotations

import gzip
import inspect
import io
import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import SimpleTestCase, tag
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from selenium.webdriver.common.keys import Keys

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.jobs import look_for_secrets, wipe
from governance.models import Redaction
from governance.redaction.copies import last_look, search_folder
from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.selectors import find_places
from governance.redaction.service import preview_redaction, redact
from memories import selectors, services
from memories.models import ContextPack, Memory, Tag
from memories.pack.service import pack_context
from memories.schemas import MemorySearch, MemoryUpdate, MemoryWrite
from memories.schemas.links import TagCreate
from memories.schemas.query import ContextPackRequest
from memories.services.links import create_tag
from memoryhub import env
from memoryhub.config.current_settings import project_settings
from memoryhub.core import log, spool
from memoryhub.core.backends.sqlite.copies import attached, temporary_copy
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import ConfirmationRequired, ConflictError, Invalid, Locked, NotFound
from memoryhub.core.jobs import Run
from memoryhub.core.log.copy import StoreDraft
from memoryhub.core.log.erase import is_unwiped
from memoryhub.core.log.views import as_of
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import flat
from memoryhub.ops.serving import drain
from sessions_app.schemas import CommitRead, EventAppend, SessionStart, SettingsChange, TurnBegin
from sessions_app.services import record_commit, start_session
from sessions_app.services.profile import change_settings
from sessions_app.services.turns import append_event, begin_turn
from tests import tampering
from tests.admin.base import AdminTestCase, text_of
from tests.admin.browser import BrowserTestCase
from tests.api.client import RestTestCase
from tests.databases import on_postgresql, sqlite_only
from tests.hook.client import run_hook, spooled, wait_for_spooled
from tests.support import HubTestCase, make_git_folder


class RedactionTestCase(HubTestCase):
    """Works in alpha, as ada."""

    # What is selected unless a call says otherwise
    selection: ClassVar[dict[str, Any]] = {}

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    def write(self, title: str, content: str = "", **fields: Any) -> int:
        return services.write_memory(command=MemoryWrite(title=title, content=content or title, **fields)).id

    def update(self, memory_id: int, **fields: Any) -> None:
        services.update_memory(command=MemoryUpdate(id=memory_id, **fields))

    def capture(self, *events: tuple[str, dict[str, Any]], purpose: str = "") -> None:
        start_session(command=SessionStart(session_id="s-1", purpose=purpose))
        turn = begin_turn(command=TurnBegin(session_id="s-1", turn_id="t-1"))
        for name, payload in events:
            append_event(command=EventAppend(type=name, payload=payload, ack_token=turn.ack_token))

    def memory(self, memory_id: int) -> Memory:
        memory: Memory = Memory.objects.get(id=memory_id)
        return memory

    def preview(self, **fields: Any) -> RedactionPreview:
        return preview_redaction(command=RedactionSelect(**{**self.selection, **fields}))

    def redact(self, reason: str = "", **fields: Any) -> RedactionDone:
        token = self.preview(**fields).confirm_token
        return redact(command=RedactionRun(**{**self.selection, **fields}, confirm_token=token, reason=reason))

    def run_with(self, token: str | None) -> RedactionDone:
        return redact(command=RedactionRun(**self.selection, confirm_token=token))

    def assert_gone(self, word: str) -> None:
        self.assertEqual(self.places_with(word), [])
        self.assert_sound()

    def places_with(self, word: str) -> list[str]:
        """Return the files of the home, and the tables, that have the word in lower case."""
        files = (path for path in self.home.rglob("*") if path.is_file())
        names = [str(Path(path).relative_to(self.home)) for path in files if word.encode() in path.read_bytes().lower()]
        return [*names, *tampering.tables_with(word)]


_TRY_TO_WRITE = """
import sys
from memoryhub.core.backends.sqlite import options
options.install()
import sqlite3
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
"""

WORD = "marmaladeish"


class RedactionTests(RedactionTestCase):
    selection = {"text": WORD}

    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write(f"The {WORD} tank", f'It was "{WORD}", says {WORD}.', attributes={})
        self.update(self.memory_id, content=f"Now {WORD} again.", tags=[WORD])
        choice = DecisionRecord(title="Feed twice", chosen="Twice", rationale=f"{WORD} said so")
        self.decision = record_decision(command=choice).id
        self.capture(
            ("message.user", {"content": f"Who is {WORD}?"}),
            ("message.tool", {"tool": "grep", "input": {WORD: [f"-e {WORD}"]}, "output": "none"}),
            ("message.assistant", {"content": "No idea."}),
            purpose=f"Ask {WORD}",
        )
        self.write("Another", "It stays as it is.")
        pack_context(command=ContextPackRequest(max_tokens=900))

    @tag("backend")
    def test_the_preview_shows_every_place_and_copy_and_changes_nothing(self):
        before = log.head()
        preview = self.preview()
        self.assertEqual((preview.events, preview.finds, preview.entities), (6, 11, 4))
        fields = {"title", "content", "tags[0]", "rationale", "purpose", f"input.{WORD}[0]", "input"}
        self.assertEqual({place.field for place in preview.places}, fields)
        first = preview.places[0]
        self.assertEqual(first.before[slice(*first.marked[0])], WORD)
        self.assertIn("[REDACTED:removed]", first.after)
        self.assertEqual(preview.copies["versions of memories"], 2)
        self.assertGreaterEqual(preview.copies["search documents"], 3)
        self.assertEqual(preview.copies["context packs that include it"], 1)
        self.assertEqual(log.head(), before)

    def test_afterwards_nothing_of_the_hub_has_it(self):
        self.assertTrue(self.places_with(WORD))
        done = self.redact()
        self.assertEqual((done.events, done.left), (6, []))
        self.assertGreater(done.searched_bytes, 100_000)
        self.assert_gone(WORD[:10])

    @tag("backend")
    def test_everything_else_stands_as_it_was(self):
        self.redact("it is a name", label="name")
        memory = self.memory(self.memory_id)
        self.assertEqual((memory.content, memory.version), ("Now [REDACTED:name] again.", 2))
        self.assertEqual(selectors.search(command=MemorySearch(query="feed twice")).results[0]["id"], self.decision)
        self.assertEqual(selectors.search(command=MemorySearch(query=WORD)).results, [])
        done = Redaction.objects.get()
        record = (done.what, done.reason, done.events, done.actor)
        self.assertEqual(record, ("a text called name", "it is a name", 7, "ada"))

    def test_it_needs_the_token_of_what_would_be_done_now(self):
        token = self.preview().confirm_token
        self.write("One more", f"Also {WORD}.")
        for wrong in (None, token, "0" * 16):
            with self.assertRaises(ConfirmationRequired):
                self.run_with(wrong)
        self.assertTrue(self.places_with(WORD))

    def test_by_pattern_whatever_the_case(self):
        self.assertEqual(self.preview(text=None, pattern="MARMALADE[a-z]+", ignore_case=True).finds, 11)
        self.redact(text=None, pattern=r"\bmarmalade[a-z]+\b")
        self.assert_gone(WORD)

    def test_only_in_what_was_selected(self):
        for fields in (
            {"search": "feed twice", "ids": [self.decision]},
            {"event_types": ["message.user"]},
        ):
            self.assertEqual(self.preview(**fields).events, 1, fields)
        self.assertEqual(self.preview(ids=[self.memory_id]).events, 2)
        self.redact(ids=[self.memory_id])
        self.assertEqual(self.preview().events, 4)

    def test_whole_things_go_altogether(self):
        message = self.preview(event_types=["message.user"]).places[0].position
        selection: dict[str, Any] = {"text": None, "whole": True, "ids": [self.decision, message]}
        self.assertEqual(self.preview(**selection).events, 2)
        done = self.redact(**selection)
        self.assertEqual((done.id, done.events), (None, 2))
        self.assertEqual(self.preview().events, 4)
        self.assert_sound()

    def test_a_backup_and_another_store_that_hold_it_are_named_and_left_alone(self):
        backup = self.home / "backups" / "alpha.db"
        backup.parent.mkdir(exist_ok=True)
        backup.write_bytes(b"... " + WORD.encode())
        with self.store("beta"):
            self.write("Of beta", f"{WORD} too.")
        left = {file.where: file.why for file in self.redact().left}
        # In PostgreSQL, the role of a store may not read another
        beta = set() if on_postgresql() else {"projects/beta/events.db-wal"}
        self.assertEqual(set(left), {"backups/alpha.db", *beta})
        self.assertIn("an earlier backup", left["backups/alpha.db"])
        with self.store("beta"):
            self.assertEqual(self.preview().events, 1)

    def test_a_name_in_the_headers_is_named_in_the_preview(self):
        with use_origin(actor=f"{WORD}-bot"):
            self.write("By a bot", f"{WORD} again")
        (kept,) = self.preview().kept
        self.assertIn("actor of events", kept.where)

    def test_rules_that_have_grown_find_what_was_kept_before(self):
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
        with self.assertRaisesRegex(NotFound, "no match in this store"):
            self.preview(text=None, rules=True)
        self.assertIn("no matches in stored events", look_for_secrets(Run(seconds=60)))
        position = self.write("Deploy", "With the key PLACE-OF-THE-KEY.")
        payload = json.loads(RawEvent.objects.get(position=position).payload_json)
        log.redact_payloads({position: {**payload, "content": f"The key {secret}."}}, what="a test that puts one in")
        self.assertEqual(look_for_secrets(Run(seconds=60)), "")
        change_settings(command=SettingsChange(settings={"secret_allow": ["marmalade-2"]}))
        self.assertIn("find 1 match in 1 event;", look_for_secrets(Run(seconds=60)))
        preview = self.preview(text=None, rules=True)
        (place,) = preview.places
        self.assertEqual((preview.events, place.before[slice(*place.marked[0])]), (1, secret))
        self.redact(text=None, rules=True)
        look = last_look()
        self.assertEqual((look.finds, look.is_current) if look else None, (0, True))
        self.assert_gone(secret.lower())

    def test_what_makes_no_sense_is_refused(self):
        for fields in (
            {},
            {"text": WORD, "pattern": "x"},
            {"whole": True},
            {"text": "x"},
            {"text": WORD, "label": "No Label"},
        ):
            with self.subTest(fields=fields), self.assertRaises(ValidationError):
                RedactionSelect(**fields)
        for pattern in ("(", "a*", "x{1,2000}"):
            with self.subTest(pattern=pattern), self.assertRaises(Invalid):
                self.preview(text=None, pattern=pattern)


class SpoolTests(RedactionTestCase):
    selection = {"text": WORD}

    def setUp(self) -> None:
        super().setUp()
        for project in ("alpha", "beta"):
            make_git_folder(self.home / "work" / project)
        self.keep(1, f"Ask {WORD} about it")
        self.keep(2, "Ask nobody")
        self.keep(3, f"Of another project: {WORD}", project="beta")

    def keep(self, number: int, prompt: str, *, project: str = "alpha", **payload: object) -> None:
        folder = str(self.home / "work" / project)
        data = {"prompt": prompt, "session_id": f"s-{project}", "cwd": folder, **payload}
        event: dict[str, Any] = {"client": "claude-code", "event": "UserPromptSubmit", "payload": data}
        spool.append(spool.SpooledEvent(id=f"hook-{number}", at=number, **event))

    def lines(self) -> list[str]:
        return sorted(spool.each_line())

    def prompts(self) -> list[str]:
        drain.drain()
        events = RawEvent.objects.filter(event_type="message.user").order_by("position")
        return [json.loads(event.payload_json)["content"] for event in events]

    def test_it_is_counted_and_taken_out_and_every_other_line_stays_as_it_was(self):
        before = self.lines()
        preview = self.preview()
        self.assertEqual((preview.events, preview.finds, preview.spooled), (0, 1, 1))
        self.assertEqual(preview.copies["events in the spool"], 1)
        self.assertIn("redact 1 match in 0 events and 1 event in the spool", preview.question)
        self.assertEqual(self.lines(), before)
        done = self.redact()
        self.assertEqual((done.id, done.events, done.finds, done.spooled), (None, 0, 1, 1))
        self.assertEqual(*([line for line in lines if "hook-1" not in line] for lines in (self.lines(), before)))
        self.assertEqual(self.prompts(), ["Ask [REDACTED:removed] about it", "Ask nobody"])
        with self.store("beta"):
            self.assertEqual(self.prompts(), [f"Of another project: {WORD}"])

    def test_the_event_stays_in_its_project_where_the_folder_has_the_word(self):
        (self.home / "work" / WORD).mkdir()
        (self.home / "work" / WORD / ".memory-hub.toml").write_text('project = "alpha"\n')
        self.keep(4, "From there", project=WORD)
        self.redact()
        self.assertEqual(self.prompts()[2], "From there")

    def test_what_was_set_aside_taken_or_left_by_a_killed_process_is_cleaned_too(self):
        self.keep(5, f"{WORD} of no folder", cwd="relative", session_id="s-2")
        drain.drain()  # sets that line aside, and takes the others in
        self.keep(6, f"{WORD} again")
        with spool.taking():
            spool.take()
        (spool.folder() / ".2026-11-20-1.jsonl.taken.99").write_text(f"half a line with {WORD}")
        with next(spool.folder().glob("*.taken")).open("a") as file:
            file.write(f"no JSON, but {WORD}\n")
        self.redact()
        holding = [path.name for path in spool.folder().rglob("*") if path.is_file() and WORD in path.read_text()]
        self.assertEqual(holding, [])
        self.assertEqual(self.prompts()[-1], "[REDACTED:removed] again")

    def test_a_selection_of_some_events_names_what_it_leaves(self):
        memory = self.write("Who", f"{WORD} did.")
        pack_context(command=ContextPackRequest(query=f"what did {WORD} do"))
        kept = {share.where for share in self.preview(ids=[memory]).kept}
        self.assertEqual(kept, {"the query of 1 context pack", "1 hook event in the spool"})
        self.assertEqual(self.redact(ids=[memory]).spooled, 0)
        self.assertEqual(self.preview().spooled, 1)

    def test_a_text_of_two_lines_is_matched_in_the_question_of_a_pack(self):
        text = f"{WORD}\n  of the north"
        self.write("Who", text)
        pack_context(command=ContextPackRequest(query=f"tell me of {text}"))
        types = {place.event_type for place in self.preview(text=text).places}
        self.assertEqual(types, {"memory.written", "context.packed"})
        self.redact(text=text)
        self.assertEqual(ContextPack.objects.get().query, "tell me of [REDACTED:removed]")

    def test_what_is_erased_whole_leaves_packs_and_the_spool_as_well(self):
        content = f"The tank of {WORD} leaks at the northern valve"
        memory = self.write("Tank", content)
        pack_context(command=ContextPackRequest(query="what leaks at the northern valve"))
        self.keep(8, f"Remember: {content}!")
        preview = self.preview(text=None, whole=True, ids=[memory])
        self.assertEqual((preview.spooled, preview.copies["context packs whose query quotes it"]), (1, 1))
        done = self.redact(text=None, whole=True, ids=[memory])
        self.assertEqual((done.spooled, ContextPack.objects.count()), (1, 0))
        self.assertIn("Remember: [REDACTED:erased]!", self.prompts())
        self.assert_sound()

    def test_while_the_hub_takes_for_long_or_once_the_spool_has_more_it_is_refused_and_nothing_is_changed(self):
        before, token = self.lines(), self.preview().confirm_token
        self.enterContext(mock.patch.object(inspect.unwrap(spool.taking), "__kwdefaults__", {"seconds": 0}))
        with spool.only_taker(), self.assertRaises(Locked):
            self.run_with(token)
        self.assertEqual(self.lines(), before)
        self.keep(7, f"And {WORD}")
        with self.assertRaises(ConfirmationRequired):
            self.run_with(token)
        self.assertEqual(len(self.lines()), len(before) + 1)


class AnyTextTests(RedactionTestCase):
    def test_whatever_is_taken_out_chain_and_rebuild_hold(self):
        @settings(max_examples=10, deadline=None)  # each redaction is proven by a process
        @given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=4), st.text(min_size=2, max_size=4))
        def check(texts: list[str], wanted: str) -> None:
            for text in texts:
                self.write("T", f"{text} {wanted}", if_exists="update")
            try:
                self.redact(text=wanted)
            except NotFound:
                return  # sanitising took it out already, as it does with what cannot be stored
            self.assert_sound()
            with self.assertRaises(NotFound):
                self.preview(text=wanted)

        check()


class WhatIsTextTests(RedactionTestCase):
    def test_two_keys_that_become_one_keep_both_values(self):
        self.capture(("message.tool", {"tool": "grep", "input": {"quince-1": "red", "quince-2": "blue"}}))
        self.redact(pattern="quince-[0-9]")
        payload = json.loads(RawEvent.objects.get(event_type="message.tool").payload_json)
        self.assertEqual(sorted(payload["input"].values()), ["blue", "red"])
        self.assert_sound()

    def test_a_word_that_is_a_field_s_name_or_value_too_goes_where_it_is_text(self):
        memory_id = self.write(
            "The content and its title", "Any guideline.", kind="guideline", attributes={"priority": 5}
        )
        kept = next(place for place in self.preview(text="guideline").kept if place.where == "kind of memory.written")
        self.assertIn("fixed form", kept.why)
        for word in ("title", "content", "guideline"):
            self.redact(text=word)
        memory = self.memory(memory_id)
        self.assertEqual(memory.title, "The [REDACTED:removed] and its [REDACTED:removed]")
        self.assertEqual((memory.content, memory.kind), ("Any [REDACTED:removed].", "guideline"))
        self.assert_sound()

    def test_what_is_no_text_of_anybody_s_stays_so_that_the_rest_can_go(self):
        change_settings(command=SettingsChange(settings={"turn_policy": "auto", "review_after": {"guideline": 9}}))
        text = "On auto, a guideline is found, with examples of 2026."
        memory_id = self.write("A tool", text, kind="tool", attributes={"constraints": text, "examples": []})
        sha = "a1b2c3d4e5f6a7b8c9d0" * 2
        record_commit(command=CommitRead(sha=sha, message=text, committed_at="2026-01-02T03:04:05Z"))
        for word in ("auto", "guideline", "found", "examples", "2026"):
            self.redact(text=word)
        memory = self.memory(memory_id)
        self.assertEqual(memory.content.count("[REDACTED:removed]"), 5)
        self.assertEqual(list(memory.attributes), ["constraints", "examples"])
        settings = project_settings()
        self.assertEqual((settings.turn_policy, settings.review_after), ("auto", {"guideline": 9}))
        self.assert_sound()

    def test_a_name_of_a_session_stays_as_the_headers_do(self):
        start_session(command=SessionStart(session_id=f"s-{WORD}", purpose=f"Ask {WORD}"))
        self.redact(text=WORD)
        sessions = rows.fetch("SELECT session_id, purpose FROM sessions_app_session")
        self.assertEqual(sessions, [(f"s-{WORD}", "Ask [REDACTED:removed]")])
        self.assert_sound()

    def test_a_text_that_somebody_wrote_as_a_tag_goes_too(self):
        memory_id = self.write("Tags", f"Of [REDACTED:{WORD}], key=open [REDACTED:foo] sesame.")
        self.redact(text=WORD)
        self.redact(pattern="key=.*sesame")
        self.assertEqual(self.memory(memory_id).content, "Of [REDACTED:removed], [REDACTED:removed].")

    def test_a_replacement_is_never_matched_again(self):
        memory_id = self.write("Tags", "Two REDACTED things were removed.")
        self.redact(pattern="[a-zA-Z]+", ids=[memory_id])
        with self.assertRaises(NotFound):
            self.preview(pattern="[a-zA-Z]+", ids=[memory_id])

    def test_a_text_with_any_letters_goes(self):
        for text in ('say "hi\\there"', "one\ntwo\tthree", "👩‍👩‍👧 kin", "e\u0301clair", "bell\x07x", "a\u2028b"):
            with self.subTest(text=text):
                self.write(f"About {flat(text)}", f"{text}{text}", tags=["x"])
                self.assertEqual(self.redact(text=text).left, [])
        self.assert_sound()


class LimitTests(RedactionTestCase):
    def test_what_becomes_too_long_is_cut(self):
        memory_id = self.write("zq " * 66 + "zq", "Long")
        self.redact(text="zq")
        self.assertEqual(len(self.memory(memory_id).title), 300)
        self.assert_sound()

    def test_names_that_only_one_may_have_stay_apart(self):
        one, two = (self.write(f"Of {character}", topic_key=f"initech-{character}") for character in "12")
        for character in "12":
            create_tag(command=TagCreate(name=f"umbrella-{character}"))
        self.redact(pattern="(initech|umbrella)-[0-9]")
        self.assertNotEqual(self.memory(one).topic_key, self.memory(two).topic_key)
        self.assertEqual(Tag.objects.filter(name__contains="[redacted:removed]").count(), 2)
        self.assert_sound()

    def test_neither_label_nor_reason_may_hold_it(self):
        self.write(f"The {WORD} tank")
        with self.assertRaisesRegex(Invalid, "label contains"):
            self.preview(text=WORD, label=f"not-{WORD}")
        with self.assertRaisesRegex(Invalid, "reason contains"):
            self.redact(text=WORD, reason=f"{WORD} has asked")
        self.assertTrue(self.places_with(WORD))

    def test_the_reason_of_what_went_before_is_text(self):
        self.redact(whole=True, ids=[self.write("Another thing")], reason=f"{WORD} has asked")
        self.write("A third thing of tin")
        self.redact(text="tin", reason=f"{WORD} has asked again")
        self.assertEqual(self.redact(text=WORD).events, 2)
        self.assert_gone(WORD)


class WholeTests(RedactionTestCase):
    def test_all_that_goes_with_what_was_selected_is_shown_and_nothing_more_is_erased(self):
        memory_id = self.write("One", "First")
        token = self.preview(whole=True, ids=[memory_id]).confirm_token
        self.update(memory_id, content="Second")
        with self.assertRaises(ConfirmationRequired):
            redact(command=RedactionRun(whole=True, ids=[memory_id], confirm_token=token))
        for fields in ({"ids": [memory_id + 1]}, {"ids": [memory_id], "event_types": ["memory.revised"]}):
            with self.subTest(fields=fields):
                self.assertEqual(self.preview(whole=True, **fields).events, 2)
        self.assertEqual(self.redact(whole=True, ids=[memory_id + 1]).events, 2)

    def test_the_proof_finds_a_long_text_elsewhere(self):
        long = " ".join(f"line {number} of the recipe" for number in range(1_000))
        self.write("Copy", f"As said: {long}")
        done = self.redact(whole=True, ids=[self.write("One", long)])
        tables = ["the table memories_memory", "the table raw_events"]
        places = tables if on_postgresql() else ["projects/alpha/events.db"]
        self.assertEqual([place.where for place in done.left], places)
        self.assertIn("elsewhere in this store", done.left[0].why)


class CompressedCopiesTests(SimpleTestCase):
    def test_they_are_searched_whatever_their_names(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        text = b'{"title":"the launch word is heliotrope"}\n'
        bundle, earlier, damaged = (folder / name for name in ("a.bundle", "b.copy", "c.gz"))
        bundle.write_bytes(gzip.compress(text))
        earlier.write_bytes(b"memory-hub-bundle 1\n{}\n" + zlib.compress(text) + b"0" * 64 + b"\n")
        damaged.write_bytes(b"\x1f\x8b no such file after all")
        self.assertEqual(search_folder(folder, {"heliotrope"}).paths, [bundle, earlier])


class AtTheSameTimeTests(RedactionTestCase):
    def why_another_cannot_write(self, path: Path) -> str:
        command = [sys.executable, "-c", _TRY_TO_WRITE, str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr

    @sqlite_only("a process loses a file's locks when it closes the file")
    def test_the_proof_leaves_this_process_its_locks(self):
        self.write("One")
        with log.transaction():
            rows.execute("UPDATE store_meta SET value = value")
            search_folder(env.home(), {WORD})
            self.assertIn("database is locked", self.why_another_cannot_write(path_of(current_store())))

    @sqlite_only("the copy is a file")
    def test_others_wait_while_a_copy_without_a_name_is_put_in_place(self):
        self.write("One")
        path = path_of(current_store())
        with temporary_copy(current_store()):
            self.assertEqual(list((self.home / "cache" / "views").glob(".draft-*")), [], "the copy has a name")
            StoreDraft(path).fill()
            with attached(path, write=True), transaction.atomic(using=require_current_alias()):
                self.assertIn("database is locked", self.why_another_cannot_write(path))
        self.assertEqual(self.why_another_cannot_write(path), "")

    def test_a_redaction_does_not_bring_back_what_another_took_out_meanwhile(self):
        memory_id = self.write("One", "First tin, then zinc.")
        places = find_places(RedactionSelect(text="zinc"))
        self.redact(text="tin")
        with self.assertRaisesRegex(ConflictError, "preview the redaction again"):
            log.redact_payloads(places.payloads(), what="zinc", seen=places.erasure)
        self.assertEqual(self.memory(memory_id).content, "First [REDACTED:removed], then zinc.")

    def test_a_view_of_the_past_that_is_open_shows_no_more_of_it(self):
        memory_id = self.write("One", f"It is {WORD}.")
        with as_of(memory_id):
            self.assertIn(WORD, self.memory(memory_id).content)
        self.redact(text=WORD)
        with as_of(memory_id):
            self.assertNotIn(WORD, self.memory(memory_id).content)

    def test_what_a_process_that_died_left_in_the_files_is_wiped(self):
        self.write("One", f"It is {WORD}.")
        found = find_places(RedactionSelect(text=WORD))
        log.redact_payloads(found.payloads(), what="a word", seen=found.erasure)
        self.assertTrue(is_unwiped())
        self.assertTrue(self.places_with(WORD))
        self.assertEqual(wipe(Run(seconds=60)), "removed erased text from the store's files")
        self.assertEqual(self.places_with(WORD), [])
        self.assertEqual((is_unwiped(), wipe(Run(seconds=60))), (False, ""))


REDACTION = "governance/redaction/"


class RedactionPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write(f"The {WORD} tank", f"It was <b>{WORD}</b>, and it held 400 litres.")

    def look(self, **fields: Any) -> str:
        return self.post(REDACTION, **{"way": "text", "target": WORD, **fields})

    def test_it_is_previewed_and_done_once_the_word_is_typed(self):
        preview = self.look(label="name")
        self.assertIn("Permanently redact 2 matches in 1 event?", text_of(preview))
        raw = self.client.post(self.address(REDACTION), {"way": "text", "target": WORD}).content.decode()
        self.assertIn(f"It was &lt;b&gt;<del>{WORD}</del>", raw)
        self.assertIn("No match in this store", text_of(self.look(project="beta")))
        token = preview.partition('name="confirm_token" value="')[2].partition('"')[0]
        fields = {"way": "text", "target": WORD, "label": "name", "reason": "A customer's.", "typed": "redact"}
        for changes, sentence in (
            ({"confirm_token": token, "typed": "yes"}, "Type redact to confirm. Nothing was changed."),
            ({"confirm_token": "0" * 16}, "The log has changed since the preview"),
        ):
            self.assertIn(sentence, text_of(self.post(f"{REDACTION}run/", **{**fields, **changes})))
        self.assertEqual(self.memory(self.memory_id).title, f"The {WORD} tank")
        page = text_of(self.post(f"{REDACTION}run/", **fields, confirm_token=token))
        self.assert_shows(
            page, "Redacted 2 matches in 1 event, then searched", "No copy was found", "A customer's.", where="the page"
        )
        self.assertEqual(self.memory(self.memory_id).title, "The [REDACTED:name] tank")

    def test_what_is_wrong_is_shown_in_one_sentence(self):
        for fields, sentence in (
            ({"target": ""}, "'text' must have at least 2 characters"),
            ({"way": "pattern", "target": "("}, "not a valid RE2 expression"),
            ({"ids": "four"}, "must be a whole number"),
        ):
            with self.subTest(fields=fields):
                self.assertIn(sentence, text_of(self.look(**fields)))


class RedactionRestTests(RestTestCase):
    def test_routes_preview_confirm_and_list(self):
        self.write("A", f"It was {WORD}.")
        path = "projects/alpha/redactions"
        refused = self.call("POST", path, {"text": WORD}, expect=409).data
        self.assertEqual(refused["code"], "confirmation_required")
        token = self.call("POST", f"{path}/preview", {"text": WORD}).data["confirm_token"]
        done = self.call("POST", path, {"text": WORD, "confirm_token": token}).data
        self.assertEqual((done["events"], done["left"]), (1, []))
        self.assertEqual([item["events"] for item in self.call("GET", path).data["results"]], [1])
        self.call("POST", path, {}, expect=422)


class RedactionCommandTests(AdminTestCase):
    def run_command(self, *arguments: str, stdin: str = "") -> str:
        out = io.StringIO()
        with mock.patch.object(sys, "stdin", io.StringIO(stdin)):
            call_command("redact", "--project", "alpha", *arguments, stdout=out)
        return out.getvalue()

    def test_it_shows_first_and_does_with_the_token(self):
        memory_id = self.write("A tank", f"It was {WORD}.")
        output = self.run_command("--text", "-", stdin=f"{WORD}\n")
        self.assertIn(f"- It was {WORD}.", output)
        token = output.strip().rpartition(" ")[2]
        with self.assertRaisesRegex(CommandError, "does not match the current matches; preview again"):
            self.run_command("--text", WORD, "--confirm", "0" * 16)
        self.assertIn(WORD, self.memory(memory_id).content)
        output = self.run_command("--text", WORD, "--confirm", token)
        self.assertRegex(output, r"redacted 1 match in 1 event; searched \d+ files .*: 0 still contain it")
        with self.assertRaisesRegex(CommandError, "no match in this store"):
            self.run_command("--text", WORD)

    def test_an_event_in_the_spool_is_captured_first_and_redacted_in_the_log(self):
        answer = {"session_id": "s-1", "cwd": str(self.home), "last_assistant_message": f"Ask {WORD}"}
        run_hook(self.home, "Stop", answer, "--project", "alpha")
        wait_for_spooled(self.home)
        output = self.run_command("--text", WORD)
        self.assertIn("1 match in 1 event of 1 item", output)
        self.assertEqual(spooled(self.home), [])
        output = self.run_command("--text", WORD, "--confirm", output.strip().rpartition(" ")[2])
        self.assertRegex(output, r"redacted 1 match in 1 event; .*: 0 still contain it")


class RedactionBrowserTests(BrowserTestCase):
    def test_by_keyboard_alone(self):
        path = f"projects/{self.project}/memories"
        for title in ("A", "B"):
            self.rest("POST", path, {"title": title, "content": f"{title} was {WORD}."})
        self.open(REDACTION)
        self.tab_to("target")
        self.press(WORD)
        self.tab_to("Preview")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Permanently redact 2 matches in 2 events?")
        self.tab_to("typed")
        self.press("redact")
        self.tab_to("Redact permanently")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Redacted 2 matches in 2 events, then searched")
        self.see("A text called removed")
        contents = [memory["content"] for memory in self.server.api("GET", path).json()["results"]]
        self.assertEqual({text[1:] for text in contents}, {" was [REDACTED:removed]."})
