"""Tools that keep text files: what their own files become, and what hostile ones do not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.test import SimpleTestCase

from memories.importing import import_markdown
from memories.importing.sections import parse_document
from memoryhub.core.errors import Invalid
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record, Report, SessionRecord
from memoryhub.transfer.sources import SOURCES
from tests.support import HubTestCase

DATA = Path(__file__).parent / "data"


class SourceTestCase(SimpleTestCase):
    def folder(self) -> Path:
        return Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    # Outside this repository, so that its name is in no key
    def copy(self, data: str) -> Path:
        return Path(shutil.copytree(DATA / data, self.folder() / "harbour"))

    def read(self, source: str, path: Path) -> list[Record]:
        return list(SOURCES[source].read(path))

    def memories(self, source: str, path: Path) -> dict[str, MemoryRecord]:
        return {record.key: record for record in self.read(source, path) if isinstance(record, MemoryRecord)}

    def sessions(self, source: str, path: Path) -> list[SessionRecord]:
        return [record for record in self.read(source, path) if isinstance(record, SessionRecord)]

    def left(self, source: str, path: Path) -> list[LeftOut]:
        return [record for record in self.read(source, path) if isinstance(record, LeftOut)]

    def assert_refused(self, source: str, path: Path, why: str = "") -> None:
        with self.subTest(source=source, path=path, why=why), self.assertRaises(Invalid) as refused:
            self.read(source, path)
        message = refused.exception.message
        self.assertIn(why, message)
        self.assertEqual((message.count("\n"), len(message) < 300), (0, True), message)


class AgentsMdTests(SourceTestCase):
    def test_each_section_becomes_a_guideline(self) -> None:
        folder = self.copy("agents-md")
        first, build, tests, pilot = self.memories("agents-md", folder).values()
        self.assertEqual(
            build,
            MemoryRecord(
                key="harbour/AGENTS.md#harbour/build",
                title="AGENTS.md › Harbour › Build",
                content="Run `make charts` before you commit a chart.",
                kind="guideline",
                place=str(folder / "AGENTS.md"),
            ),
        )
        keys = ["harbour/AGENTS.md", "harbour/AGENTS.md#harbour/tests", "harbour/pilot/AGENTS.md#pilot"]
        self.assertEqual([record.key for record in (first, tests, pilot)], keys)

    def test_keys_stay_when_another_section_changes(self) -> None:
        folder = self.copy("agents-md")
        before = self.memories("agents-md", folder)
        file = folder / "AGENTS.md"
        file.write_text(
            file.read_text().replace("a second", "two seconds").replace("# Harbour", "# Harbour\n\n## New\n\nNew.")
        )
        after = self.memories("agents-md", folder)
        changed = {key for key, record in after.items() if before.get(key) != record}
        self.assertEqual(changed, {"harbour/AGENTS.md#harbour/new", "harbour/AGENTS.md#harbour/tests"})
        self.assertLessEqual(before.keys(), after.keys())


class CursorRulesTests(SourceTestCase):
    def test_a_rule_becomes_a_guideline_that_names_its_files(self) -> None:
        folder = self.copy("cursor-rules")
        first, names, tides, depths, orders = self.memories("cursor-rules", folder).values()
        self.assertEqual(
            tides,
            MemoryRecord(
                key="harbour/.cursor/rules/tides.mdc",
                title=".cursor/rules/tides.mdc › Reading the tide feed",
                content="Applies to `feeds/**/*.{py,toml}`, `gauges/*.csv`.\n\n"
                "# Tide feed\n\nRetry after an hour when the feed answers 429.",
                kind="guideline",
                place=str(folder / ".cursor/rules/tides.mdc"),
            ),
        )
        self.assertEqual((depths.title, depths.content), (".cursor/rules/charts/depths.mdc", "Write depths in metres."))
        self.assertEqual(
            [record.title for record in (first, names, orders)],
            [".cursorrules", ".cursorrules › Names", "pilot/.cursor/rules/orders.mdc"],
        )


class ClaudeCodeTests(SourceTestCase):
    def test_its_memory_becomes_memories_of_the_kind_that_it_has_there(self) -> None:
        folder = self.copy("claude-code")
        feed, metres = self.memories("claude-code", folder).values()
        place = folder / "projects/-srv-harbour/memory"
        self.assertIn(
            LeftOut(str(place / "MEMORY.md"), "it only lists the other files"), self.left("claude-code", folder)
        )
        self.assertEqual(
            metres,
            MemoryRecord(
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
            ),
        )
        self.assertEqual((feed.kind, feed.type, feed.relations), ("knowledge", "reference", ()))

    def test_transcripts_become_sessions_of_what_was_typed_and_answered(self) -> None:
        folder = self.copy("claude-code")
        first, second = self.sessions("claude-code", folder)
        self.assertEqual(first.key, "5f0c6a52-3d1e-4a7b-9c55-0c1f6f1f2a01")
        self.assertEqual(
            [(turn.prompt, turn.answer) for turn in first.turns],
            [
                (
                    "What does the gauge read?",
                    "I will look at the tide table first.\n\nThe gauge at Øster Hurup reads 0.8 m at 06:12.",
                ),
                ("And when the feed answers 429?", "Retry after an hour, because the feed answers 429 for that long."),
                ("Ask a subagent for the pier.", "Pier 4 is nearest."),
                ("How deep is the basin?", "Retry after an hour, because the feed answers 429 for that long."),
            ],
        )
        self.assertEqual(first.summary, "The gauge was read, and the retry of the feed agreed.")
        self.assertEqual((first.purpose, first.project), ("What does the gauge read?", "/srv/harbour"))
        self.assertEqual(first.started, datetime(2026, 11, 23, 10, 2, 59, 639000, UTC))
        self.assertEqual(first.started, first.turns[0].at)
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
        (session,) = self.sessions("claude-code", folder)
        self.assertEqual(len(self.read("claude-code", folder)), 1)
        turns = [(turn.prompt, turn.answer) for turn in session.turns]
        self.assertEqual(turns, [("When is low water?", "At 12:31."), ("/tides Øster Hurup", "0.8 m")])
        self.assertEqual((session.purpose, session.summary), ("Tides", ""))

    def test_what_is_whole_of_a_broken_transcript_is_read(self) -> None:
        prompt, answer = json.dumps(_line("user", "Low water?")), json.dumps(_line("assistant", "At 12:31."))
        folder = self.transcript(prompt, "[" * 100_000, '{"a": "' + "x" * 5_000_000 + '"}', answer, prompt[:40])
        (session,), (left,) = self.sessions("claude-code", folder), self.left("claude-code", folder)
        self.assertEqual([(turn.prompt, turn.answer) for turn in session.turns], [("Low water?", "At 12:31.")])
        place = folder / "projects/-srv-harbour/1.jsonl:2"
        self.assertEqual(left, LeftOut(str(place), "lines that are cut off, too long or no JSON: 3"))

    def test_a_session_has_at_most_so_many_turns(self) -> None:
        with patch("memoryhub.transfer.sources.claude_transcripts.MAX_TURNS", 2):
            folder = self.transcript(*[json.dumps(_line("user", "Low water?"))] * 5)
            (session,), (left,) = self.sessions("claude-code", folder), self.left("claude-code", folder)
        self.assertEqual((len(session.turns), left.why), (2, "turns after the first 2: 3"))

    def test_instructions_become_guidelines(self) -> None:
        folder = self.folder() / "harbour"
        (folder / ".claude" / "rules").mkdir(parents=True)
        (folder / "CLAUDE.md").write_text("@docs/berths.md\n\n# Tests\n\nUse recorded gauges. See @AGENTS.md.\n")
        (folder / "CLAUDE.local.md").write_text("Answer in Danish.")
        (folder / ".claude" / "rules" / "feed.md").write_text('---\npaths: ["feeds/*.py"]\n---\nRetry after an hour.\n')
        local, tests, rule = self.memories("claude-code", folder).values()
        self.assertEqual(
            (local.key, local.kind, local.content), ("harbour/CLAUDE.local.md", "guideline", "Answer in Danish.")
        )
        (left,) = self.left("claude-code", folder)
        self.assertEqual(
            (tests.key, tests.content), ("harbour/CLAUDE.md#tests", "Use recorded gauges. See @AGENTS.md.")
        )
        self.assertEqual(left, LeftOut(str(folder / "CLAUDE.md"), "files that it imports with @: 2"))
        self.assertEqual(rule.content, "Applies to `feeds/*.py`.\n\nRetry after an hour.")

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

    def test_a_repository_with_projects_of_its_own_is_no_settings_folder(self) -> None:
        folder = self.folder() / "harbour"
        (folder / "projects" / "tides").mkdir(parents=True)
        (folder / "projects" / "tides" / "levels.jsonl").write_text('{"level": 0.8}')
        (folder / "CLAUDE.md").write_text("Depths in metres.")
        self.assertEqual(list(self.memories("claude-code", folder)), ["harbour/CLAUDE.md"])

    def transcript(self, *lines: str) -> Path:
        folder = self.folder()
        path = folder / "projects" / "-srv-harbour" / "1.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines))
        return folder


class ObsidianTests(SourceTestCase):
    def test_sections_of_notes_become_memories_with_their_links(self) -> None:
        vault = self.copy("obsidian")
        by_key = self.memories("obsidian", vault)
        self.assertEqual(
            by_key["harbour/Harbour/Tide gauge.md"],
            MemoryRecord(
                key="harbour/Harbour/Tide gauge.md",
                title="Tide gauge (Gauge 4)",
                content="Reads the level each minute. #sensor",
                type="note",
                tags=("gauges", "harbour/øst", "sensor"),
                created=datetime(2026, 3, 1, 8, 30, tzinfo=UTC),
                relations=(("related_to", "harbour/Harbour/Berths.md#berths"),),
                place=str(vault / "Harbour/Tide gauge.md"),
            ),
        )
        links = {key: [target for _, target in record.relations] for key, record in by_key.items()}
        self.assertEqual(
            links,
            {
                "harbour/Retries.md": [],
                "harbour/Retries.md#after-429": ["harbour/Harbour/Tide gauge.md#feed"],
                "harbour/Harbour/Berths.md#berths": ["harbour/Harbour/Tide gauge.md"],
                "harbour/Harbour/Tide gauge.md": ["harbour/Harbour/Berths.md#berths"],
                "harbour/Harbour/Tide gauge.md#feed": ["harbour/Retries.md#after-429"],
                "harbour/Harbour/Tide gauge.md#repairs": [],
            },
        )
        self.assertEqual(by_key["harbour/Harbour/Berths.md#berths"].title, "Berths")
        self.assertEqual(by_key["harbour/Harbour/Tide gauge.md#repairs"].tags, ("gauges", "harbour/øst"))

    def test_what_is_no_note_is_left_out_by_name(self) -> None:
        vault = self.copy("obsidian")
        self.assertEqual(
            [(Path(left.place).relative_to(vault).as_posix(), left.why) for left in self.left("obsidian", vault)],
            [
                ("Empty.md", "it has no text"),
                ("Reading.md", "it is a template"),
                ("Templates/Berth.md", "it is a template"),
                (".", "files that are no notes: 1 .canvas, 1 .png"),
                (".", "links to notes that do not exist: 1"),
            ],
        )

    def test_links_find_the_note_that_the_application_opens(self) -> None:
        vault = self.folder()
        (vault / ".obsidian").mkdir()
        for name, text in {
            "a/Log.md": "nearest: [[Node.js]] [[log]] [[b/Log]] [[../b/Log]] [[c/Log|other]]",
            "b/Log.md": "B",
            "a/c/Log.md": "C",
            "Node.js.md": "N",
        }.items():
            (vault / name).parent.mkdir(parents=True, exist_ok=True)
            (vault / name).write_text(text)
        log = self.memories("obsidian", vault)[f"{vault.name}/a/Log.md"]
        found = [key.removeprefix(f"{vault.name}/") for _, key in log.relations]
        self.assertEqual(found, ["Node.js.md", "b/Log.md", "a/c/Log.md"])

    def test_a_part_of_a_vault_has_the_same_keys(self) -> None:
        vault = self.copy("obsidian")
        self.assertEqual(next(iter(self.memories("obsidian", vault / "Harbour"))), "harbour/Harbour/Berths.md#berths")


class HostileTests(SourceTestCase):
    def test_hostile_texts_are_left_out_with_the_reason(self) -> None:
        cases = {
            "binary": (bytes(range(256)) * 20, "it is binary, or its text is not in UTF-8"),
            "another encoding": ("Depths in metres.".encode("utf-16"), "it is binary, or its text is not in UTF-8"),
            "without a mark": ("Depths".encode("utf-16-le"), "it is binary, or its text is not in UTF-8"),
            "huge": (b"x" * (2 * 2**20 + 1), "it is larger than 2 MB"),
            "deep": (b"---\na: " + b"[" * 5000 + b"\n---\nx", "its front matter is nested too deeply"),
            "a listing": (b"# x\n\ny\n" * 2_001, "it has 2,001 headings"),
            "a long listing": (b"# x\ny\n" * 300_000, "it has 22,000 headings, more than 21,999"),
            "underlines": (b"x\n=\n" * 400_000, "it has 22,000 headings, more than 21,999"),
        }
        for source, (folder, name) in self.places().items():
            for case, (content, why) in cases.items():
                (folder / name).write_bytes(content)
                if source == "cursor-rules" and "headings" in why:  # it has no sections
                    continue
                with self.subTest(source=source, case=case):
                    left = [record.why for record in self.left(source, folder)]
                    self.assertRegex(left[0], f"^{why}")
                    self.assertEqual(len(left), len(self.read(source, folder)))
                    self.assertLess(len(left[0]), 200)

    def test_runs_in_a_heading_take_linear_time(self) -> None:
        headings = {"a" + " " * 1_000_000 + "b": "a b", "a" + "_" * 1_000_000 + "b": "a" + "_" * 1_000_000 + "b"}
        for heading, plain in headings.items():
            (section,) = parse_document(f"# {heading}\n\ntext", ".md").sections
            self.assertEqual(section.headings, (plain,))
        marked = parse_document("#  A `b`  *c* __d__ e_f <g>  [h](i) {#j}  ##\n\ntext", ".md").sections
        self.assertEqual(marked[0].headings, ("A b c d e_f h",))

    def test_front_matter_that_expands_stays_as_it_is(self) -> None:
        bomb = "---\na: &a [x, x]\nb: &b [*a, *a]\nglobs: !!python/object:os.system [*b, *b]\ntags: *b\n---\nDepths.\n"
        for source, (folder, name) in self.places().items():
            (folder / name).write_text(bomb)
            with self.subTest(source=source):
                (record,) = self.memories(source, folder).values()
                self.assertTrue(record.content.endswith("Depths."))
                self.assertLess(len(str(record)), 1_000)

    def test_a_mark_of_utf_8_and_other_line_ends_are_read(self) -> None:
        for source, (folder, name) in self.places().items():
            (folder / name).write_bytes(b"\xef\xbb\xbf---\r\ntags: a\r\n---\r\nDepths\rin metres.\r\n")
            (record,) = self.memories(source, folder).values()
            self.assertEqual(record.content, "Depths\nin metres.", source)

    def test_links_out_of_the_folder_and_pipes_are_not_read(self) -> None:
        outside = self.folder()
        (outside / "secret.md").write_text("secret")
        for source, (folder, name) in self.places().items():
            (folder / name).symlink_to(outside / "secret.md")
            (folder / "elsewhere").symlink_to(outside)
            (folder / "loop").symlink_to(folder / "loop")
            (folder / "pipe").mkdir()
            os.mkfifo(folder / "pipe" / Path(name).name)
            with self.subTest(source=source):
                left = self.left(source, folder)
                self.assertTrue(left)
                self.assertEqual(len(left), len(self.read(source, folder)))
                for record in left:
                    self.assertIn("a link, which may lead out of the folder", record.why)

    def test_deep_and_full_folders_are_bounded(self) -> None:
        for source, (folder, name) in self.places().items():
            (folder / name).write_text("Depths.")
            deep = folder.joinpath(*["d"] * 80)
            deep.mkdir(parents=True)
            (deep / "AGENTS.md").write_text("Too deep.")
            with self.subTest(source=source):
                (record,) = self.memories(source, folder).values()
                self.assertEqual(record.content, "Depths.")
                with patch("memoryhub.transfer.sources.reading.MAX_ENTRIES", 40), self.assertRaises(Invalid) as refused:
                    self.read(source, folder)
                self.assertRegex(str(refused.exception), "has more than 40 files; name a smaller folder$")

    def test_a_place_without_data_gets_one_sentence(self) -> None:
        folder = self.folder()
        (folder / "file").write_text("x")
        for source in self.places():
            for path in (folder, folder / "file", folder / "nowhere", Path("\0")):
                self.assert_refused(source, path)

    def places(self) -> dict[str, tuple[Path, str]]:
        """Return a folder for each source, and a name of a file that it reads there."""
        files = {
            "claude-code": "CLAUDE.md",
            "agents-md": "AGENTS.md",
            "cursor-rules": ".cursor/rules/tides.mdc",
            "obsidian": "Tides.md",
        }
        places = {source: (self.folder(), name) for source, name in files.items()}
        for folder, name in places.values():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (places["obsidian"][0] / ".obsidian").mkdir()
        return places


class FindTests(SourceTestCase):
    def test_usual_places_are_found_that_have_data(self) -> None:
        home, work = self.folder(), self.copy("agents-md")
        (work / ".git").mkdir()
        (work / ".git" / "HEAD").write_text("ref: refs/heads/main")
        self.enterContext(contextlib.chdir(work / "pilot"))
        self.enterContext(patch.dict(os.environ, HOME=str(home), CLAUDE_CONFIG_DIR=str(home / "own")))
        self.assertEqual([SOURCES[name].find() for name in ("claude-code", "obsidian")], [[], []])
        for folder in (".claude/projects", "own/projects", "vault/.obsidian", ".config/obsidian"):
            (home / folder).mkdir(parents=True)
        vaults = {"a": {"path": str(home / "vault")}, "b": {"path": str(home / "gone")}, "c": None}
        (home / ".config/obsidian/obsidian.json").write_text(json.dumps({"vaults": vaults}))
        (work / "CLAUDE.md").write_text("Depths in metres.")
        self.assertEqual(SOURCES["claude-code"].find(), [home / "own", home / ".claude", work])
        self.assertEqual(SOURCES["obsidian"].find(), [home / "vault"])
        self.assertEqual([SOURCES[name].find() for name in ("agents-md", "cursor-rules")], [[work], [work]])
        (home / ".config/obsidian/obsidian.json").write_text('{"vaults": [1]}')
        self.assertEqual(SOURCES["obsidian"].find(), [])


class ImportTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="maya", source="cli"))
        self.top = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def report(self, source: str, folder: Path) -> Report:
        (report,) = Importer(source, "alpha", is_only=True).run(SOURCES[source].read(folder), place=str(folder))
        return report

    def run_it(self, source: str, folder: Path) -> dict[str, int]:
        return self.report(source, folder).counts

    def test_notes_that_were_imported_as_markdown_are_the_same_texts(self) -> None:
        vault = Path(shutil.copytree(DATA / "obsidian", self.top / "vault"))
        import_markdown(directory=vault)
        self.assertEqual(self.run_it("obsidian", vault), {"duplicates": 6, "left_out_count": 5})

    def test_an_edited_section_is_revised_even_if_its_heading_has_a_secret(self) -> None:
        file = self.top / "AGENTS.md"
        file.write_text("# Token ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a\n\nDepths.\n\n# Berths\n\nTen.\n")
        self.assertEqual(self.run_it("agents-md", self.top), {"created": 2})
        self.assertEqual(self.run_it("agents-md", self.top), {"unchanged": 2})
        file.write_text(file.read_text().replace("Depths.", "Depths in metres."))
        self.assertEqual(self.run_it("agents-md", self.top), {"revised": 1, "unchanged": 1})


def _line(role: str, content: Any, *, model: str = "opus", **fields: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, "model": model}
    return {"type": role, "message": message, "uuid": "1", "cwd": "/srv/harbour", **fields}


class ServerMemoryTests(SourceTestCase):
    def file(self, content: bytes) -> Path:
        path = self.folder() / "memory.jsonl"
        path.write_bytes(content)
        return path

    def test_entities_become_memories_with_their_relations(self) -> None:
        path = DATA / "server-memory" / "memory.jsonl"
        feed, maya, harbour = self.memories("server-memory", path).values()
        self.assertEqual(
            feed,
            MemoryRecord(
                key="Tide gauge feed",
                title="Tide gauge feed",
                content="- Allows 30 requests a minute\n- Answers 429 for an hour afterwards\n- depends_on Øster Hurup",
                tags=("service",),
                relations=(("depends_on", "Øster Hurup"),),
                place=f"{path}:1",
            ),
        )
        self.assertEqual(maya.relations, (("related_to", "Tide gauge feed"),))
        self.assertIn("- knows Nobody", maya.content)
        self.assertEqual(harbour.content, "")

    def test_relations_of_nothing_are_named(self) -> None:
        line = {"type": "relation", "from": "A", "to": "B", "relationType": "knows"}
        (left,) = self.left("server-memory", self.file(json.dumps(line).encode()))
        self.assertEqual(left.why, "relations of 'A', which is no entity: 1")

    def test_hostile_files_get_one_sentence(self) -> None:
        cases = {
            "binary": bytes(range(256)) * 20,
            "another encoding": '{"type": "entity"}'.encode("utf-16"),
            "truncated": b'{"type": "entity", "name": "A", "entity',
            "another schema": b'{"type": "node", "id": 1}',
            "a list": b"[1, 2]",
            "deep": b"[" * 100_000 + b"]" * 100_000,
            "huge": b'{"name": "' + b"x" * (5 * 2**20) + b'"}',
            "an entity without observations": b'{"type": "entity", "name": "A", "entityType": "t"}',
        }
        for name, content in cases.items():
            with self.subTest(name):
                self.assert_refused("server-memory", self.file(content))
        for path in (Path("/nowhere/memory.jsonl"), Path("/")):
            self.assert_refused("server-memory", path, "can't read")
