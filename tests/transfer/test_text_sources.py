"""Tools that keep text files: what their own files become, and what hostile ones do not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.test import SimpleTestCase

from memories.importing import import_markdown
from memories.importing.sections import parse_document
from memoryhub.core.errors import Invalid
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import ImportReport, LeftOutRecord, MemoryRecord, Record, SessionRecord
from memoryhub.transfer.sources import SOURCES
from memoryhub.transfer.sources.transcripts import TranscriptBuilder
from sessions_app.services.past_sessions import PastCommand, PastEdit
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase

DATA = Path(__file__).parent / "data"
LINK = "a link, which may lead out of the folder"


class SourceTestCase(SimpleTestCase):
    """``self.home`` is the user's home folder."""

    def setUp(self) -> None:
        self.home = self.folder()
        self.enterContext(patch.dict(os.environ, HOME=str(self.home)))

    def folder(self) -> Path:
        return Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    # Outside this repository, so that its name is in no key
    def copy(self, data: str) -> Path:
        return Path(shutil.copytree(DATA / data, self.home / "work" / "harbour"))

    def read(self, source: str, path: Path) -> list[Record]:
        return list(SOURCES[source].records(path))

    def memories(self, source: str, path: Path) -> dict[str, MemoryRecord]:
        return {record.key: record for record in self.read(source, path) if isinstance(record, MemoryRecord)}

    def sessions(self, source: str, path: Path) -> list[SessionRecord]:
        return [record for record in self.read(source, path) if isinstance(record, SessionRecord)]

    def left(self, source: str, path: Path) -> list[LeftOutRecord]:
        return [record for record in self.read(source, path) if isinstance(record, LeftOutRecord)]

    def reasons(self, source: str, path: Path) -> list[str]:
        return [record.why for record in self.left(source, path)]

    def assert_record(self, record: MemoryRecord | SessionRecord, **fields: Any) -> None:
        self.assertEqual({name: getattr(record, name) for name in fields}, fields)

    def assert_refused(self, source: str, path: Path, why: str = "") -> None:
        with self.subTest(source=source, path=path, why=why), self.unchanged():
            with self.assertRaises(Invalid) as refused:
                self.read(source, path)
            message = refused.exception.message
            self.assertIn(why, message)
            self.assertEqual((message.count("\n"), len(message) < 400), (0, True), message)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check that nothing is written to the user's home folder."""
        before = self._files()
        yield
        self.assertEqual(self._files(), before)

    def _files(self) -> dict[Path, tuple[int, int]]:
        stats = {path: path.lstat() for path in (self.home, *self.home.rglob("*"))}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def write_files(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class RulesTests(SourceTestCase):
    def test_each_section_of_agents_md_becomes_a_guideline(self) -> None:
        folder = self.copy("agents-md")
        before = self.memories("agents-md", folder)
        key = "harbour/AGENTS.md#harbour"
        self.assertEqual(
            list(before), ["harbour/AGENTS.md", f"{key}/build", f"{key}/tests", "harbour/pilot/AGENTS.md#pilot"]
        )
        content = "Run `make charts` before you commit a chart."
        title = "AGENTS.md › Harbour › Build"
        place = str(folder / "AGENTS.md")
        self.assertEqual(
            replace(before[f"{key}/build"], updated=None, shared_by=()),
            MemoryRecord(f"{key}/build", title, content, kind="guideline", place=place),
        )
        file = folder / "AGENTS.md"
        text = file.read_text().replace("a second", "two seconds").replace("# Harbour", "# Harbour\n\n## New\n\nNew.")
        file.write_text(text)
        os.utime(file, (1_772_352_000, 1_772_352_000))
        after = self.memories("agents-md", folder)
        self.assertEqual(after[f"{key}/build"].updated, datetime(2026, 3, 1, 8, tzinfo=UTC))
        contents = {key: record.content for key, record in before.items()}
        changed = {key for key, record in after.items() if contents.get(key) != record.content}
        self.assertEqual(changed, {f"{key}/new", f"{key}/tests"})
        self.assertLessEqual(before.keys(), after.keys())

    def test_a_rule_of_cursor_becomes_a_guideline_that_names_its_files(self) -> None:
        folder = self.copy("cursor-rules")
        first, names, tides, depths, orders = self.memories("cursor-rules", folder).values()
        self.assert_record(
            tides,
            key="harbour/.cursor/rules/tides.mdc",
            title=".cursor/rules/tides.mdc › Reading the tide feed",
            content="Applies to `feeds/**/*.{py,toml}`, `gauges/*.csv`.\n\n"
            "# Tide feed\n\nRetry after an hour when the feed answers 429.",
            kind="guideline",
            place=str(folder / ".cursor/rules/tides.mdc"),
        )
        self.assertEqual((depths.title, depths.content), (".cursor/rules/charts/depths.mdc", "Write depths in metres."))
        titles = [".cursorrules", ".cursorrules › Names", "pilot/.cursor/rules/orders.mdc"]
        self.assertEqual([record.title for record in (first, names, orders)], titles)


class ClaudeCodeTests(SourceTestCase):
    def test_its_memory_becomes_memories_of_the_kind_that_it_has_there(self) -> None:
        folder = self.copy("claude-code")
        feed, metres = self.memories("claude-code", folder).values()
        place = folder / "projects/-srv-harbour/memory"
        listing = LeftOutRecord(str(place / "MEMORY.md"), "it only lists the other files")
        self.assertIn(listing, self.left("claude-code", folder))
        self.assert_record(
            metres,
            key="-srv-harbour/memory/metres-not-feet.md",
            title="Write depths in metres",
            content="Write depths in metres, never in feet.\n\n**Why:** the charts are metric.\n"
            "**How to apply:** convert what the gauges of other ports send. See [[feed-limits]].",
            kind="guideline",
            tags=("feedback",),
            project="/srv/harbour",
            session="8e2b7d14-6a90-4f3c-b1d2-7a9e5c4d3b02",
            relations=(("related_to", "-srv-harbour/memory/feed-limits.md"),),
            place=str(place / "metres-not-feet.md"),
        )
        self.assertEqual((feed.kind, feed.type, feed.relations), ("knowledge", "reference", ()))

    def test_transcripts_become_sessions_of_what_was_typed_and_answered(self) -> None:
        first, second = self.sessions("claude-code", self.copy("claude-code"))
        retry = "Retry after an hour, because the feed answers 429 for that long."
        gauge = "I will look at the tide table first.\n\nThe gauge at Øster Hurup reads 0.8 m at 06:12."
        turns = [
            ("What does the gauge read?", gauge),
            ("And when the feed answers 429?", retry),
            ("Ask a subagent for the pier.", "Pier 4 is nearest."),
            ("How deep is the basin?", retry),
        ]
        self.assertEqual([(turn.prompt, turn.answer) for turn in first.turns], turns)
        self.assert_record(
            first,
            key="5f0c6a52-3d1e-4a7b-9c55-0c1f6f1f2a01",
            summary="The gauge was read, and the retry of the feed agreed.",
            purpose="What does the gauge read?",
            project="/srv/harbour",
            started=datetime(2026, 11, 23, 10, 2, 59, 639000, UTC),
        )
        self.assertEqual(first.started, first.turns[0].began_at)
        assert first.turns[0].began_at and first.turns[0].ended_at
        self.assertGreater(first.turns[0].ended_at, first.turns[0].began_at)
        self.assertEqual(len(second.turns), 1)

    def test_what_the_user_did_not_type_is_no_prompt(self) -> None:
        reminder = "<system-reminder>\nThe date is today.\n</system-reminder>"
        command = "<command-name>/tides</command-name>\n<command-message>tides</command-message>\n"
        lines = [
            _line("user", "<local-command-caveat>…</local-command-caveat>", isMeta=True),
            _line("user", "<command-name>/clear</command-name>\n<command-args></command-args>"),
            _line("user", "<local-command-stdout>cleared</local-command-stdout>"),
            _line("user", [{"type": "text", "text": reminder}, {"type": "text", "text": "When is low water?"}]),
            _line("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "At 12:31."}]),
            _line("user", [{"type": "tool_result", "content": "12:31"}]),
            _line("user", "of a subagent", isSidechain=True),
            _line("user", "<task-notification>done</task-notification>"),
            _line("assistant", "No response requested.", model="<synthetic>"),
            _line("user", "[Request interrupted by user]"),
            _line("user", f"{command}<command-args>Øster Hurup</command-args>"),
            _line("assistant", "0.8 m"),
            _line("user", "<bash-input>ls</bash-input>"),
            {"type": "ai-title", "aiTitle": "Tides"},
            {"type": "summary", "summary": "of another session", "leafUuid": "elsewhere"},
        ]
        folder = self.transcript(*map(json.dumps, lines))
        (session,) = self.read("claude-code", folder)
        assert isinstance(session, SessionRecord)
        turns = [(turn.prompt, turn.answer) for turn in session.turns]
        self.assertEqual(turns, [("When is low water?", "At 12:31."), ("/tides Øster Hurup", "0.8 m")])
        self.assert_record(session, purpose="Tides", summary="")

    def test_commands_that_failed_are_kept_and_the_run_that_passed_then(self) -> None:
        def run(call: str, command: str, output: str, *, failed: bool) -> list[str]:
            use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}
            result = {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": failed}
            return [json.dumps(_line("assistant", [use])), json.dumps(_line("user", [result]))]

        folder = self.transcript(
            json.dumps(_line("user", "Run the tests.")),
            *run("1", "ls", "tests", failed=False),
            *run("2", "make test", "Exit code 2\nE  KeyError: 'tide'", failed=True),
            *run("3", "rm -r data", "The user doesn't want to proceed with this tool use.", failed=True),
            *run("4", "make test", "5 passed", failed=False),
            *run("5", "make test", "5 passed", failed=False),
            json.dumps(_line("assistant", "They pass.")),
        )
        (session,) = self.sessions("claude-code", folder)
        (turn,) = session.turns
        runs = [(run.command, run.exit_code, run.output) for run in turn.actions if isinstance(run, PastCommand)]
        self.assertEqual(runs, [("make test", 2, "E  KeyError: 'tide'"), ("make test", 0, "5 passed")])
        self.assertEqual(turn.answer, "They pass.")

    def test_what_ran_between_a_failure_and_its_cure_is_kept_without_its_output(self) -> None:
        builder = TranscriptBuilder("claude-code")
        builder.note(None, "/srv/harbour")
        builder.begin("Run the tests.", None)
        runs = [("make lint", 0), ("pytest", 0), ("pytest", 1), ("ls", 0), ("pip install -e .", 0)]
        for number, (command, exit_code) in enumerate([*runs, ("python -m pytest", 0)]):
            builder.call(str(number), command)
            builder.result(str(number), f"output {number}", exit_code, None)
        builder.edit("/srv/harbour/tides/feed.py")
        (session,) = builder.records("1", "/1.jsonl")
        assert isinstance(session, SessionRecord)
        actions = [
            PastCommand("pytest", "output 2", 1, passed_before=True),
            PastCommand("pip install -e .", "", 0),
            PastCommand("python -m pytest", "output 5", 0),
            PastEdit("tides/feed.py"),
        ]
        self.assertEqual(list(session.turns[0].actions), actions)

    def test_broken_and_endless_transcripts_are_read_as_far_as_possible(self) -> None:
        prompt, answer = json.dumps(_line("user", "Low water?")), json.dumps(_line("assistant", "At 12:31."))
        folder = self.transcript(prompt, "[" * 100_000, '{"a": "' + "x" * 5_000_000 + '"}', answer, prompt[:40])
        (session,), (left,) = self.sessions("claude-code", folder), self.left("claude-code", folder)
        self.assertEqual([(turn.prompt, turn.answer) for turn in session.turns], [("Low water?", "At 12:31.")])
        place = folder / "projects/-srv-harbour/1.jsonl:2"
        self.assertEqual(left, LeftOutRecord(str(place), "lines that are cut off, too long or no JSON: 3"))
        with patch("memoryhub.transfer.sources.transcripts.MAX_TURNS", 2):
            folder = self.transcript(*[prompt] * 5)
            (session,) = self.sessions("claude-code", folder)
            self.assertEqual(self.reasons("claude-code", folder), ["turns after the first 2: 3"])
        self.assertEqual(len(session.turns), 2)

    def test_instructions_become_guidelines(self) -> None:
        folder = self.folder() / "harbour"
        texts = {
            "CLAUDE.md": "@docs/berths.md\n\n# Tests\n\nUse recorded gauges. See @AGENTS.md.\n",
            "CLAUDE.local.md": "Answer in Danish.",
            ".claude/rules/feed.md": '---\npaths: ["feeds/*.py"]\n---\nRetry after an hour.\n',
            # Projects of a repository, which is no settings folder
            "projects/tides/levels.jsonl": '{"level": 0.8}',
        }
        write_files(folder, texts)
        local, tests, rule = self.memories("claude-code", folder).values()
        self.assert_record(local, key="harbour/CLAUDE.local.md", kind="guideline", content="Answer in Danish.")
        self.assert_record(tests, key="harbour/CLAUDE.md#tests", content="Use recorded gauges. See @AGENTS.md.")
        self.assertEqual(rule.content, "Applies to `feeds/*.py`.\n\nRetry after an hour.")
        why = "it imports files that are not in its folder (2): @docs/berths.md, @AGENTS.md"
        self.assertEqual(self.left("claude-code", folder), [LeftOutRecord(str(folder / "CLAUDE.md"), why)])

    def test_instructions_that_are_a_link_or_an_import_are_those_of_the_other_file_once(self) -> None:
        for make in (lambda file: file.symlink_to("AGENTS.md"), lambda file: file.write_text("@AGENTS.md\n")):
            folder = self.folder() / "harbour"
            write_files(folder, {"AGENTS.md": "# Tests\n\nUse recorded gauges.\n\n@docs/a.md\n"})
            write_files(folder, {"docs/a.md": "Moor at noon. @b.md @../CLAUDE.md", "docs/b.md": "Weigh anchor."})
            write_files(folder, {"docs/CLAUDE.md": "@b.md @../../secret.md"})
            (folder.parent / "secret.md").write_text("secret")
            make(folder / "CLAUDE.md")
            keys = ["AGENTS.md#tests", "docs/a.md", "docs/b.md"]
            records = self.memories("claude-code", folder)
            self.assertCountEqual(records, [f"harbour/{key}" for key in keys])
            why = "it imports files that are not in its folder (1): @../../secret.md"
            self.assertEqual(self.left("claude-code", folder), [LeftOutRecord(str(folder / "docs/CLAUDE.md"), why)])
            self.assertEqual(list(self.memories("agents-md", folder)), ["harbour/AGENTS.md#tests"])

    def test_a_link_among_the_rules_of_a_repository_is_left_out_beside_its_file(self) -> None:
        folder = self.folder() / "harbour"
        Repository(folder)
        write_files(folder, {"AGENTS.md": "Use recorded gauges.", "pilot/x.md": "", ".git/AGENTS.md": "Hidden."})
        (folder / "pilot/AGENTS.md").symlink_to("../AGENTS.md")
        self.assertEqual(list(self.memories("agents-md", folder)), ["harbour/AGENTS.md"])
        self.assertEqual(self.reasons("agents-md", folder), ["a link to AGENTS.md, which is imported itself"])

    def test_one_project_is_read_with_the_keys_that_it_has_among_all(self) -> None:
        folder = self.copy("claude-code")
        (folder / "projects/-srv-other").mkdir()
        (transcript,) = folder.glob("projects/-srv-harbour/5*.jsonl")
        shutil.copy(transcript, folder / "projects/-srv-other/2.jsonl")
        (folder / "CLAUDE.md").write_text("Answer in English.")
        whole, project = (self.read("claude-code", path) for path in (folder, folder / "projects/-srv-harbour"))
        self.assertEqual(len(whole), len(project) + 2)
        self.assertLess(set(map(str, project)), set(map(str, whole)))
        self.assertEqual(next(iter(self.memories("claude-code", folder))), "harbour/CLAUDE.md")

    def transcript(self, *lines: str) -> Path:
        folder = self.folder()
        write_files(folder, {"projects/-srv-harbour/1.jsonl": "\n".join(lines)})
        return folder


def _line(role: str, content: Any, *, model: str = "opus", **fields: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, "model": model}
    return {"type": role, "message": message, "uuid": "1", "cwd": "/srv/harbour", **fields}


class IgnoredFilesTests(SourceTestCase):
    def test_what_git_ignores_is_left_out_unless_the_folder_itself_is_ignored(self) -> None:
        names = {
            "agents-md": "AGENTS.md",
            "cursor-rules": ".cursor/rules/tides.mdc",
            "claude-code": "CLAUDE.md",
            "rules": ".github/copilot-instructions.md",
            "obsidian": "Tides.md",
            "basic-memory": "Tides.md",
        }
        for source, name in names.items():
            folder = self.folder() / "harbour"
            Repository(folder / "pilot/own")
            for top in ("", "built/in/", "pilot/", "pilot/secret/", "pilot/own/"):
                write_files(folder, {f"{top}{name}": f"---\npermalink: {top}tides\n---\nUse recorded gauges."})
            write_files(folder, {".gitignore": "built/\nsecret\n", ".obsidian/app.json": "{}"})
            Repository(folder)
            for top, kept in (("", ["", "pilot/", "pilot/own/"]), ("built/in/", ["built/in/"])):
                with self.subTest(source=source, top=top):
                    places = [record.place for record in self.memories(source, folder / top).values()]
                    self.assertCountEqual(places, [str(folder / part / name) for part in kept])

    def test_the_instructions_of_one_person_are_read_although_git_ignores_them(self) -> None:
        folder = self.folder() / "harbour"
        write_files(folder, {"CLAUDE.local.md": "Answer in Danish.", ".gitignore": "CLAUDE.local.md"})
        Repository(folder)
        self.assertEqual(list(self.memories("claude-code", folder)), ["harbour/CLAUDE.local.md"])

    def test_the_settings_of_a_client_are_read_although_git_ignores_them(self) -> None:
        folder = self.home / ".claude"
        write_files(folder, {"CLAUDE.md": "Answer in Danish.", "projects/x/1.jsonl": "", ".gitignore": "*"})
        Repository(folder)
        self.assertEqual(len(self.memories("claude-code", folder)), 1)


class ObsidianTests(SourceTestCase):
    def test_a_link_to_notes_that_differ_in_case_only_leads_to_one_of_them(self) -> None:
        vault = self.folder()
        write_files(vault, {".obsidian/app.json": "{}", "a.md": "One.", "a.MD": "Two.", "b.md": "See [[a]]."})
        by_key = self.memories("obsidian", vault)
        self.assertIn(f"{vault.name}/b.md", by_key)

    def test_sections_of_notes_become_memories_with_their_links(self) -> None:
        vault = self.copy("obsidian")
        by_key = self.memories("obsidian", vault)
        gauge, berths, retries = (
            "harbour/Harbour/Tide gauge.md",
            "harbour/Harbour/Berths.md#berths",
            "harbour/Retries.md",
        )
        self.assert_record(
            by_key[gauge],
            title="Tide gauge (Gauge 4)",
            content="Reads the level each minute. #sensor",
            type="note",
            tags=("gauges", "harbour/øst", "sensor"),
            created=datetime(2026, 3, 1, 8, 30, tzinfo=UTC),
            relations=(("related_to", berths),),
            place=str(vault / "Harbour/Tide gauge.md"),
        )
        links = {
            retries: [],
            f"{retries}#after-429": [f"{gauge}#feed"],
            berths: [gauge],
            gauge: [berths],
            f"{gauge}#feed": [f"{retries}#after-429"],
            f"{gauge}#repairs": [],
        }
        self.assertEqual({key: [target for _, target in one.relations] for key, one in by_key.items()}, links)
        self.assertEqual(by_key[berths].title, "Berths")
        self.assertEqual(by_key[f"{gauge}#repairs"].tags, ("gauges", "harbour/øst"))
        # A part of a vault has the same keys
        self.assertEqual(next(iter(self.memories("obsidian", vault / "Harbour"))), berths)

    def test_what_is_no_note_is_left_out_by_name(self) -> None:
        vault = self.copy("obsidian")
        reasons = [
            ("Empty.md", "it has no text"),
            ("Reading.md", "it is a template"),
            ("Templates/Berth.md", "it is a template"),
            (".", "files that are no notes: 1 .canvas, 1 .png"),
            (".", "links to notes that do not exist: 1"),
        ]
        left = self.left("obsidian", vault)
        self.assertEqual([(Path(one.place).relative_to(vault).as_posix(), one.why) for one in left], reasons)

    def test_links_find_the_note_that_the_application_opens(self) -> None:
        vault = self.folder()
        (vault / ".obsidian").mkdir()
        nearest = "nearest: [[Node.js]] [[log]] [[b/Log]] [[../b/Log]] [[c/Log|other]]"
        write_files(vault, {"a/Log.md": nearest, "b/Log.md": "B", "a/c/Log.md": "C", "Node.js.md": "N"})
        relations = self.memories("obsidian", vault)[f"{vault.name}/a/Log.md"].relations
        targets = [key.removeprefix(f"{vault.name}/") for _, key in relations]
        self.assertEqual(targets, ["Node.js.md", "b/Log.md", "a/c/Log.md"])


class BasicMemoryTestCase(SourceTestCase):
    def project(self, texts: dict[str, str]) -> Path:
        """Return the folder of a project that the tool knows."""
        folder = self.home / "notes"
        config = json.dumps({"projects": {"pilots": {"path": str(folder)}}})
        write_files(self.home, {".basic-memory/config.json": config})
        write_files(folder, texts)
        return folder


class BasicMemoryTests(BasicMemoryTestCase):
    def test_notes_become_memories_with_their_relations(self) -> None:
        folder = self.copy("basic-memory/harbour")
        os.utime(folder / "Harbour/Tide gauge.md", (1_772_352_000, 1_772_352_000))
        records = self.memories("basic-memory", folder)
        gauge, feed, berths = (f"harbour:harbour/{name}" for name in ("tide-gauge", "tide-feed", "berths"))
        self.assert_record(
            records[gauge],
            title="Tide gauge",
            content="# Tide gauge\n\nThe gauge at Øster Hurup reads the level each minute.\n\n## Observations\n"
            "- [fact] Reads 0.8 m at 06:12 #level (after the repair)\n"
            "- [technique] Retry after an hour when the feed answers 429 #feed\n\n"
            "## Relations\n- depends_on [[Tide feed]]\n- part_of [[Berths]]\n- relates to [[Pier 9]]",
            tags=("gauges", "harbour", "level", "feed"),
            project="harbour",
            updated=datetime(2026, 3, 1, 8, tzinfo=UTC),
            place=str(folder / "Harbour/Tide gauge.md"),
        )
        types = {
            gauge: ("note", (("depends_on", feed), ("related_to", berths))),
            berths: ("note", (("related_to", gauge), ("related_to", feed))),
            feed: ("reference", (("related_to", gauge),)),
            "harbour:harbour/decisions/metres-not-feet": ("decision", (("related_to", berths),)),
        }
        self.assertEqual({key: (record.type, record.relations) for key, record in records.items()}, types)
        missing = LeftOutRecord(str(folder), "links to notes that are not in this project: 2")
        self.assertEqual(self.left("basic-memory", folder), [missing])

    def test_relations_are_list_items_with_one_word_or_quotes(self) -> None:
        text = (
            "- supersedes [[B]] (since May)\n- 'applies to' [[B|shown]]\n* derived_from [[b]] and prose\n"
            "- see also [[c#part]]\n- [fact] in [[Notes/c.md]]\n- conflicts_with [[pilots::notes/c]]\n"
            "`[[B]]` [[A]] [[gone]]"
        )
        folder = self.project({"a.md": text, "b.md": "B", "Notes/c.md": "C"})
        relations = [("supersedes", "b"), ("applies_to", "b"), ("conflicts_with", "Notes/c")]
        relations += [("related_to", "b"), ("related_to", "Notes/c")]
        expected = tuple((relation, f"pilots:{key}") for relation, key in relations)
        self.assertEqual(self.memories("basic-memory", folder)["pilots:a"].relations, expected)
        # Long lines take linear time
        write_files(folder, {"long.md": f"- a [[{'b' * 900_000}\n- a [[b]]{' ' * 900_000}x"})
        self.assertIn("pilots:long", self.memories("basic-memory", folder))

    def test_keys_stay_when_a_note_is_edited_moved_and_renamed(self) -> None:
        folder = self.copy("basic-memory/harbour")
        before = self.memories("basic-memory", folder)
        file = folder / "Harbour/Tide feed.md"
        file.write_text(file.read_text().replace("title: Tide feed", "title: Feed").replace("an hour", "a day"))
        file.rename(folder / "Feed.md")
        after = self.memories("basic-memory", folder)
        self.assertEqual(before.keys(), after.keys())
        feed = after["harbour:harbour/tide-feed"]
        self.assertEqual((feed.title, "Retry after a day." in feed.content), ("Feed", True))

    def test_a_long_note_becomes_a_memory_for_each_section(self) -> None:
        long = f"{'x ' * 40_000}\n\n# Tides\n\n{'y ' * 20_000}[[b]]"
        records = self.memories("basic-memory", self.project({"a.md": long, "b.md": "# B\n\n- in [[a]]"}))
        sections = [
            ("pilots:a", "a", (("related_to", "pilots:b"),)),
            ("pilots:a#tides", "a › Tides", ()),
            ("pilots:b", "b", (("related_to", "pilots:a"),)),
        ]
        self.assertEqual([(key, record.title, record.relations) for key, record in records.items()], sections)

    def test_projects_are_found_in_the_settings(self) -> None:
        find, config = SOURCES["basic-memory"].find, self.home / ".basic-memory" / "config.json"
        config.parent.mkdir()
        self.assertEqual(find(Path.cwd()), [])
        write_files(self.home, {f"{name}/a.md": "Depths." for name in ("basic-memory", "notes/inner", "old")})
        main, notes, inner, old = (self.home / name for name in ("basic-memory", "notes", "notes/inner", "old"))
        paths = {"north": {"path": str(notes)}, "inner": {"path": str(inner)}, "old": str(old), "gone": {"path": "/x"}}
        config.write_text(json.dumps({"projects": paths}))
        self.assertEqual(find(Path.cwd()), [main, notes, inner, old])
        keys = [list(self.memories("basic-memory", path)) for path in find(Path.cwd())]
        self.assertEqual(keys, [["main:a"], [], ["inner:a"], ["old:a"]])
        write_files(inner, {"below/b.md": "Berths."})
        self.assertEqual(list(self.memories("basic-memory", inner / "below")), ["inner:below/b"])
        wrong_types = b'{"projects": {"a": {"path": 4}, "b": {"path": "\\u0000"}}}'
        for hostile in (b"\xff\0", b"[" * 100_000, b"[]", wrong_types):
            config.write_bytes(hostile)
            self.assertEqual(find(Path.cwd()), [main])
        with patch.dict(os.environ, BASIC_MEMORY_HOME=str(old), XDG_CONFIG_HOME=str(self.home)):
            self.assertEqual(find(Path.cwd()), [old])

    def test_notes_without_a_memory_of_their_own_are_left_out_with_the_reason(self) -> None:
        folder = self.project({"a.md": "Depths."})
        for text, why in (
            ("---\ntitle: x\n---\n", "it has no text"),
            ("---\npermalink: a\n---\nDepths", "it has the permalink of a.md"),
        ):
            (folder / "b.md").write_text(text)
            self.assertEqual(self.reasons("basic-memory", folder), [why])
            self.assertEqual(list(self.memories("basic-memory", folder)), ["pilots:a"])


class HostileTests(BasicMemoryTestCase):
    def test_hostile_texts_are_left_out_with_the_reason(self) -> None:
        binary, headings = "it is binary, or its text is not in UTF-8", "it has 22,000 headings, more than 21,999"
        cases = {
            "binary": (bytes(range(256)) * 20, binary),
            "another encoding": (b"\xe0\xe1\xe2 \xf0\xf1", "its text is not in UTF-8, and in which other encoding"),
            "without a mark": ("Depths".encode("utf-16-le"), binary),
            "huge": (b"x" * (2 * 2**20 + 1), "it is larger than 2 MB"),
            "deep": (b"---\na: " + b"[" * 5000 + b"\n---\nx", "its front matter is nested too deeply"),
            "a short listing": (b"# x\n\ny\n" * 2_001, "it has 2,001 headings"),
            "a listing": (b"# x\n\ny\n" * 20_001, "it has 20,001 headings"),
            "a long listing": (b"# x\ny\n" * 300_000, headings),
            "underlines": (b"x\n=\n" * 400_000, headings),
        }
        for source, folder, file in self.places():
            for case, (content, why) in cases.items():
                file.write_bytes(content)
                if source == "cursor-rules" and "headings" in why:  # it has no sections
                    continue
                if source == "basic-memory" and case == "a short listing":  # only long notes have sections
                    continue
                with self.subTest(source=source, case=case), self.unchanged():
                    reasons = self.reasons(source, folder)
                    self.assertRegex(reasons[0], f"^{why}")
                    self.assertEqual(len(reasons), len(self.read(source, folder)))
                    self.assertLess(len(reasons[0]), 200)

    def test_runs_in_a_heading_take_linear_time(self) -> None:
        headings = {"a" + " " * 1_000_000 + "b": "a b", "a" + "_" * 1_000_000 + "b": "a" + "_" * 1_000_000 + "b"}
        headings[" A `b`  *c* __d__ e_f <g>  [h](i) {#j}  ##"] = "A b c d e_f h"
        for heading, plain in headings.items():
            (section,) = parse_document(f"# {heading}\n\ntext", ".md").sections
            self.assertEqual(section.headings, (plain,))

    def test_front_matter_that_expands_stays_as_it_is(self) -> None:
        fields = "a: &a [x, x]\nb: &b [*a, *a]\nglobs: !!python/object:os.system [*b, *b]\ntags: *b\n"
        for source, folder, file in self.places():
            file.write_text(f"---\n{fields}title: [1]\ntype: !!python/object:os.system\n---\nDepths.\n")
            with self.subTest(source=source):
                (record,) = self.memories(source, folder).values()
                self.assertTrue(record.content.endswith("Depths."))
                self.assertLess(len(str(record)), 1_000)
                self.assertIn(record.type, ("", "note"))

    def test_a_mark_of_utf_8_and_other_line_ends_are_read(self) -> None:
        for source, folder, file in self.places():
            file.write_bytes(b"\xef\xbb\xbf---\r\ntags: a\r\n---\r\nDepths\rin metres.\r\n")
            (record,) = self.memories(source, folder).values()
            self.assertEqual(record.content, "Depths\nin metres.", source)

    def test_links_out_of_the_folder_and_pipes_are_not_read(self) -> None:
        outside = self.folder()
        (outside / "secret.md").write_text("secret")
        for source, folder, file in self.places():
            file.symlink_to(outside / "secret.md")
            (folder / "elsewhere").symlink_to(outside)
            (folder / "loop").symlink_to(folder / "loop")
            (folder / "pipe").mkdir()
            os.mkfifo(folder / "pipe" / file.name)
            with self.subTest(source=source), self.unchanged():
                reasons = self.reasons(source, folder)
                self.assertTrue(reasons)
                self.assertEqual(len(reasons), len(self.read(source, folder)))
                self.assertEqual([why for why in reasons if LINK not in why], [])

    def test_deep_and_full_folders_are_bounded(self) -> None:
        for source, folder, file in self.places():
            file.write_text("Depths.")
            write_files(folder.joinpath(*["d"] * 80), {"AGENTS.md": "Too deep."})
            with self.subTest(source=source):
                (record,) = self.memories(source, folder).values()
                self.assertEqual(record.content, "Depths.")
                with patch("memoryhub.transfer.sources.reading.MAX_ENTRIES", 40):
                    self.assert_refused(source, folder, "has more than 40 files; name a smaller folder")

    def test_a_place_without_data_gets_one_sentence(self) -> None:
        folder = self.folder()
        (folder / "file").write_text("x")
        unknown = self.folder()
        write_files(unknown, {"a.md": "Depths."})
        for source, _, _ in self.places():
            for path in (folder, folder / "file", folder / "nowhere", Path("\0")):
                is_folder = path == folder or source != "basic-memory"
                self.assert_refused(
                    source, path, "" if is_folder else "is not a folder; name a project of Basic Memory"
                )
        for path in (unknown, folder):
            self.assert_refused("basic-memory", path, "has no notes of Basic Memory; see `import obsidian`")

    def places(self) -> Iterator[tuple[str, Path, Path]]:
        """Yield each source with a folder and the path of a file that it reads there."""
        for source, name in (
            ("claude-code", "CLAUDE.md"),
            ("agents-md", "AGENTS.md"),
            ("cursor-rules", ".cursor/rules/tides.mdc"),
            ("rules", ".roorules"),
            ("obsidian", "Tides.md"),
            ("basic-memory", "b.md"),
        ):
            folder = self.project({}) if source == "basic-memory" else self.folder()
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if source == "obsidian":
                (folder / ".obsidian").mkdir()
            yield source, folder, folder / name


class FindTests(SourceTestCase):
    def test_usual_places_are_found_that_have_data(self) -> None:
        home, work = self.home, Path(shutil.copytree(DATA / "agents-md", self.folder() / "harbour"))
        write_files(work, {".git/HEAD": "ref: refs/heads/main"})
        self.enterContext(contextlib.chdir(work / "pilot"))
        self.enterContext(patch.dict(os.environ, CLAUDE_CONFIG_DIR=str(home / "own")))
        self.assertEqual([SOURCES[name].find(Path.cwd()) for name in ("claude-code", "obsidian")], [[], []])
        for folder in (".claude/projects", "own/projects", "vault/.obsidian", ".config/obsidian"):
            (home / folder).mkdir(parents=True)
        vaults = {"a": {"path": str(home / "vault")}, "b": {"path": str(home / "gone")}, "c": None}
        (home / ".config/obsidian/obsidian.json").write_text(json.dumps({"vaults": vaults}))
        (work / "CLAUDE.md").write_text("Depths in metres.")
        self.assertEqual(SOURCES["claude-code"].find(Path.cwd()), [home / "own", home / ".claude", work])
        self.assertEqual(SOURCES["obsidian"].find(Path.cwd()), [home / "vault"])
        self.assertEqual([SOURCES[name].find(Path.cwd()) for name in ("agents-md", "cursor-rules")], [[work], [work]])
        (home / ".config/obsidian/obsidian.json").write_text('{"vaults": [1]}')
        self.assertEqual(SOURCES["obsidian"].find(Path.cwd()), [])


class ServerMemoryTests(SourceTestCase):
    def test_entities_become_memories_with_their_relations(self) -> None:
        path = DATA / "server-memory" / "memory.jsonl"
        feed, maya, harbour = self.memories("server-memory", path).values()
        content = "- Allows 30 requests a minute\n- Answers 429 for an hour afterwards\n- depends_on Øster Hurup"
        self.assert_record(feed, key="Tide gauge feed", title="Tide gauge feed", content=content, tags=("service",))
        self.assert_record(feed, relations=(("depends_on", "Øster Hurup"),), place=f"{path}:1")
        self.assertEqual(maya.relations, (("related_to", "Tide gauge feed"),))
        self.assertIn("- knows Nobody", maya.content)
        self.assertEqual(harbour.content, "")

    def test_lines_that_are_cut_doubled_or_of_another_tool_do_not_keep_the_others_away(self) -> None:
        path = self.home / "memory.jsonl"
        entity = {"type": "entity", "entityType": "thing"}
        a, b = ({**entity, "name": name, "observations": [f"{name} rule"]} for name in "AB")
        lines = [
            json.dumps({"type": "_aim", "source": "mcp-knowledge-graph"}),
            json.dumps(a) + json.dumps(b),
            json.dumps(a)[:-20],
            json.dumps({"name": "C", "entityType": "Decision", "observations": ["simple"], "createdAt": 1768061136}),
            json.dumps({"entities": [{"name": "D", "observations": ["d rule"]}, 7], "relations": []}),
            "\xff garbage",
            json.dumps({**entity, "name": "E"}),
        ]
        path.write_text("\n".join(lines), encoding="latin-1")
        records = self.memories("server-memory", path)
        contents = {name: record.content for name, record in records.items()}
        self.assertEqual(contents, {"A": "- A rule", "B": "- B rule", "C": "- simple", "D": "- d rule", "E": ""})
        self.assert_record(records["C"], tags=("decision",), created=datetime(2026, 1, 10, 16, 5, 36, tzinfo=UTC))
        why = [
            "entries of the unknown type '_aim': 1",
            "entries that are no entity and no relation: 1",
            "lines that are cut off, too long or no JSON: 2",
        ]
        self.assertEqual(self.reasons("server-memory", path), why)
        path.write_text(json.dumps({"entities": [a, b], "relations": []}, indent=2))
        self.assertEqual(list(self.memories("server-memory", path)), ["A", "B"])

    def test_entries_of_one_name_are_one_entity(self) -> None:
        path = self.home / "memory.jsonl"
        entity = {"type": "entity", "name": "A", "entityType": "thing"}
        dated = {"content": "rule three", "timestamp": "2026-02-01"}
        observations: list[list[Any]] = [["rule one"], ["rule two", "rule one"], [dated, {"id": 1}]]
        lines = [{**entity, "observations": texts} for texts in observations]
        lines[0]["createdAt"] = "2026-01-14T22:28:02.540Z"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        created, updated = datetime(2026, 1, 14, 22, 28, 2, 540_000, UTC), datetime(2026, 2, 1, tzinfo=UTC)
        (record,) = self.memories("server-memory", path).values()
        self.assert_record(record, content="- rule one\n- rule two\n- rule three", created=created, updated=updated)
        merged = "an entry of a name that is there already: its texts are added to that"
        self.assertEqual(self.reasons("server-memory", path), [merged, merged, "observations without a text: 1"])

    def test_other_and_hostile_files_get_one_sentence(self) -> None:
        path = self.home / "memory.jsonl"
        for content in (
            bytes(range(256)) * 20,
            '{"type": "entity"}'.encode("utf-16"),
            b'{"type": "entity", "name": "A", "entity',
            b'{"type": "node", "id": 1}',
            b"[1, 2]",
            b"[" * 100_000 + b"]" * 100_000,
            b'{"name": "' + b"x" * (5 * 2**20) + b'"}',
        ):
            path.write_bytes(content)
            with self.subTest(content[:60]):
                self.assert_refused("server-memory", path)
        for place in (Path("/nowhere/memory.jsonl"), Path("/")):
            self.assert_refused("server-memory", place, "can't read")
        path.write_text(json.dumps({"type": "relation", "from": "A", "to": "B", "relationType": "knows"}))
        self.assertEqual(self.reasons("server-memory", path), ["relations of 'A', which is no entity: 1"])


class ImportTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="maya", source="cli"))
        self.top = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def report(self, source: str, path: Path) -> ImportReport:
        (report,) = Importer(source, "alpha", is_only=True).run(SOURCES[source].read(path), place=str(path))
        return report

    def counts(self, source: str, path: Path) -> dict[str, int]:
        return self.report(source, path).counts

    def test_notes_that_were_imported_as_markdown_are_the_same_texts(self) -> None:
        vault = Path(shutil.copytree(DATA / "obsidian", self.top / "vault"))
        import_markdown(directory=vault)
        self.assertEqual(self.counts("obsidian", vault), {"duplicates": 6, "left_out_count": 5})

    def test_an_edited_section_is_revised_even_if_its_heading_has_a_secret(self) -> None:
        file = self.top / "AGENTS.md"
        file.write_text("# Token ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a\n\nDepths.\n\n# Berths\n\nTen.\n")
        self.assertEqual(self.counts("agents-md", self.top), {"created": 2})
        self.assertEqual(self.counts("agents-md", self.top), {"unchanged": 2})
        file.write_text(file.read_text().replace("Depths.", "Depths in metres."))
        self.assertEqual(self.counts("agents-md", self.top), {"revised": 1, "unchanged": 1})

    def test_relations_that_form_a_cycle_there_become_related_to(self) -> None:
        for name, other in (("a", "b"), ("b", "a")):
            (self.top / f"{name}.md").write_text(f"---\npermalink: {name}\n---\n- depends_on [[{other}]]")
        report = self.report("basic-memory", self.top)
        self.assertEqual((report.created, report.relations), (2, 2))

    def test_what_no_text_can_hold_is_left_out(self) -> None:
        path = self.top / "export.json"
        entries = {"1": "\ud800", "\ud800\n": "Depths.", "3": "x" * 100_001, "4": "Berths."}
        path.write_text(json.dumps([{"id": key, "memory": text} for key, text in entries.items()]))
        report = self.report("mem0", path)
        self.assertEqual((report.created, report.left_out_count), (2, 2))
