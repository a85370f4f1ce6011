"""What a session's opening says of its work after a compaction, a resume and a clear."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any
from unittest import mock

from django.test import tag

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.models import ContextPack
from memories.pack import pack_context, replay_pack
from memories.pack.outcomes import packs_given_to
from memories.schemas.query import ContextPackRequest, ContextReplay
from memoryhub.core import clock, log, windows
from memoryhub.core.errors import Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.paging import estimate_tokens
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Session
from sessions_app.services.capture import in_window, take_event
from tests.memories.base import MemoriesTestCase
from tests.support import make_git_folder

MYPY = "api/vat.py:12: error: Incompatible types\nFound 1 error in 1 file"


class Client:
    """Claude Code in one session, its hooks in this process."""

    def __init__(self, session: str, folder: str, window: str = "") -> None:
        self.session = session
        self.folder = folder
        self.window = window

    def send(self, event: str, **fields: Any) -> str:
        data = {"session_id": self.session, "cwd": self.folder, "hook_event_name": event, **fields}
        parsed = in_window(parse_hook(client="claude-code", event=event, data=data), self.window)
        key = f"{self.session}-{log.head()[0]}-{event}"
        return take_event(event=parsed, client="claude-code", project="alpha", idempotency_key=key)

    def start(self, source: str = "startup", **fields: Any) -> str:
        return self.send("SessionStart", source=source, **fields)

    def compact(self) -> str:
        self.send("PreCompact", trigger="auto", custom_instructions="")
        return self.start("compact")

    def prompt(self, text: str) -> str:
        return self.send("UserPromptSubmit", prompt=text)

    def edit(self, path: str) -> None:
        edited = {"file_path": f"{self.folder}/{path}", "old_string": "a", "new_string": "b"}
        self.send("PostToolUse", tool_name="Edit", tool_input=edited, tool_response={})

    def plan(self, path: str) -> str:
        planned = {"file_path": f"{self.folder}/{path}", "old_string": "a", "new_string": "b"}
        return self.send("PreToolUse", tool_name="Edit", tool_input=planned)

    def run(self, command: str, output: str, *, failed: bool = False) -> None:
        call = {"tool_name": "Bash", "tool_input": {"command": command}}
        if failed:
            self.send("PostToolUseFailure", **call, error=f"Exit code 1\n{output}")
        else:
            self.send("PostToolUse", **call, tool_response={"stdout": output, "stderr": ""})

    def tasks(self, *statuses: str) -> None:
        todos = [{"content": f"Task {number}", "status": status} for number, status in enumerate(statuses, 1)]
        self.send("PostToolUse", tool_name="TodoWrite", tool_input={"todos": todos}, tool_response="ok")


class ProgressTestCase(MemoriesTestCase):
    def agent(self, session: str = "s-1", window: str = "") -> Client:
        return Client(session, str(self.home), window)

    def work(self, client: Client) -> None:
        client.start()
        client.prompt("Round VAT to the cent in the invoice, and never touch the ledger")
        client.edit("api/vat.py")
        client.tasks("completed", "in_progress", "pending")
        client.run("make lint", "\x1b[32mAll good\x1b[0m")
        client.run("cd api && mypy api", MYPY, failed=True)
        client.send("Stop", last_assistant_message="The type of the rate is still wrong.")
        client.prompt("No, use Decimal for the rate")
        client.edit("api/rates.py")


class OpeningTests(ProgressTestCase):
    def test_after_a_compaction_it_begins_with_what_was_in_progress(self) -> None:
        other = self.agent("s-0")
        other.start()
        other.prompt("Draw the logo")
        other.send("SessionEnd", reason="exit")
        client = self.agent()
        self.work(client)
        text = client.compact()
        lines = text.splitlines()
        self.assertEqual(lines[1], "In progress:")
        for line in (
            "asked first: Round VAT to the cent in the invoice, and never touch the ledger",
            "No, use Decimal for the rate",
            "to do (1 of 3 done): now Task 2; Task 3",
            f"fails: `mypy api` (exit code 1): {MYPY.replace(chr(10), ' / ')}",
            "edited api/rates.py",
            "edited api/vat.py",
            "ran `make lint`: ok, All good",
            "answered: The type of the rate is still wrong.",
        ):
            self.assertIn(line, text)
        self.assertNotIn("Last session", text)
        self.assertEqual(text.count("No, use Decimal"), 1, "not asked lately too")

    def test_a_new_session_and_a_pack_that_an_agent_asks_for_have_none(self) -> None:
        client = self.agent()
        self.work(client)
        self.assertNotIn("In progress", self.agent("s-2").start())
        with use_origin(session_id="s-1"):
            self.assertNotIn("In progress", pack_context(command=ContextPackRequest()).text)
        self.assertEqual(client.start("compact", agent_id="a-1"), "", "a sub-agent's start is no start")
        self.assertFalse(RawEvent.objects.filter(event_type="context.compacted").exists())
        self.assertIn("In progress", client.start("resume"))

    def test_a_start_after_a_compaction_marks_where_the_context_begins_once(self) -> None:
        client = self.agent()
        self.work(client)
        client.start("resume")
        compactions = RawEvent.objects.filter(event_type="context.compacted")
        self.assertEqual(compactions.count(), 0)
        client.start("compact")
        client.start("compact")
        self.assertEqual(compactions.count(), 1)
        client.edit("api/vat.py")
        client.compact()
        self.assertEqual(compactions.count(), 2)

    def test_a_client_without_a_start_after_a_compaction_gets_it_with_the_next_prompt(self) -> None:
        client = self.agent()
        self.work(client)
        client.send("PreCompact", trigger="manual", custom_instructions="")
        self.write("Rounding", "The rates of VAT are per mille, and rounded to the cent in the invoice.")
        text = client.prompt("How are the rates of VAT rounded in the invoice?")
        self.assertIn("In progress:\n", text)
        self.assertEqual(text.count("per mille"), 1, "the recall has nothing to add")
        self.assertNotIn("In progress", client.prompt("And in the ledger?"))
        client.compact()
        self.assertNotIn("In progress", client.prompt("And where else are they?"))

    def test_a_failure_is_gone_once_the_same_command_succeeds(self) -> None:
        client = self.agent()
        self.work(client)
        client.run("rg Decimal api", "", failed=True)
        client.run("mypy api | tail -3", "Success: no issues found")
        self.assertNotIn("fails:", client.compact())
        client.run("go test ./... | tail -9", "--- FAIL: TestRate (0.01s)\n    vat.go:9: want 2\nFAIL")
        self.assertIn("fails: `go test ./... | tail -9`: --- FAIL: TestRate (0.01s)", client.compact())
        for prompt in ("Now draw the logo instead", "In blue rather than in green", "And much larger than that"):
            client.prompt(prompt)
        self.assertNotIn("fails:", client.compact(), "of another task")

    def test_what_the_session_wrote_and_what_it_was_given_and_used_come_back(self) -> None:
        given = self.write("Rounding", "The rates in api/rates.py are per mille.")
        other = self.write("Logo", "The logo of the company is blue.")
        client = self.agent()
        client.start()
        self.work(client)
        with use_origin(session_id="s-1"):
            ours = self.write("Rate", "The rate is a Decimal.")
            decided = record_decision(command=DecisionRecord(title="Decimal for money", chosen="Decimal.")).id
        progress = client.compact().partition("In progress")[2].partition("\nWhat is known")[0]
        for entry in (given, ours, decided):
            self.assertIn(f"\n- #{entry} ", progress)
        self.assertNotIn(f"#{other} ", progress)

    def test_it_has_at_most_600_tokens_of_any_text(self) -> None:
        client = self.agent()
        client.start()
        for number in range(12):
            client.prompt(f"{number} {'Ünïcödé überall ' * 60}")
            client.edit(f"{'deep/' * 30}{number}.py")
            client.run(f"make {number}", "ошибка " * 200, failed=number % 2 == 1)
        client.compact()
        pack = ContextPack.objects.latest("id")
        again = replay_pack(command=ContextReplay(id=pack.id))
        (section,) = [filled for filled in again.body.sections if filled.section.name == "progress"]
        self.assertLessEqual(estimate_tokens("\n".join(section.lines())), 600)
        self.assertGreater(len(section.items), 5)
        self.assertTrue(again.as_sent)

    def test_after_a_clear_the_new_session_begins_with_that_of_its_window(self) -> None:
        started = windows.find_process(os.getpid())
        assert started is not None
        self.work(self.agent())
        with mock.patch.object(windows, "home_text", return_value=str(self.home)):
            windows.note_session(started.key, "s-1")
            self.assertEqual(windows.session_of("../token"), "")
            self.assertNotIn("In progress", self.agent("s-2", started.key).start())
            text = self.agent("s-3", started.key).start("clear")
            self.assertNotIn("In progress", self.agent("s-4", "1-2").start("clear"))
        self.assertIn("is the session whose context the user cleared", text.splitlines()[2])
        self.assertIn("No, use Decimal for the rate", text)
        again = replay_pack(command=ContextReplay(id=ContextPack.objects.filter(session_id="s-3").latest("id").id))
        self.assertEqual((again.text, again.as_sent), (text, True))


class RecordTests(ProgressTestCase):
    @tag("backend")
    def test_it_is_replayed_and_what_was_erased_since_is_left_out(self) -> None:
        client = self.agent()
        self.work(client)
        text = client.compact()
        pack = ContextPack.objects.latest("id")
        client.edit("api/other.py")
        client.run("mypy api", "Success: no issues found")
        client.prompt("Something else now")
        again = replay_pack(command=ContextReplay(id=pack.id))
        self.assertEqual((again.text, again.as_sent, again.erased), (text, True, 0))
        self.assert_rebuilds()
        edit = RawEvent.objects.filter(event_type="file.edited").earliest("position")
        with log.transaction():
            log.erase_events([edit.position], reason="asked for")
        again = replay_pack(command=ContextReplay(id=pack.id))
        self.assertEqual((again.erased, again.differs), (1, False))
        self.assertEqual(
            set(text.splitlines()) - set(again.text.splitlines()), {f"- #{edit.position} edited api/vat.py"}
        )

    def test_the_page_of_the_session_shows_it(self) -> None:
        client = self.agent()
        self.work(client)
        client.compact()
        session = Session.objects.get(session_id="s-1")
        section = packs_given_to([session.id])[session.id].packs[-1].sections[0]
        self.assertEqual(section.title, "In progress")
        self.assertFalse(section.is_judged)
        titles = [line.title for line in section.lines]
        for title in ("api/rates.py", "No, use Decimal for the rate", "cd api && mypy api"):
            self.assertTrue(any(title in shown for shown in titles), titles)


class AtWorkTests(ProgressTestCase):
    """Two sessions in one project, at 10:04 and later."""

    def setUp(self) -> None:
        super().setUp()
        self.at("10:04")
        self.other = self.agent("s-0")
        self.other.start()
        self.other.prompt("VAT rounding")
        self.other.edit("api/vat.js")

    def at(self, time: str) -> None:
        moment = datetime.fromisoformat(f"2026-11-20T{time}:00+00:00")
        self.enterContext(clock.frozen(moment))

    def test_a_start_names_the_session_its_subject_and_its_files(self) -> None:
        self.at("10:20")
        text = self.agent().start()
        self.assertRegex(
            text,
            r"Another session:\n- #\d+ at work since 2026-11-20T10:04 here\n- #\d+ asked: VAT rounding\n"
            r"- #\d+ edited api/vat.js at 2026-11-20T10:04\n",
        )
        pack = ContextPack.objects.latest("id")
        self.other.prompt("Now the ledger")
        self.other.send("SessionEnd", reason="exit")
        again = replay_pack(command=ContextReplay(id=pack.id))
        self.assertEqual((again.text, again.as_sent), (text, True))
        self.assertNotIn("at work", self.agent("s-3").start(), "it has ended")

    def test_an_idle_session_and_one_without_work_are_not_at_work(self) -> None:
        self.agent("s-9").start()
        self.at("10:40")
        self.assertNotIn("at work", self.agent().start())
        self.other.run("make", "ok")
        text = self.agent("s-2").start()
        self.assertEqual(text.count("at work since"), 1)
        with use_origin(session_id="s-2"):
            self.assertNotIn("at work", pack_context(command=ContextPackRequest()).text)

    def test_another_worktree_is_named(self) -> None:
        tree = self.home / "trees" / "vat"
        make_git_folder(tree)
        far = Client("s-8", str(tree))
        far.start()
        far.prompt("Draw the logo")
        far.edit("web/logo.js")
        text = self.agent().start()
        self.assertRegex(text, r"since \S+ in trees/vat\n- #\d+ asked: Draw the logo\n- #\d+ edited web/logo.js at")
        mine = self.agent()
        mine.edit("web/logo.js")
        self.assertRegex(
            mine.prompt("Go on"), r"in trees/vat\n- #\d+ asked: Draw the logo\n- #\d+ edited web/logo.js at"
        )

    @tag("backend")
    def test_a_file_that_both_edit_is_told_once_in_a_context(self) -> None:
        mine = self.agent()
        mine.start()
        self.assertEqual(mine.prompt("Write the rates"), "")
        mine.edit("api/rates.js")
        self.assertEqual(mine.prompt("And test them"), "")
        mine.edit("api/vat.js")
        text = mine.prompt("Round them too")
        head = r"^Memory Hub notice #\d+ of alpha: .+\nAnother session edits a file of this one:\n"
        lines = r"- #\d+ at work since \S+ here\n- #\d+ asked: VAT rounding\n- #\d+ edited api/vat.js at \S+T10:04\n"
        self.assertRegex(text, head + lines)
        self.other.edit("api/vat.js")
        self.assertEqual(mine.prompt("Go on"), "")
        self.assertIn("And test them", self.other.prompt("Go on"))
        again = replay_pack(command=ContextReplay(id=int(text.partition("#")[2].split()[0])))
        self.assertEqual((again.text, again.as_sent), (text, True))
        mine.compact()
        self.assertIn("api/vat.js", mine.prompt("Where was I?"))
        with self.refuses(Invalid, "comes from a Memory Hub context pack"):
            self.write("An echo", text)

    def test_a_planned_edit_is_told_of_before_it(self) -> None:
        mine = self.agent()
        mine.start()
        self.assertEqual(mine.plan("api/rates.js"), "")
        self.assertIn("edited api/vat.js", mine.plan("api/vat.js"))
        self.assertEqual(mine.plan("api/vat.js"), "")
        with mock.patch.dict("os.environ", MEMORY_HUB_NOTES="false"):
            self.assertEqual(self.agent("s-2").plan("api/vat.js"), "")
