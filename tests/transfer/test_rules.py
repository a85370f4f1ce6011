"""The rules of the clients in a repository."""

from __future__ import annotations

from memories.models import Memory
from memories.schemas import MemoryDelete
from memories.services import delete_memory
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import ImportReport, LeftOutRecord
from memoryhub.transfer.sources import SOURCES
from memoryhub.transfer.sources.rule_files import RULE_FILES, RuleFile
from tests.support import HubTestCase
from tests.transfer.test_text_sources import SourceTestCase, write_files


def example_of(rule: RuleFile) -> str:
    return rule.pattern.replace("/**/", "/deep/").replace("*", "x")


class RuleFileTests(SourceTestCase):
    def test_every_client_has_its_files_read(self) -> None:
        folder = self.folder() / "harbour"
        matter = "---\nDESCRIPTION: Tides\n{}: ['feeds/*.py', gauges/*.csv]\n---\n"
        for number, rule in enumerate(RULE_FILES):
            start = matter.format(rule.globs) if rule.globs else ""
            write_files(folder, {f"{number}/{example_of(rule)}": f"{start}Use gauge {number}.\n"})
        contents = {record.key: record.content for record in self.memories("rules", folder).values()}
        expected = {}
        for number, rule in enumerate(RULE_FILES):
            applies = "Applies to `feeds/*.py`, `gauges/*.csv`.\n\n" if rule.globs else ""
            expected[f"harbour/{number}/{example_of(rule)}"] = f"{applies}Use gauge {number}."
        self.assertEqual(contents, expected)

    def test_rules_of_a_folder_below_are_read(self) -> None:
        folder = self.folder() / "harbour"
        names = ["GEMINI.md", ".clinerules/a.md", ".github/copilot-instructions.md", ".roo/rules-code/a.md"]
        write_files(folder, {f"pilot/{name}": f"Rule of {name}." for name in names})
        self.assertCountEqual(self.memories("rules", folder), [f"harbour/pilot/{name}" for name in names])

    def test_other_files_of_the_clients_are_not_read(self) -> None:
        folder = self.folder() / "harbour"
        names = [
            ".clinerules/workflows/release.md",
            ".cursor/commands/release.md",
            ".cursor/rules/notes.md",
            ".github/ISSUE_TEMPLATE/bug.md",
            ".github/instructions/notes.md",
            ".kiro/specs/design.md",
            ".roo/commands/release.md",
            ".vscode/AGENTS.md",
            "node_modules/ship/AGENTS.md",
            "copilot-instructions.md",
            "guidelines.md",
            "CONVENTIONS.md",
        ]
        write_files(folder, {**dict.fromkeys(names, "Not a rule."), "AGENTS.md": "A rule."})
        self.assertEqual(list(self.memories("rules", folder)), ["harbour/AGENTS.md"])

    def test_conventions_are_read_if_aider_reads_them(self) -> None:
        for read in ("CONVENTIONS.md", "[docs/style.md, CONVENTIONS.md, ../secret.md]", "\n  - CONVENTIONS.md"):
            folder = self.folder() / "harbour"
            write_files(folder, {"CONVENTIONS.md": "Use tabs.", ".aider.conf.yml": f"model: x\nread: {read}\n"})
            write_files(folder.parent, {"secret.md": "secret"})
            self.assertEqual(list(self.memories("rules", folder)), ["harbour/CONVENTIONS.md"])

    def test_rules_that_are_a_link_or_an_import_of_others_are_read_once(self) -> None:
        folder = self.folder() / "harbour"
        write_files(folder, {"AGENTS.md": "Use recorded gauges.", "CLAUDE.md": "@AGENTS.md\n", ".github/a": ""})
        (folder / "GEMINI.md").symlink_to("AGENTS.md")
        (folder / ".github/copilot-instructions.md").symlink_to("../AGENTS.md")
        self.assertEqual(list(self.memories("rules", folder)), ["harbour/AGENTS.md"])
        why = "a link to AGENTS.md, which is imported itself"
        places = [folder / ".github/copilot-instructions.md", folder / "GEMINI.md"]
        self.assertCountEqual(self.left("rules", folder), [LeftOutRecord(str(place), why) for place in places])

    def test_a_folder_without_rules_gets_one_sentence(self) -> None:
        self.assert_refused("rules", self.folder(), "there is no AGENTS.md, CLAUDE.md or other file with rules")


class SharedRuleTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="maya", source="cli"))
        self.folder = self.home / "harbour"
        write_files(self.folder, {"AGENTS.md": "Use recorded gauges.", "CLAUDE.md": "@AGENTS.md"})

    def run_import(self, source: str) -> ImportReport:
        (report,) = Importer(source, "alpha", is_only=True).run(SOURCES[source].read(self.folder), place="")
        return report

    def test_the_imports_of_each_source_are_continued_by_the_others(self) -> None:
        for source in ("agents-md", "claude-code", "rules"):
            report = self.run_import(source)
            self.assertEqual((report.created, report.unchanged), (source == "agents-md", source != "agents-md"))
        (self.folder / "AGENTS.md").write_text("Use gauges that were recorded.")
        for source in ("claude-code", "rules", "agents-md"):
            report = self.run_import(source)
            self.assertEqual((report.revised, report.unchanged), (source == "claude-code", source != "claude-code"))
        memory = Memory.objects.live().get()
        self.assertEqual(memory.topic_key, "import:agents-md:harbour/AGENTS.md")

    def test_a_rule_that_was_deleted_here_is_not_brought_back_by_another_source(self) -> None:
        self.run_import("agents-md")
        delete_memory(command=MemoryDelete(id=Memory.objects.live().get().id))
        report = self.run_import("rules")
        self.assertEqual((report.created, report.deleted), (0, 1))

    def test_a_copy_for_another_client_is_stored_once(self) -> None:
        (self.folder / "CLAUDE.md").write_text("Use recorded gauges.")
        report = self.run_import("rules")
        self.assertEqual((report.created, report.duplicates), (1, 1))
