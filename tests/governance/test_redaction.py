from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.jobs import look_for_secrets
from governance.models import Redaction
from governance.redaction.copies import last_look
from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories import selectors, services
from memories.models import ContextPack, Memory
from memories.pack.service import pack_context
from memories.schemas import MemorySearch, MemoryUpdate, MemoryWrite
from memories.schemas.query import ContextPackRequest
from memoryhub.core import log, spool
from memoryhub.core.errors import ConfirmationRequired, Invalid, Locked, NotFound
from memoryhub.core.jobs import Run
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.ops.serving import drain
from sessions_app.schemas import EventAppend, SessionStart, SettingsChange, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.profile import change_settings
from sessions_app.services.turns import append_event, begin_turn
from tests import tampering
from tests.databases import on_postgresql
from tests.support import HubTestCase

WORD = "marmaladeish"


class RedactionTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.memory = self.write(f"The {WORD} tank", f'It was "{WORD}", says {WORD}.', attributes={})
        services.update_memory(command=MemoryUpdate(id=self.memory, content=f"Now {WORD} again.", tags=[WORD]))
        self.decision = record_decision(
            command=DecisionRecord(title="Feed twice", chosen="Twice", rationale=f"{WORD} said so")
        ).id
        start_session(command=SessionStart(session_id="s-1", purpose=f"Ask {WORD}"))
        turn = begin_turn(command=TurnBegin(session_id="s-1", turn_id="t-1"))
        for name, payload in (
            ("message.user", {"content": f"Who is {WORD}?"}),
            ("message.tool", {"tool": "grep", "input": {WORD: [f"-e {WORD}"]}, "output": "none"}),
            ("message.assistant", {"content": "No idea."}),
        ):
            append_event(command=EventAppend(type=name, payload=payload, ack_token=turn.ack_token))
        self.write("Another", "It stays as it is.")
        pack_context(command=ContextPackRequest(max_tokens=900))

    def write(self, title: str, content: str, **fields: object) -> int:
        return services.write_memory(command=MemoryWrite(title=title, content=content, **fields)).id

    def preview(self, **fields: object) -> RedactionPreview:
        return preview_redaction(command=RedactionSelect(**{"text": WORD, **fields}))

    def redact(self, **fields: object) -> RedactionDone:
        selection = {"text": WORD, **fields}
        token = preview_redaction(command=RedactionSelect(**selection)).confirm_token
        return redact(command=RedactionRun(**selection, confirm_token=token, reason="it is a name"))

    def places_with(self, word: str) -> list[Path | str]:
        files = (path for path in self.home.rglob("*") if path.is_file())
        return [
            *(path for path in files if word.encode() in path.read_bytes().lower()),
            *tampering.tables_with(word),
        ]

    def test_the_preview_shows_every_place_and_copy_and_changes_nothing(self):
        before = log.head()
        shown = self.preview()
        self.assertEqual((shown.events, shown.finds, shown.entities), (6, 11, 4))
        self.assertEqual(
            {place.field for place in shown.places},
            {"title", "content", "tags[0]", "rationale", "purpose", f"input.{WORD}[0]", "input"},
        )
        first = shown.places[0]
        self.assertEqual(first.before[slice(*first.marked[0])], WORD)
        self.assertIn("[REDACTED:removed]", first.after)
        self.assertEqual(shown.copies["versions of memories"], 2)
        self.assertGreaterEqual(shown.copies["search documents"], 3)
        self.assertEqual(shown.copies["context packs that include it"], 1)
        self.assertEqual(log.head(), before)

    def test_afterwards_nothing_of_the_hub_has_it(self):
        self.assertTrue(self.places_with(WORD))
        done = self.redact()
        self.assertEqual((done.events, done.left), (6, []))
        self.assertGreater(done.searched_bytes, 100_000)
        self.assertEqual(self.places_with(WORD[:10]), [])
        self.assertTrue(log.verify().ok)
        self.assertTrue(log.rebuild().identical)

    def test_everything_else_stands_as_it_was(self):
        self.redact(label="name")
        memory = Memory.objects.get(id=self.memory)
        self.assertEqual((memory.content, memory.version), ("Now [REDACTED:name] again.", 2))
        self.assertEqual(selectors.search(command=MemorySearch(query="feed twice")).results[0]["id"], self.decision)
        self.assertEqual(selectors.search(command=MemorySearch(query=WORD)).results, [])
        done = Redaction.objects.get()
        self.assertEqual(
            (done.what, done.reason, done.events, done.actor), ("a text called name", "it is a name", 7, "ada")
        )

    def test_it_needs_the_token_of_what_would_be_done_now(self):
        token = self.preview().confirm_token
        self.write("One more", f"Also {WORD}.")
        for given_token in (None, token, "0" * 16):
            with self.assertRaises(ConfirmationRequired):
                redact(command=RedactionRun(text=WORD, confirm_token=given_token))
        self.assertTrue(self.places_with(WORD))

    def test_by_pattern_whatever_the_case(self):
        self.assertEqual(self.preview(text=None, pattern="MARMALADE[a-z]+", ignore_case=True).finds, 11)
        self.redact(text=None, pattern=r"\bmarmalade[a-z]+\b")
        self.assertEqual(self.places_with(WORD), [])

    def test_only_in_what_was_selected(self):
        self.assertEqual(self.preview(ids=[self.memory]).events, 2)
        self.assertEqual(self.preview(search="feed twice", ids=[self.decision]).events, 1)
        self.assertEqual(self.preview(event_types=["message.user"]).events, 1)
        self.redact(ids=[self.memory])
        self.assertEqual(self.preview().events, 4)

    def test_whole_things_go_altogether(self):
        message = self.preview(event_types=["message.user"]).places[0].position
        selection = {"text": None, "whole": True, "ids": [self.decision, message]}
        self.assertEqual(self.preview(**selection).events, 2)
        done = self.redact(**selection)
        self.assertEqual((done.id, done.events), (None, 2))
        self.assertEqual(self.preview().events, 4)
        self.assertTrue(log.rebuild().identical)

    def test_a_backup_that_holds_it_is_told_of_and_left_alone(self):
        backup = self.home / "backups" / "alpha.db"
        backup.parent.mkdir(exist_ok=True)
        backup.write_bytes(b"... " + WORD.encode())
        done = self.redact()
        self.assertEqual([left.where for left in done.left], ["backups/alpha.db"])
        self.assertIn("an earlier backup", done.left[0].why)

    def test_a_name_in_the_headers_is_told_of_before(self):
        with use_origin(actor=f"{WORD}-bot"):
            self.write("By a bot", f"{WORD} again")
        (kept,) = self.preview().kept
        self.assertIn("actor of events", kept.where)

    def test_rules_that_have_grown_find_what_was_kept_before(self):
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
        with self.assertRaisesRegex(NotFound, "no match in this store"):
            self.preview(text=None, rules=True)
        self.assertIn("no matches in stored events", self.look())
        self.smuggle(secret)
        self.assertEqual(self.look(), "")
        change_settings(command=SettingsChange(settings={"secret_allow": ["marmalade-2"]}))
        self.assertIn("find 1 match in 1 event;", self.look())
        shown = self.preview(text=None, rules=True)
        self.assertEqual((shown.events, shown.places[0].before[slice(*shown.places[0].marked[0])]), (1, secret))
        self.redact(text=None, rules=True)
        look = last_look()
        self.assertEqual((look.finds, look.is_current) if look else None, (0, True))
        self.assertEqual(self.places_with(secret.lower()), [])
        self.assertTrue(log.rebuild().identical)

    def look(self) -> str:
        return look_for_secrets(Run(seconds=60))

    def smuggle(self, secret: str) -> None:
        position = self.write("Deploy", "With the key PLACE-OF-THE-KEY.")
        payload = json.loads(RawEvent.objects.get(position=position).payload_json)
        log.redact_payloads(
            {position: {**payload, "content": f"With the key {secret}."}}, what="a test that puts one in"
        )

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

    def test_another_store_is_left_alone(self):
        with self.store("beta"):
            self.write("Of beta", f"{WORD} too.")
        done = self.redact()
        # In PostgreSQL, the role of a store may not read another
        files = [] if on_postgresql() else ["projects/beta/events.db-wal"]
        self.assertEqual([left.where for left in done.left], files)
        with self.store("beta"):
            self.assertEqual(self.preview().events, 1)


class SpoolTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        (self.home / "work" / "alpha").mkdir(parents=True)
        (self.home / "work" / "beta").mkdir()
        self.keep(1, prompt=f"Ask {WORD} about it")
        self.keep(2, prompt="Ask nobody")
        self.keep(3, prompt=f"Of another project: {WORD}", project="beta")
        self.enterContext(self.store("alpha", actor="ada"))

    def keep(self, number: int, *, project: str = "alpha", **payload: object) -> None:
        data = {"session_id": "s-1", "cwd": str(self.home / "work" / project), **payload}
        spool.append(
            spool.SpooledEvent(
                id=f"hook-{number}", at=number, client="claude-code", event="UserPromptSubmit", payload=data
            )
        )

    def lines(self) -> list[str]:
        return sorted(spool.each_line())

    def preview(self, **fields: object) -> RedactionPreview:
        return preview_redaction(command=RedactionSelect(**{"text": WORD, **fields}))

    def redact(self, **fields: object) -> RedactionDone:
        token = self.preview(**fields).confirm_token
        return redact(command=RedactionRun(**{"text": WORD, **fields}, confirm_token=token))

    def prompts(self) -> list[str]:
        drain.drain()
        found = RawEvent.objects.filter(event_type="message.user").order_by("position")
        return [json.loads(event.payload_json)["content"] for event in found]

    def test_a_preview_counts_it_though_the_log_has_nothing(self):
        before = self.lines()
        shown = self.preview()
        self.assertEqual((shown.events, shown.finds, shown.spooled), (0, 1, 1))
        self.assertEqual(shown.copies["events in the spool"], 1)
        self.assertIn("redact 1 match in 0 events and 1 event in the spool", shown.question)
        self.assertEqual(self.lines(), before)

    def test_it_is_taken_out_and_every_other_line_stays_as_it_was(self):
        others = [line for line in self.lines() if "hook-1" not in line]
        done = self.redact()
        self.assertEqual((done.id, done.events, done.finds, done.spooled), (None, 0, 1, 1))
        self.assertEqual([line for line in self.lines() if "hook-1" not in line], others)
        self.assertEqual(self.prompts(), ["Ask [REDACTED:removed] about it", "Ask nobody"])
        with self.store("beta"):
            self.assertEqual(self.prompts(), [f"Of another project: {WORD}"])

    def test_the_event_stays_in_its_project_where_the_folder_has_the_word(self):
        (self.home / "work" / WORD).mkdir()
        (self.home / "work" / WORD / ".memory-hub.toml").write_text('project = "alpha"\n')
        self.keep(4, prompt="From there", project=WORD)
        self.redact()
        self.assertEqual(self.prompts()[2], "From there")

    def test_what_was_set_aside_taken_or_left_by_a_killed_process_is_cleaned_too(self):
        self.keep(5, prompt=f"{WORD} of no folder", cwd="relative", session_id="s-2")
        drain.drain()  # sets that line aside, and takes the others in
        self.keep(6, prompt=f"{WORD} again")
        with spool.taking():
            spool.take()
        (spool.folder() / ".2026-11-20-1.jsonl.taken.99").write_text(f"half a line with {WORD}")
        with next(spool.folder().glob("*.taken")).open("a") as file:
            file.write(f"no JSON, but {WORD}\n")
        self.redact()
        holding = [path.name for path in spool.folder().rglob("*") if path.is_file() and WORD in path.read_text()]
        self.assertEqual(holding, [])
        self.assertEqual(self.prompts()[-1], "[REDACTED:removed] again")

    def test_the_token_is_of_what_waits_too(self):
        token = self.preview().confirm_token
        self.keep(7, prompt=f"And {WORD}")
        with self.assertRaises(ConfirmationRequired):
            redact(command=RedactionRun(text=WORD, confirm_token=token))

    def test_a_selection_of_some_events_names_what_it_leaves(self):
        memory = services.write_memory(command=MemoryWrite(title="Who", content=f"{WORD} did.")).id
        pack_context(command=ContextPackRequest(query=f"what did {WORD} do"))
        kept = {share.where for share in self.preview(ids=[memory]).kept}
        self.assertEqual(kept, {"the query of 1 context pack", "1 hook event in the spool"})
        self.assertEqual(self.redact(ids=[memory]).spooled, 0)
        self.assertEqual(self.preview().spooled, 1)

    def test_a_text_of_two_lines_is_found_in_the_question_of_a_pack(self):
        services.write_memory(command=MemoryWrite(title="Who", content=f"{WORD}\n  of the north"))
        pack_context(command=ContextPackRequest(query=f"tell me of {WORD}\n  of the north"))
        text = f"{WORD}\n  of the north"
        self.assertEqual(
            {place.event_type for place in self.preview(text=text).places}, {"memory.written", "context.packed"}
        )
        self.redact(text=text)
        self.assertEqual(ContextPack.objects.get().query, "tell me of [REDACTED:removed]")

    def test_what_is_erased_whole_leaves_packs_and_the_spool_as_well(self):
        content = f"The tank of {WORD} leaks at the northern valve"
        memory = services.write_memory(command=MemoryWrite(title="Tank", content=content)).id
        pack_context(command=ContextPackRequest(query="what leaks at the northern valve"))
        self.keep(8, prompt=f"Remember: {content}!")
        shown = self.preview(text=None, whole=True, ids=[memory])
        self.assertEqual((shown.spooled, shown.copies["context packs whose query quotes it"]), (1, 1))
        done = self.redact(text=None, whole=True, ids=[memory])
        self.assertEqual((done.spooled, ContextPack.objects.count()), (1, 0))
        self.assertIn("Remember: [REDACTED:erased]!", self.prompts())
        self.assertTrue(log.verify().ok)
        self.assertTrue(log.rebuild().identical)

    def test_while_the_hub_takes_for_long_it_is_refused_and_nothing_is_changed(self):
        before, token = self.lines(), self.preview().confirm_token
        with (
            spool.only_taker(),
            mock.patch.object(spool.taking, "__kwdefaults__", {"seconds": 0}),
            self.assertRaises(Locked),
        ):
            redact(command=RedactionRun(text=WORD, confirm_token=token))
        self.assertEqual(self.lines(), before)


class AnyTextTests(HubTestCase):
    def test_whatever_is_taken_out_chain_and_rebuild_hold(self):
        @settings(max_examples=10, deadline=None)  # each redaction is proven by a process
        @given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=4), st.text(min_size=2, max_size=4))
        def check(texts: list[str], wanted: str) -> None:
            with self.store("alpha", actor="ada"):
                for text in texts:
                    services.write_memory(
                        command=MemoryWrite(title="T", content=f"{text} {wanted}", if_exists="update")
                    )
                self.take_out(wanted)

        check()

    def take_out(self, wanted: str) -> None:
        selection = RedactionSelect(text=wanted)
        try:
            token = preview_redaction(command=selection).confirm_token
        except NotFound:
            return  # sanitising took it out already, as it does with what cannot be stored
        redact(command=RedactionRun(text=wanted, confirm_token=token))
        self.assertTrue(log.verify().ok)
        self.assertTrue(log.rebuild().identical)
        with self.assertRaises(NotFound):
            preview_redaction(command=selection)
