"""Import of architecture decision records in every supported format, once and again."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from unittest import mock

from django.core.management import call_command
from django.test import SimpleTestCase

from decisions import services
from decisions.importing import AdrReport, import_adrs, read_adr
from decisions.importing.links import links_in
from decisions.importing.outline import moment_of, status_of
from decisions.models import Decision, DecisionEdge
from decisions.schemas import DecisionMark, DecisionSupersede
from memories.importing import import_markdown
from memories.models import Memory
from memories.pack import compose_pack
from memories.schemas import MemorySearch
from memories.schemas.query import ContextPackRequest
from memories.selectors import search
from memoryhub.core import log
from memoryhub.core.errors import Invalid
from tests.decisions.base import DecisionsTestCase

OURS = Path(__file__).parents[2] / "docs/decisions"
NYGARD = """# 3. Use `WAL` mode

Date: 2016-02-12

## Status

Accepted

Amends [1. Record decisions](0001-record.md)

## Context

Readers wait.

## Decision

We will use WAL.

### How

With a pragma.

## Consequences

Readers no longer wait.
"""

MADR_2 = """# Use plain JUnit5

* Status: accepted <!-- optional -->
* Deciders: Ada, Bob
* Date: 2020-01-02

Technical Story: tests are hard to read

## Context and Problem Statement

How to write assertions?

## Considered Options

* Plain JUnit5
* [Hamcrest](https://example.org)

## Decision Outcome

Chosen option: Plain JUnit5, because it is a standard. Others come and go.

### Positive Consequences <!-- optional -->

* readable

### Negative Consequences

* verbose

## Links

* Refined by [ADR-0005](0005-example.md)
"""

MADR_4 = """---
# these are optional
status: "proposed"
date: 2024-03-01
decision-makers: [Ada, 'Bob']
---

# Use plain JUnit5

## Decision Drivers

* Readable

## Considered Options

* Plain JUnit5
* Hamcrest
* AssertJ

## Decision Outcome

Chosen option: "Plain JUnit5", because it is
a standard.

### Consequences

* Bad, because verbose

## Pros and Cons of the Options

### Plain JUnit5

* Good, because it is there

### Hamcrest

* Bad, because it is old

#### Even so

It works.

## More Information

* Depends on [2](../0002-tests.md)
* [Another](0007-another.md)
* [A page](https://example.org)
"""


class ReadingTests(SimpleTestCase):
    def test_nygards_form(self):
        adr = read_adr(NYGARD)
        self.assertEqual((adr.title, adr.status, str(adr.decided_at)[:10]), ("Use WAL mode", "accepted", "2016-02-12"))
        texts = (adr.context, adr.chosen, adr.rationale)
        how = "We will use WAL.\n\n### How\n\nWith a pragma."
        self.assertEqual(texts, ("Readers wait.", how, "Readers no longer wait."))
        self.assertEqual([(link.relation, link.target) for link in adr.links], [("refines", "0001-record.md")])

    def test_madrs_older_form(self):
        adr = read_adr(MADR_2)
        self.assertEqual((adr.status, adr.author, str(adr.decided_at)[:10]), ("accepted", "Ada, Bob", "2020-01-02"))
        self.assertEqual(adr.context, "Technical Story: tests are hard to read\n\nHow to write assertions?")
        self.assertEqual(
            (adr.chosen, [alternative.option for alternative in adr.alternatives]), ("Plain JUnit5", ["Hamcrest"])
        )
        because = "it is a standard. Others come and go."
        follows = "### Positive Consequences\n\n* readable\n\n### Negative Consequences\n\n* verbose"
        self.assertEqual(adr.rationale, f"{because}\n\n{follows}")
        self.assertEqual([(link.relation, link.is_backward) for link in adr.links], [("refines", True)])

    def test_madrs_newer_form(self):
        adr = read_adr(MADR_4)
        self.assertEqual((adr.status, adr.author, str(adr.decided_at)[:10]), ("proposed", "Ada, Bob", "2024-03-01"))
        self.assertEqual(adr.context, "### Decision Drivers\n\n* Readable")
        why_not = "* Bad, because it is old\n\n#### Even so\n\nIt works."
        alternatives = [(alternative.option, alternative.why_not) for alternative in adr.alternatives]
        self.assertEqual((adr.chosen, alternatives), ("Plain JUnit5", [("Hamcrest", why_not), ("AssertJ", "")]))
        self.assertTrue(adr.rationale.startswith("it is\na standard.\n\n### Consequences\n\n* Bad"), adr.rationale)
        self.assertTrue(adr.rationale.endswith("* Good, because it is there"), adr.rationale)
        links = [(link.relation, link.target) for link in adr.links]
        self.assertEqual(links, [("depends_on", "../0002-tests.md"), ("relates_to", "0007-another.md")])

    def test_alternatives_may_give_the_reason_in_one_line(self):
        adr = read_adr(
            "# T\n\n## Decision\n\nSQLite.\n\n## Alternatives\n\n- **Redis** — a process\n  to run\n- Files\n"
        )
        alternatives = [(alternative.option, alternative.why_not) for alternative in adr.alternatives]
        self.assertEqual(alternatives, [("Redis", "a process to run"), ("Files", "")])

    def test_a_text_without_a_decision_is_no_record(self):
        empty = "# T\n\n## Decision\n\n## Context\n\nOnly that.\n"
        for text in ("", "# Notes\n\nSome.", empty, "---\nstatus: x\n---\n"):
            with self.subTest(text), self.assertRaisesRegex(Invalid, "no section Decision or Decision Outcome"):
                read_adr(text)

    def test_common_status_words_and_date_formats_are_parsed(self):
        for text, status in (
            ("", "accepted"),
            ("**Approved** in May", "accepted"),
            ("Amends [1. Proposed things](0001-x.md)", "accepted"),
            ("Draft", "proposed"),
            ("Accepted\n\nSuperceded by [2. x](0002-x.md)", "superseded"),
            ("obsolete", "deprecated"),
            ("Declined", "rejected"),
        ):
            self.assertEqual(status_of(text), status, text)
        with self.assertRaisesRegex(Invalid, "status 'Frobnicated' is unknown; use one of proposed, accepted"):
            status_of("Frobnicated")
        for text in ("2024-03-01", "2024-03-01 (amended 2025-01-01)", "01.03.2024", "2024/03/01", "March 1, 2024"):
            self.assertEqual(moment_of(text), datetime(2024, 3, 1, tzinfo=UTC), text)
        with self.assertRaisesRegex(Invalid, "date 'soon' is not a date"):
            moment_of("soon")

    def test_a_relation_counts_to_the_end_of_its_clause(self):
        text = "Superseded by [4](0004-a.md) and ADR-5; see [6](0006-c.md). Amends\n[x](x.md#why), not [y](y.png)"
        links = [(link.relation, link.target, link.is_backward) for link in links_in(text)]
        superseding = [("supersedes", "0004-a.md", True), ("supersedes", "5", True)]
        self.assertEqual(links, [*superseding, ("refines", "x.md", False)])


ONE, TWO = "0001-one.md", "0002-two.md"


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

    def test_a_changed_status_is_marked_and_what_a_person_has_marked_stays(self):
        self.import_one(status="Proposed")
        self.assertEqual((self.import_one().marked, self.of(ONE).status), (1, "accepted"))
        services.mark_decision(command=DecisionMark(id=self.of(ONE).id, status="deprecated"))
        self.assertEqual((self.import_again().unchanged, self.of(ONE).status), (1, "deprecated"))

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
        with mock.patch("memories.importing.markdown._known_files", []):
            import_markdown(directory=self.folder)
        hits = search(command=MemorySearch(query="gnutls")).results
        (section,) = [hit for hit in hits if hit["source"] == "memory"]
        self.assertEqual(section["note"], f"superseded by decision #{self.of(ONE).id}")
        self.assertIn("superseded ×0.3", section["why"])
        text = compose_pack(command=ContextPackRequest(query="gnutls openssl"))
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
        self.assertEqual((report.created, self.of("0005-lost.md").status), (4, "deprecated"))
        problems = dict(reversed(report.problems))
        (circle,) = [name for name, problem in problems.items() if "would close a cycle" in problem]
        names = [
            f"000{number}-{name}.md" for number, name in enumerate(("none", "status", "long", "lost", "binary"), 2)
        ]
        self.assertEqual(sorted(problems), [*names, circle])
        self.assertIn("'title' must have at most 200 characters", problems["0004-long.md"])
        self.assertIn("leads to 0009-lost.md, which is not a record in this folder", problems["0005-lost.md"])
        self.assertEqual(len(self.edges()), 1)

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
