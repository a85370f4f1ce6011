"""Decision records as they are parsed: forms, statuses, links, options and languages."""

from __future__ import annotations

from datetime import UTC, datetime

from django.test import SimpleTestCase

from decisions.importing import read_adr
from decisions.importing.links import links_in
from decisions.importing.outline import moment_of
from decisions.importing.vocabulary import status_of
from memoryhub.core.errors import Invalid

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


LABELS = """# 14. Meta lines

**Status**: Accepted
**Date**: 2025-12-29
**Deciders**: Kim, Lee
**Context**: PR 60
**Related**: [Five](./0005-e.md) (what it builds on)

## Decision

Decide fourteen.

## Rationale

### Alternatives Considered

| Alternative | Pros | Cons | Why Not Chosen |
|---|---|---|---|
| CI only | simple | late | feedback too late |
| **Nothing** | cheap | dear | costs more |
| Both | late | dear | **Chosen** |
"""

FRENCH = """# Utiliser Postgres

- Statut : accepté
- Date : 2024-02-03
- Décideurs : Ada

## Contexte et énoncé du problème

Quoi ?

## Options envisagées

- Postgres
- MySQL

## Résultat de la décision

Option choisie : « Postgres », car c'est stable.
"""

RESTRUCTURED = """
.. _optional-fields:

Optional fields
===============

:Date: 2021-03-04

Status
------

**Accepted**. Supersedes `ADR 6 <0006-fields.rst>`_

.. A comment
   that says Decision

Context
-------

Fields are ``optional``.

Decision
--------

Leave them out.

Rejected Alternatives
---------------------

* Nulls

References
----------

* :doc:`0002-b`
"""


def nygard_in(status_name: str, status: str, *names: str) -> str:
    texts = zip(names, ("Why.", "So be it.", "Then."), strict=True)
    sections = "\n".join(f"## {name}\n\n{text}\n" for name, text in texts)
    return f"# 19. T\n\n## {status_name}\n\n{status}\n\n{sections}"


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

    def test_a_status_is_read_with_its_subject_its_negation_and_its_language(self):
        for text, status in (
            ("Accepted. Refines ADR 3 (which superseded ADR 1).", "accepted"),
            ("Refines ADR 3, which superseded ADR 1", "accepted"),
            ("Accepted. Section 2 is superseded by [ADR-5](0005-e.md).", "accepted"),
            ("Partially superseded by ADR-5", "accepted"),
            ("Accepted. Replaced the older draft.", "accepted"),
            ("Accepted, not superseded", "accepted"),
            ("This decision has been superseded by ADR-7", "superseded"),
            ("Provisionally superseded by ADR-7 (until May)", "superseded"),
            ("Not yet accepted", "proposed"),
            ("No longer active", "deprecated"),
            ("Proposed. It moves to `Accepted` once reviewed", "proposed"),
            ("- 2020-01-01: Proposed\n- 2021-01-01: Accepted", "accepted"),
            ("~~Proposed~~ Accepted", "accepted"),
            ("Proposed -> Accepted", "accepted"),
            ("Noch nicht angenommen", "proposed"),
            ("Nicht mehr gültig", "deprecated"),
            ("Ersetzt durch [3](0003-c.md)", "superseded"),
            ("Remplacée par ADR-3", "superseded"),
            ("Pas encore accepté", "proposed"),
            ("Aprobada", "accepted"),
            ("Ya no vigente", "deprecated"),
            ("已废弃", "deprecated"),
            ("尚未接受", "proposed"),
            ("已被 ADR-3 取代", "superseded"),
            ("部分被 ADR-3 取代", "accepted"),
            ("承認済み", "accepted"),
            ("[ADR-3](0003-c.md) により置き換え", "superseded"),
        ):
            self.assertEqual(status_of(text), status, text)
        unknown = ("Not accepted", "未通过", "Critical update, see also ADR-3", "[Proposed | Accepted | Rejected]")
        for text in (*unknown, "Hold", "The original decision was accepted"):
            with self.subTest(text), self.assertRaisesRegex(Invalid, "is unknown"):
                status_of(text)

    def test_a_relation_counts_to_the_end_of_its_clause(self):
        text = "Superseded by [4](0004-a.md) and ADR-5; see [6](0006-c.md). Amends\n[x](x.md#why), not [y](y.png)"
        links = [(link.relation, link.target, link.is_backward) for link in links_in(text)]
        superseding = [("supersedes", "0004-a.md", True), ("supersedes", "5", True)]
        self.assertEqual(links, [*superseding, ("refines", "x.md", False)])

    def test_a_link_is_read_with_its_subject_and_what_it_replaces(self):
        for text, links in (
            ("Superseded by 0011", [("supersedes", "0011", True)]),
            ("Superseded by #11 and 12", [("supersedes", "11", True), ("supersedes", "12", True)]),
            ("Superseded by ADR-5 on 2026-07-20", [("supersedes", "5", True)]),
            ("Section 2 is superseded by ADR-5", [("refines", "5", True)]),
            ("Supersedes section 2 of ADR-5", [("refines", "5", False)]),
            ("Refines ADR-3 (which superseded ADR-1)", [("refines", "3", False)]),
            ("**Supersedes**: None (extends ADR-41)", [("refines", "41", False)]),
            ("Requires 3 approvals", []),
            ("Updates ADR-3's table", []),
            ("Supersedes [[0010-old]]", [("supersedes", "0010-old.md", False)]),
            ("Ersetzt durch ADR-3", [("supersedes", "3", True)]),
            ("Remplace ADR-2", [("supersedes", "2", False)]),
            ("已被 ADR-3 取代", [("supersedes", "3", True)]),
            ("取代 ADR-2", [("supersedes", "2", False)]),
            ("[ADR-3](0003-c.md)により置き換え", [("supersedes", "0003-c.md", True)]),
        ):
            found = [(link.relation, link.target, link.is_backward) for link in links_in(text)]
            self.assertEqual(found, links, text)
        self.assertEqual([link.subject for link in links_in("ADR-3 supersedes ADR-1")], ["3"])

    def test_fields_and_tables_of_a_record_are_read(self):
        adr = read_adr(LABELS)
        self.assertEqual((adr.status, adr.author, str(adr.decided_at)[:10]), ("accepted", "Kim, Lee", "2025-12-29"))
        alternatives = [(alternative.option, alternative.why_not) for alternative in adr.alternatives]
        self.assertEqual(alternatives, [("CI only", "feedback too late"), ("Nothing", "costs more")])
        self.assertIn("**Context**: PR 60", adr.context)
        self.assertEqual([(link.relation, link.target) for link in adr.links], [("relates_to", "./0005-e.md")])
        table = read_adr("# T\n\n| Status | Rejected |\n|---|---|\n| Date | 2024-01-02 |\n\n## Decision\n\nYes.\n")
        self.assertEqual((table.status, str(table.decided_at)[:10]), ("rejected", "2024-01-02"))
        people = read_adr("# T\n\n## Deciders\n\n- **Lead**: Ada\n- Bob\n\n## Decision\n\nYes.\n")
        self.assertEqual(people.author, "Lead: Ada, Bob")

    def test_options_of_each_form_are_read_without_the_chosen_one(self):
        for outcome, section, alternatives in (
            (
                "**Chosen option: Option 2 - Redis**",
                "- Option 1 - Files\n- Option 2 - Redis",
                [("Option 1 - Files", "")],
            ),
            (
                "SQLite.",
                "**Redis.** A process\nto run.\n\n**Files**: no queries",
                [("Redis", "A process\nto run."), ("Files", "no queries")],
            ),
            (
                "SQLite.",
                "- Redis: another process to run and to watch",
                [("Redis", "another process to run and to watch")],
            ),
            (
                "Adopt **Option (b)**.",
                "|Option|Reason|\n|---|---|\n|(a) Redis|slow|\n|(b) Files|fast|",
                [("(a) Redis", "slow")],
            ),
            (
                "Files.",
                "|Option|Result|\n|---|---|\n|Redis|Rejected: slow|\n|Files|Chosen: fast|",
                [("Redis", "Rejected: slow")],
            ),
            (
                "Files.",
                "|Option|Pros|Cons|\n|---|---|---|\n|Redis|fast|dear|\n|Files (chosen)|a|b|",
                [("Redis", "Pros: fast; Cons: dear")],
            ),
            (
                "SQLite.",
                "- `One table`: all of it in one - or nearly so",
                [("One table", "all of it in one - or nearly so")],
            ),
            (
                "Files.",
                "- **Redis** - slow\n\n### Redis\n\nSlow.\n\n### Files (proposed)\n\nFast.",
                [("Redis - slow", "Slow.")],
            ),
            ("Files.", "### 1. Redis\n\nSlow.\n\n### 2. Files (CHOSEN)\n\nFast.", [("1. Redis", "Slow.")]),
        ):
            adr = read_adr(f"# T\n\n## Decision\n\n{outcome}\n\n## Alternatives Considered\n\n{section}\n")
            found = [(alternative.option, alternative.why_not) for alternative in adr.alternatives]
            self.assertEqual(found, alternatives, section)

    def test_a_proposal_or_a_rejected_record_may_have_no_decision(self):
        for status in ("proposed", "rejected"):
            adr = read_adr(f"---\nstatus: {status}\n---\n# T\n\n## Context\n\nWhy.\n")
            self.assertEqual((adr.status, adr.chosen), (status, ""))
        with self.assertRaisesRegex(Invalid, "no section Decision or Decision Outcome"):
            read_adr("---\nstatus: accepted\n---\n# T\n\n## Context\n\nWhy.\n")

    def test_lineage_in_the_front_matter_is_read(self):
        for field, links in (
            ("superseded-by: ADR-0011", [("supersedes", "0011", True)]),
            ("superseded_by: 0011-new.md", [("supersedes", "0011-new.md", True)]),
            ("supersedes: [ADR-0010, '0009']", [("supersedes", "0010", False), ("supersedes", "0009", False)]),
            ("amends: 10", [("refines", "10", False)]),
            ("related: ['[[0010-old]]']", [("relates_to", "0010-old.md", False)]),
            ("superseded-by: null", []),
            ("supersedes: []", []),
        ):
            adr = read_adr(f"---\nstatus: accepted\n{field}\n---\n# T\n\n## Decision\n\nYes.\n")
            self.assertEqual([(link.relation, link.target, link.is_backward) for link in adr.links], links, field)

    def test_records_in_other_languages_are_read(self):
        german = read_adr(nygard_in("Status", "Akzeptiert", "Kontext", "Entscheidung", "Konsequenzen"))
        chinese = read_adr(nygard_in("状态", "已接受", "背景", "决策", "后果"))
        japanese = read_adr(nygard_in("ステータス", "提案中", "コンテキスト", "決定", "結果"))
        spanish = read_adr(nygard_in("Estado", "Rechazada", "Contexto", "Decisión", "Consecuencias"))
        statuses = [adr.status for adr in (german, chinese, japanese, spanish)]
        self.assertEqual(statuses, ["accepted", "accepted", "proposed", "rejected"])
        for adr in (german, chinese, japanese, spanish):
            self.assertEqual((adr.context, adr.chosen, adr.rationale), ("Why.", "So be it.", "Then."))
        french = read_adr(FRENCH)
        self.assertEqual((french.status, french.author, french.chosen), ("accepted", "Ada", "Postgres"))
        self.assertEqual([alternative.option for alternative in french.alternatives], ["MySQL"])
        self.assertEqual(french.rationale, "c'est stable.")

    def test_restructured_text_is_read(self):
        adr = read_adr(RESTRUCTURED, ending=".rst")
        self.assertEqual(
            (adr.title, adr.status, str(adr.decided_at)[:10]), ("Optional fields", "accepted", "2021-03-04")
        )
        self.assertEqual((adr.context, adr.chosen), ("Fields are `optional`.", "Leave them out."))
        self.assertEqual([alternative.option for alternative in adr.alternatives], ["Nulls"])
        links = [(link.relation, link.target) for link in adr.links]
        self.assertEqual(links, [("supersedes", "0006-fields.rst"), ("relates_to", "0002-b.rst")])
