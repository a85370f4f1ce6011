"""Decisions as files: records imported in every supported format, exported as MADR, and drawn as graphs."""

from __future__ import annotations

import os
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import SimpleTestCase
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from decisions import services
from decisions.admin.decision import draw_lineage
from decisions.exporting import chosen_decisions, madr_files, mermaid_graph
from decisions.importing import AdrReport, import_adrs
from decisions.models import LINEAGE, Decision, DecisionEdge, EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark, DecisionRecord, DecisionSupersede, DecisionUnlink
from memories.importing import import_markdown
from memories.models import Memory
from memories.pack import preview_pack
from memories.schemas import MemorySearch
from memories.schemas.query import ContextPackRequest
from memories.selectors import search
from memoryhub.core import log
from memoryhub.core.admin.svg import BOX_HEIGHT, BOX_WIDTH, Edge
from memoryhub.core.errors import NotFound
from memoryhub.core.text import flat
from tests.decisions.base import NOON, DecisionsTestCase

OURS = Path(__file__).parents[2] / "docs/decisions"
ONE, TWO = "0001-one.md", "0002-two.md"
COMMITTER = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_AUTHOR_DATE": "2022-01-02T03:04:05Z",
}
LATER = {"GIT_AUTHOR_NAME": "Bob", "GIT_AUTHOR_DATE": "2024-01-02T03:04:05Z"}


def nygard(title: str, *, status: str = "Accepted", decision: str = "So be it.") -> str:
    return f"# {title}\n\n## Status\n\n{status}\n\n## Context\n\nWhy.\n\n## Decision\n\n{decision}\n"


class ImportingTests(DecisionsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def import_again(self) -> AdrReport:
        return import_adrs(directory=self.folder)

    def import_one(self, **fields: str) -> AdrReport:
        self.write(ONE, nygard("1. One", **fields))
        return self.import_again()

    def of(self, source: str):
        return Decision.objects.filter(source=source).latest("id")

    def edges(self) -> set[tuple[str, str, str]]:
        sources = dict(Decision.objects.values_list("id", "source"))
        edges = DecisionEdge.objects.values_list("from_id", "relation", "to_id")
        return {(sources[start], relation, sources[end]) for start, relation, end in edges}

    def test_links_become_edges_whichever_file_has_them_and_a_second_import_writes_nothing(self):
        three, four = "0003-three.md", "0004-four.md"
        self.write(ONE, nygard("1. One", status=f"Superseded by [3. Three]({three})"))
        self.write(TWO, nygard("2. Two", status="Accepted\n\nDepends on ADR-4"))
        self.write(three, nygard("3. Three"))
        self.write(four, nygard("4. Four", status=f"Accepted\n\nAmended by [3](./{three})"))
        report = self.import_again()
        self.assertEqual((report.created, report.edges, report.problems), (4, 3, []))
        edges = {(three, "supersedes", ONE), (TWO, "depends_on", four), (three, "refines", four)}
        self.assertEqual(self.edges(), edges)
        self.assertEqual((self.of(ONE).status, self.of(three).topic), ("superseded", "one"))
        before = log.head()
        report = self.import_again()
        self.assertEqual((report.unchanged, report.edges, log.head()), (4, 0, before))
        self.assert_rebuilds()

    def test_a_changed_text_is_a_new_decision_that_supersedes_the_earlier(self):
        status = f"Refines [1]({ONE})"
        self.write(TWO, nygard("2. Two", status=status))
        self.import_one()
        first = self.of(TWO).id
        self.write(TWO, nygard("2. Two", status=status, decision="Otherwise."))
        self.assertEqual(self.import_again().superseding, [(TWO, self.of(TWO).id, first)])
        latest = self.get(self.of(TWO).id)
        edges = [(edge["relation"], edge["to"]) for edge in latest["edges"]]
        self.assertEqual(edges, [("refines", self.of(ONE).id), ("supersedes", first)])
        self.assertEqual((latest["chosen"], self.import_again().unchanged), ("Otherwise.", 2))
        self.write(TWO, nygard("2. Two", status=status))
        self.assertEqual([name for name, *_ in self.import_again().superseding], [TWO])

    def test_a_superseded_record_whose_text_changes_stays_superseded(self):
        self.write(TWO, nygard("2. Two", status=f"Supersedes [1]({ONE})"))
        self.import_one()
        self.import_one(decision="A slip of the pen, corrected.")
        self.assertEqual(self.of(ONE).status, "superseded")
        first = Decision.objects.get(chosen="So be it.", source=ONE).id
        self.assertEqual(self.get(first)["heads"], [self.of(TWO).id])

    def test_only_an_accepted_record_retires_the_one_that_it_supersedes(self):
        for number, status in enumerate(("Proposed", "Rejected", "Deprecated"), 1):
            self.write(f"000{number}-new.md", nygard("New", status=f"{status}\n\nSupersedes ADR-1{number}"))
            self.write(f"001{number}-old.md", nygard("Old"))
        self.write("0020-called.md", nygard("Called superseded", status="Superseded by ADR-2"))
        self.write("0021-draft.md", nygard("An earlier proposal", status="Superseded by ADR-1"))
        report = self.import_again()
        problem = "the record that supersedes it is not accepted; it is imported as deprecated"
        self.assertEqual(report.problems, [("0020-called.md", problem)])
        statuses = [self.of(f"001{number}-old.md").status for number in (1, 2, 3)]
        self.assertEqual((statuses, self.of("0020-called.md").status), (["accepted"] * 3, "deprecated"))
        self.assertEqual(self.of("0021-draft.md").status, "superseded")
        self.write("0001-new.md", nygard("New", status="Accepted\n\nSupersedes ADR-11"))
        self.assertEqual(self.import_again().marked, 1)
        statuses = [self.of(name).status for name in ("0011-old.md", "0021-draft.md")]
        self.assertEqual(statuses, ["superseded"] * 2)
        self.assert_rebuilds()

    def test_a_changed_record_retires_its_earlier_text_whatever_its_status(self):
        for status in ("Accepted", "Proposed", "Rejected", "Deprecated"):
            for later in ("Accepted", "Proposed", "Rejected", "Deprecated"):
                with self.subTest(status=status, later=later):
                    name = f"{status}-{later}.md"
                    self.write(name, nygard("1. One", status=status))
                    self.import_again()
                    first = self.of(name).id
                    self.write(name, nygard("1. One", status=later, decision="Otherwise."))
                    self.import_again()
                    self.assertEqual(self.of(name).status, later.lower())
                    before = Decision.objects.get(id=first).status
                    self.assertNotIn(before, ("accepted", "proposed"))
        self.assert_rebuilds()

    def test_a_changed_status_is_marked_and_what_a_person_has_marked_stays(self):
        self.import_one(status="Proposed")
        self.assertEqual((self.import_one().marked, self.of(ONE).status), (1, "accepted"))
        services.mark_decision(command=DecisionMark(id=self.of(ONE).id, status="deprecated"))
        self.assertEqual((self.import_again().unchanged, self.of(ONE).status), (1, "deprecated"))

    def test_an_edge_that_a_person_removed_is_not_imported_again(self):
        self.write(TWO, nygard("2. Two", status=f"Supersedes [1]({ONE})"))
        self.import_one()
        edge = DecisionUnlink(id=self.of(TWO).id, relation="supersedes", to=self.of(ONE).id)
        services.unlink_decisions(command=edge)
        self.assertEqual((self.of(ONE).status, self.import_again().edges), ("accepted", 0))
        self.write(TWO, nygard("2. Two", status=f"Supersedes [1]({ONE})", decision="Otherwise."))
        self.import_again()
        self.assertEqual((self.of(ONE).status, self.edges()), ("accepted", {(TWO, "supersedes", TWO)}))
        self.assert_rebuilds()

    def test_what_a_person_superseded_or_erased_is_not_imported_again(self):
        self.import_one()
        command = DecisionSupersede.model_validate({"id": self.of(ONE).id, "chosen": "By hand."})
        by_hand = services.supersede_decision(command=command).id
        ((_, problem),) = self.import_one(decision="Late.").problems
        self.assertRegex(problem, f"its text has changed, but #{by_hand} supersedes its decision #")
        self.assertFalse(Decision.objects.filter(chosen="Late.").exists())
        self.write(TWO, nygard("2. Two"))
        self.import_one()
        log.erase_streams([f"decision:{self.of(TWO).id}"], reason="private")
        ((_, problem),) = self.import_again().problems
        self.assertRegex(problem, "has been erased and is not imported again")
        self.assertFalse(Decision.objects.filter(source=TWO).exists())

    def test_a_record_is_not_also_imported_as_sections(self):
        self.write(ONE, nygard("1. One"))
        self.write("guide.md", "# Guide\n\nHow to.\n")
        import_markdown(directory=self.folder)
        self.assertTrue(Memory.objects.live().filter(source=ONE).exists())
        self.assertGreater(self.import_again().sections_deleted, 0)
        report = import_markdown(directory=self.folder)
        self.assertEqual((report.files, report.skipped), (1, [(ONE, "imported as a decision")]))
        self.assertEqual(list(Memory.objects.live().values_list("source", flat=True)), ["guide.md"])
        log.erase_streams([f"decision:{self.of(ONE).id}"], reason="private")
        import_markdown(directory=self.folder)
        self.assertEqual(Memory.objects.live().count(), 1)

    # As a version that imported records twice left them
    def test_sections_of_a_record_are_marked_and_left_out_of_packs(self):
        self.write(TWO, nygard("2. Two", decision="Use openssl."))
        self.import_one(decision="Use gnutls.", status=f"Superseded by [2]({TWO})")
        with mock.patch("memories.importing._known_files", []):
            import_markdown(directory=self.folder)
        hits = search(command=MemorySearch(query="gnutls")).results
        (section,) = [hit for hit in hits if hit["source"] == "memory"]
        self.assertEqual(section["note"], f"superseded by decision #{self.of(ONE).id}")
        self.assertIn("superseded ×0.3", section["why"])
        text = preview_pack(command=ContextPackRequest(query="gnutls openssl")).text
        self.assertIn("Use openssl.", text)
        self.assertNotIn("gnutls", text)
        self.assertNotIn(f"{TWO} ›", text)

    def test_a_decision_that_names_a_file_as_its_source_supersedes_none_of_its_sections(self):
        self.write("README.md", "# Install\n\nRun make install.\n")
        import_markdown(directory=self.folder)
        self.record("Install", source="README.md")
        self.assertEqual(import_markdown(directory=self.folder).unchanged, 1)
        hits = search(command=MemorySearch(query="make install")).results
        self.assertEqual([hit.get("note") for hit in hits if hit["source"] == "memory"], [""])

    def test_bad_files_are_reported_and_the_others_imported(self):
        self.write("0002-none.md", "# Notes\n\nNothing.\n")
        self.write("0003-status.md", nygard("3. Three", status="Frobnicated"))
        self.write("0004-long.md", nygard("4. " + "long " * 50))
        self.write("0005-lost.md", nygard("5. Five", status="Superseded by [9](0009-lost.md)"))
        (self.folder / "0006-binary.md").write_bytes(b"# 6\0")
        self.write("0007-first.md", nygard("7. Seven", status="Refines [8](0008-second.md)"))
        self.write("0008-second.md", nygard("8. Eight", status="Depends on [7](0007-first.md)"))
        self.write("README.md", "# Decisions\n")
        report = self.import_one()
        self.assertEqual((report.created, self.of("0005-lost.md").status), (5, "deprecated"))
        problems = dict(reversed(report.problems))
        (circle,) = [name for name, problem in problems.items() if "would close a cycle" in problem]
        names = [
            f"000{number}-{name}.md" for number, name in enumerate(("none", "status", "long", "lost", "binary"), 2)
        ]
        self.assertEqual(sorted(problems), [*names, circle])
        self.assertIn("its title has more than 200 characters; the rest is left out", problems["0004-long.md"])
        self.assertIn("leads to 0009-lost.md, which is not a record in this folder", problems["0005-lost.md"])
        self.assertEqual(len(self.edges()), 1)

    def test_what_a_record_leaves_open_comes_from_its_name_and_from_git(self):
        git = partial(subprocess.run, cwd=self.folder, check=True, env=os.environ | COMMITTER)
        (self.folder / "adr").mkdir()
        for name in ("0001-one.md", "20201028-named.md"):
            self.write(f"adr/{name}", nygard("1. One"))
        git(["git", "init", "-q"])
        git(["git", "add", "."])
        git(["git", "commit", "-qm", "Add records"])
        git(["git", "mv", "adr/0001-one.md", "adr/0002-renamed.md"])
        git(["git", "commit", "-qm", "Rename"], env=os.environ | COMMITTER | LATER)
        self.write("adr/0003-new.md", nygard("3. New"))
        os.utime(self.folder / "adr/0003-new.md", (0, 86_400))
        import_adrs(directory=self.folder / "adr")
        found = {decision.source: decision for decision in Decision.objects.all()}
        fields = {name: (str(decision.decided_at)[:10], decision.author) for name, decision in found.items()}
        self.assertEqual(fields["adr/0002-renamed.md"], ("2022-01-02", "Ada"))
        self.assertEqual(fields["adr/20201028-named.md"], ("2020-10-28", "Ada"))
        self.assertEqual(fields["adr/0003-new.md"], ("1970-01-02", "unknown"))

    def test_links_are_resolved_from_the_top_and_ambiguous_numbers_reported(self):
        (self.folder / "docs/adr").mkdir(parents=True)
        for name, status in (
            ("0001-a.md", "Superseded by [ADR-2](/docs/adr/0002-b.md)"),
            ("0002-b.md", "Accepted. ADR-3 supersedes ADR-1."),
            ("0003-c.md", "Supersedes ADR-4. Related: [a page](../other.md)"),
            ("0004-d.md", "Accepted"),
            ("0004-e.md", "Accepted"),
        ):
            self.write(f"docs/adr/{name}", nygard("T", status=status))
        report = import_adrs(directory=self.folder)
        self.assertEqual(self.edges(), {("docs/adr/0002-b.md", "supersedes", "docs/adr/0001-a.md")})
        problem = (
            "its link (supersedes) leads to 4, several records have that number: docs/adr/0004-d.md, docs/adr/0004-e.md"
        )
        self.assertEqual(report.problems, [("docs/adr/0003-c.md", problem)])

    def test_what_is_too_long_is_cut_and_reported(self):
        options = "\n".join(f"- Option {number} — {'no ' * 2_000}" for number in range(40))
        text = f"# T\n\n## Context\n\n{'Why. ' * 12_000}\n\n## Decision\n\nYes.\n\n## Alternatives\n\n{options}\n"
        self.write(ONE, text)
        report = self.import_again()
        sentences = [
            "its context has 59,999 characters, more than 50,000; the rest is left out",
            "it has 40 alternatives; the first 30 are imported",
        ]
        self.assertEqual(report.problems, [(ONE, sentence) for sentence in sentences])
        decision = self.of(ONE)
        self.assertTrue(decision.context.endswith(f"(The rest is in {ONE}.)"), decision.context[-60:])
        self.assertEqual((len(decision.alternatives), len(decision.alternatives[0]["why_not"])), (30, 5_000))
        self.assertEqual(self.import_again().unchanged, 1)

    def test_secrets_and_private_blocks_are_kept_nowhere(self):
        token = "ghp_" + "a1B2" * 9
        self.import_one(decision=f"Use {token}. <private>Bob\n\n## Context\n\nBob</private>")
        self.assertNotIn(token, self.of(ONE).chosen)
        self.assertNotIn("Bob", str(Decision.objects.values().get()))

    def test_the_command_reports_imported_failed_and_skipped_files(self):
        self.write(ONE, nygard("1. One"))
        self.write(TWO, "# Notes\n")
        output, _ = self.run_import("adr")
        summary = r"imported 1 decision \(1 new, .* 0 unchanged\) and 0 edges into alpha in \d"
        self.assertRegex(output, rf"\Aimporting \S+ into alpha\n{summary}")
        self.write(ONE, nygard("1. One", decision="Otherwise."))
        output, errors = self.run_import("adr")
        self.assertRegex(output, rf"into alpha\n{ONE} has changed: #\d+ supersedes #\d+\n")
        self.assertIn(f"{TWO}: there is no section Decision", errors)
        for number in range(2, 8):
            self.write(f"000{number}-two.md", nygard(f"{number}. Number {number}"))
        self.run_import("adr")
        self.assertEqual(self.run_import("markdown")[1], f"skipped {ONE} and 6 other files: imported as a decision\n")

    def run_import(self, form: str) -> tuple[str, str]:
        output, errors = StringIO(), StringIO()
        call_command("import", form, str(self.folder), "--project", "alpha", stdout=output, stderr=errors)
        return output.getvalue(), errors.getvalue()

    def test_our_own_records_have_a_lineage(self):
        report = import_adrs(directory=OURS)
        self.assertEqual((report.problems, report.created), ([], len(list(OURS.glob("[0-9]*.md")))))
        self.assertTrue(DecisionEdge.objects.filter(relation="supersedes").exists())
        self.assertEqual(import_adrs(directory=OURS).unchanged, report.created)


MARKDOWN = [
    *"# One|## Context|### Rationale|## Links|* Supersedes ADR-1|* item|1. item|```|~~~~|---|...|===|<!--|-->".split(
        "|"
    ),
    *'because|Chosen option: "x", because y|Status: rejected|Date: 2020-01-01|    code|> quoted'.split("|"),
    *"[a](0001-a.md)|\"|'|: |- a — b|<div>|**b**|`c`|\\|&amp;|<private>|#|ä|\u2028|\x85|\ufeff|\t|\r|.|;|,".split("|"),
]

PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TEXTS = st.lists(st.one_of(st.sampled_from(MARKDOWN), PLAIN), max_size=6).flatmap(
    lambda parts: st.sampled_from(["\n", "\n\n", " ", ""]).map(lambda gap: gap.join(parts))
)

SAID = TEXTS.map(lambda text: text.replace("<private>", "")).filter(str.strip)
DECISIONS = st.fixed_dictionaries(
    {
        "title": SAID.map(lambda text: flat(text.strip())[:200].strip()).filter(bool),
        "chosen": SAID,
        "context": TEXTS,
        "rationale": TEXTS,
        "alternatives": st.lists(st.fixed_dictionaries({"option": SAID, "why_not": TEXTS}), max_size=3),
        "impact": st.sampled_from(["low", "medium", "high", "critical"]),
        "phase": st.sampled_from(["", "design"]),
        "topic": st.sampled_from(["", "storage"]),
        "status": st.sampled_from(["accepted", "accepted", "proposed", "deprecated", "rejected"]),
        "author": st.sampled_from(["Ada", "Ada, Bob", "# x"]),
        "files": st.lists(st.sampled_from(["a.py", "b c.py"]), max_size=2, unique=True),
        "decided_at": st.integers(0, 10**8).map(lambda milliseconds: NOON + timedelta(milliseconds=milliseconds)),
        "edges": st.lists(st.tuples(st.sampled_from(list(EdgeRelation)), st.integers(0, 5)), max_size=3),
    }
)

_COMPARED = "title context chosen rationale alternatives impact phase topic status author decided_at".split()


class RoundTripTests(DecisionsTestCase):
    def test_exported_decisions_are_imported_unchanged(self):
        @settings(max_examples=20, deadline=None, phases=[Phase.generate])  # each example makes two stores
        @given(st.lists(DECISIONS, min_size=1, max_size=5), st.uuids().map(str))
        def check(decisions: list[dict[str, Any]], name: str) -> None:
            with self.store(f"from-{name}"):
                self.record_all(decisions)
                before, files = self.everything(), madr_files(chosen_decisions())
            with tempfile.TemporaryDirectory() as folder, self.store(f"to-{name}"):
                self.come_back(Path(folder), files, before)

        check()

    def come_back(self, folder: Path, files: dict[str, str], before: tuple[Any, Any]) -> None:
        for name, text in files.items():
            (folder / name).write_bytes(text.encode())
        self.assertEqual(import_adrs(directory=folder).problems, [])
        self.assertEqual(self.everything(), before)
        self.assertEqual(import_adrs(directory=folder).unchanged, len(files))

    def record_all(self, decisions: list[dict[str, Any]]) -> None:
        """Record each with edges to those before it, and relations that make no lineage to those after it."""
        ids: list[int] = []
        for decision in decisions:
            fields = {name: value for name, value in decision.items() if name != "edges"}
            named: dict[str, Any] = {}
            for relation, number in decision["edges"]:
                if number < len(ids):
                    named.setdefault(relation, []).append(ids[number])
            command = DecisionRecord.model_validate({**fields, **named, "branch": True})
            ids.append(services.record_decision(command=command).id)
        for start, decision in zip(ids, decisions, strict=True):
            for relation, number in decision["edges"]:
                if relation not in LINEAGE and number < len(ids) and ids[number] > start:
                    services.link_decisions(command=DecisionLink(id=start, relation=relation, to=ids[number]))

    def everything(self) -> tuple[list[dict[str, Any]], list[tuple[int, str, int]]]:
        """Return decisions and edges, with the place of each in the order of ids instead of its id."""
        shown = chosen_decisions()
        order = {view["id"]: number for number, view in enumerate(shown)}
        found = DecisionEdge.objects.values_list("from_id", "relation", "to_id")
        edges = sorted((order[start], relation, order[end]) for start, relation, end in found)
        return [{**{name: view[name] for name in _COMPARED}, "files": view["artifacts"]} for view in shown], edges


class MadrTests(DecisionsTestCase):
    def test_a_plain_decision_is_plain_madr(self):
        first = self.record("Port", decided_at=datetime(2026, 11, 20, tzinfo=UTC)).id
        alternatives = [{"option": "8080", "why_not": "taken"}]
        fields = {"context": "Which?", "rationale": "free", "alternatives": alternatives, "supersedes": [first]}
        second = self.record("Another port", chosen="9000", topic="net", **fields).id
        files = madr_files(chosen_decisions())
        self.assertEqual(list(files), [f"000{first}-port.md", f"000{second}-another-port.md"])
        earlier, later = files.values()
        status = 'status: "superseded by [0002-another-port](0002-another-port.md)"\ndate: "2026-11-20"\n'
        self.assertIn(status, earlier)
        body = (
            "# Another port\n\n## Context and Problem Statement\n\nWhich?\n\n"
            '## Considered Options\n\n* 9000\n* 8080\n\n## Decision Outcome\n\nChosen option: "9000", because free\n\n'
            "## Pros and Cons of the Options\n\n### 8080\n\ntaken\n\n## More Information\n\n"
            "* Supersedes [0001-port](0001-port.md)\n"
        )
        self.assertEqual(later.split("---\n\n")[1], body)
        self.assertNotIn("chosen:", later)

    def test_fields_that_markdown_cannot_express_are_in_the_front_matter(self):
        self.record("Use `WAL`", context="## Context\n\n```\nopen")
        (text,) = madr_files(chosen_decisions()).values()
        self.assertIn('title: "Use `WAL`"\ncontext: "## Context\\n\\n```\\nopen"\n', text)

    def test_a_proposal_without_a_choice_comes_back(self):
        for fields in ({"context": "Why"}, {"rationale": "Because"}, {"alternatives": ["YAML"]}, {}):
            services.record_decision(command=DecisionRecord.model_validate({"title": "XML?", **fields}))
        before = chosen_decisions()
        with tempfile.TemporaryDirectory() as folder, self.store("another"):
            for name, text in madr_files(before).items():
                (Path(folder) / name).write_text(text)
            self.assertEqual(import_adrs(directory=Path(folder)).problems, [])
            after = chosen_decisions()
        for name in ("title", "status", "context", "chosen", "rationale", "alternatives"):
            self.assertEqual([view[name] for view in after], [view[name] for view in before])

    def test_a_lineage_has_ancestors_and_descendants(self):
        first = self.record("One").id
        second = self.record("Two", refines=[first]).id
        third = self.record("Three", supersedes=[second]).id
        other = self.record("Other", relates_to=[first]).id
        lineage = chosen_decisions(ids=[second], lineage=True)
        self.assertEqual([decision["id"] for decision in lineage], [first, second, third])
        self.assertEqual([decision["id"] for decision in chosen_decisions(ids=[other, first])], [first, other])
        with self.assertRaises(NotFound):
            chosen_decisions(ids=[99])

    def test_mermaid_has_nodes_edges_and_statuses(self):
        first = self.record('A "quoted" [title] `x` #1').id
        second = self.record("Two", supersedes=[first], conflicts_with=[first]).id
        lines = [line.strip() for line in mermaid_graph(chosen_decisions()).splitlines()]
        self.assertEqual(lines[0], "flowchart BT")
        self.assertIn('d1["#35;1 A #34;quoted#34; #91;title#93; #96;x#96; #35;1<br/>superseded', lines[1])
        edges = [f"d{second} {arrow} d{first}" for arrow in ("-->|supersedes|", "x--x|conflicts with|")]
        self.assertLessEqual({*edges, f"class d{first} superseded"}, set(lines))


class CommandTests(DecisionsTestCase):
    def setUp(self) -> None:
        super().setUp()
        first = self.record("One").id
        self.record("Two", supersedes=[first])
        self.out = Path(self.enterContext(tempfile.TemporaryDirectory())) / "adr"

    def export(self, *arguments: str) -> str:
        output = StringIO()
        call_command("export", "adr", *arguments, "--project", "alpha", stdout=output)
        return output.getvalue()

    def test_files_go_to_a_folder_and_never_over_what_differs(self):
        for _ in range(2):
            self.assertEqual(self.export("--out", str(self.out)), f"wrote 2 decisions to {self.out}\n")
        mine = self.out / "0001-one.md"
        mine.write_text("Mine.")
        with self.assertRaisesRegex(CommandError, "0001-one.md exists and differs; use --force"):
            self.export("--out", str(self.out))
        self.assertEqual(mine.read_text(), "Mine.")
        self.export("--out", str(self.out), "--force")
        self.assertIn("# One", mine.read_text())

    def test_a_link_in_the_folder_is_never_written_through(self):
        outside, linked = self.out.parent / "outside", self.out.parent / "linked"
        self.out.mkdir()
        (self.out / "0001-one.md").symlink_to(outside)
        with self.assertRaisesRegex(CommandError, "0001-one.md exists and differs; use --force"):
            self.export("--out", str(self.out))
        self.export("--out", str(self.out), "--force")
        self.assertFalse(outside.exists())
        linked.symlink_to(self.out)
        with self.assertRaisesRegex(CommandError, "is a link, which may lead elsewhere"):
            self.export("--out", str(linked), "--force")

    def test_without_a_folder_it_is_printed_or_refused_in_one_sentence(self):
        self.assertTrue(self.export("#1").startswith("---\nstatus: "))
        self.assertTrue(self.export("--format", "mermaid", "--lineage", "1").startswith("flowchart BT\n"))
        for arguments, sentence in ((["x"], "'x' is not an id"), (["--lineage"], "needs ids"), (["99"], "#99")):
            with self.subTest(arguments), self.assertRaisesRegex(CommandError, sentence):
                self.export(*arguments)


def decision(number: int, status: str = "accepted", title: str = "") -> dict[str, Any]:
    return {"id": number, "title": title or f"Choice {number}", "status": status, "decided_at": "2026-11-20"}


def drawn(edges: list[Edge], current: int) -> dict[str, Any]:
    ids = sorted({current, *(end for start, _, target in edges for end in (start, target))})
    return draw_lineage([decision(number) for number in ids], edges, current)


def overlaps(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(abs(one["x"] - other["x"]) < BOX_WIDTH and abs(one["y"] - other["y"]) < BOX_HEIGHT)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Edge], int]:
    """The part of a random graph that leads to a decision or comes of it."""
    count = draw(st.integers(2, 14))
    pairs = draw(st.sets(st.tuples(st.integers(1, count), st.integers(1, count)), max_size=30))
    edges: list[Edge] = sorted({(max(pair), "refines", min(pair)) for pair in pairs if pair[0] != pair[1]})
    current = draw(st.integers(1, count))
    near = {current}
    for _ in range(count):
        near |= {end for start, _, end in edges if start in near and start <= current}
        near |= {start for start, _, end in edges if end in near and end >= current}
    return [edge for edge in edges if edge[0] in near and edge[2] in near], current


class DrawLineageTests(SimpleTestCase):
    def test_a_chain_runs_from_left_to_right_through_the_decision_in_question(self) -> None:
        drawing = drawn([(2, "supersedes", 1), (3, "supersedes", 2)], current=2)
        self.assertEqual([node["id"] for node in drawing["nodes"]], [1, 2, 3])
        self.assertEqual([node["is_current"] for node in drawing["nodes"]], [False, True, False])
        self.assertLess(drawing["nodes"][1]["x"] + BOX_WIDTH, drawing["nodes"][2]["x"])
        self.assertEqual(len({node["y"] for node in drawing["nodes"]}), 1)
        lengths = range(2, 9)
        drawings = [drawn([(n + 1, "supersedes", n) for n in range(1, length)], current=1) for length in lengths]
        shrinking = [length for length, drawing in zip(lengths, drawings, strict=True) if drawing["layout"].may_shrink]
        self.assertEqual(shrinking, [4], "only a drawing that is a little wider than a page is shown whole")

    def test_a_superseded_one_is_struck_a_long_title_cut_and_each_is_described_in_words(self) -> None:
        decisions = [decision(1, "superseded"), decision(2), decision(3, title="word " * 40)]
        drawing = draw_lineage(decisions, [(2, "supersedes", 1), (3, "refines", 2)], 2)
        self.assertEqual([node["is_struck"] for node in drawing["nodes"]], [True, False, False])
        self.assertEqual(drawing["nodes"][0]["description"], "#1 Choice 1, superseded, decided 2026-11-20")
        self.assertEqual(drawing["nodes"][1]["description"], "#2 Choice 2, accepted, decided 2026-11-20, supersedes #1")
        lines = drawing["nodes"][2]["lines"]
        self.assertEqual((len(lines), lines[-1][-1]), (2, "…"))

    def test_edges_that_meet_have_labels_apart_and_several_between_two_share_a_path(self) -> None:
        meeting = drawn([(number, "depends_on", 1) for number in range(2, 12)], current=1)
        heights = sorted(line.y for line in meeting["layout"].lines)
        self.assertTrue(all(below - above >= 15 for above, below in pairwise(heights)))
        lines = drawn([(2, "refines", 1), (2, "supersedes", 1)], current=2)["layout"].lines
        self.assertEqual([(bool(line.path), line.label) for line in lines], [(True, "refines"), (False, "supersedes")])
        self.assertEqual(draw_lineage([decision(1)], [(1, "refines", 9), (9, "refines", 1)], 1)["layout"].lines, [])

    @settings(max_examples=60, deadline=None)
    @given(graphs())
    def test_every_edge_leads_to_the_left_and_no_two_boxes_touch(self, graph: tuple[list[Edge], int]) -> None:
        edges, current = graph
        drawing = drawn(edges, current)
        places = {node["id"]: node["x"] for node in drawing["nodes"]}
        self.assertEqual(len(drawing["layout"].lines), len(edges))
        for start, _, end in edges:
            self.assertGreater(places[start], places[end])
        for index, node in enumerate(drawing["nodes"]):
            self.assertFalse(any(overlaps(node, other) for other in drawing["nodes"][index + 1 :]))
            self.assertLessEqual(node["x"] + BOX_WIDTH, drawing["layout"].width)
            self.assertLessEqual(node["y"] + BOX_HEIGHT, drawing["layout"].height)
