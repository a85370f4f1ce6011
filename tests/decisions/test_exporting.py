"""Decisions as MADR files, which come back as they were, as a Mermaid graph, and as a drawing."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command
from django.test import SimpleTestCase
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from decisions import services
from decisions.exporting import chosen_decisions, madr_files, mermaid_graph
from decisions.importing import import_adrs
from decisions.lineage_svg import Drawing, Node, draw_lineage
from decisions.models import LINEAGE, DecisionEdge, EdgeRelation
from decisions.schemas import DecisionLink, DecisionRecord
from memoryhub.core.admin.diagram import HEIGHT, WIDTH, Edge
from memoryhub.core.errors import NotFound
from memoryhub.core.text import flat
from tests.decisions.base import NOON, DecisionsTestCase

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


def drawn(edges: list[Edge], current: int) -> Drawing:
    ids = sorted({current, *(end for start, _, target in edges for end in (start, target))})
    return draw_lineage([decision(number) for number in ids], edges, current)


def overlaps(one: Node, other: Node) -> bool:
    return abs(one.x - other.x) < WIDTH and abs(one.y - other.y) < HEIGHT


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
        self.assertEqual([node.id for node in drawing.nodes], [1, 2, 3])
        self.assertEqual([node.is_current for node in drawing.nodes], [False, True, False])
        self.assertLess(drawing.nodes[1].x + WIDTH, drawing.nodes[2].x)
        self.assertEqual(len({node.y for node in drawing.nodes}), 1)
        lengths = range(2, 9)
        drawings = [drawn([(n + 1, "supersedes", n) for n in range(1, length)], current=1) for length in lengths]
        shrinking = [length for length, drawing in zip(lengths, drawings, strict=True) if drawing.layout.may_shrink]
        self.assertEqual(shrinking, [4], "only a drawing that is a little wider than a page is shown whole")

    def test_a_superseded_one_is_struck_a_long_title_cut_and_each_is_described_in_words(self) -> None:
        decisions = [decision(1, "superseded"), decision(2), decision(3, title="word " * 40)]
        drawing = draw_lineage(decisions, [(2, "supersedes", 1), (3, "refines", 2)], 2)
        self.assertEqual([node.is_struck for node in drawing.nodes], [True, False, False])
        self.assertEqual(drawing.nodes[0].description, "#1 Choice 1, superseded, decided 2026-11-20")
        self.assertEqual(drawing.nodes[1].description, "#2 Choice 2, accepted, decided 2026-11-20, supersedes #1")
        lines = drawing.nodes[2].lines
        self.assertEqual((len(lines), lines[-1][-1]), (2, "…"))

    def test_edges_that_meet_have_labels_apart_and_several_between_two_share_a_path(self) -> None:
        meeting = drawn([(number, "depends_on", 1) for number in range(2, 12)], current=1)
        heights = sorted(line.y for line in meeting.layout.lines)
        self.assertTrue(all(below - above >= 15 for above, below in pairwise(heights)))
        lines = drawn([(2, "refines", 1), (2, "supersedes", 1)], current=2).layout.lines
        self.assertEqual([(bool(line.path), line.label) for line in lines], [(True, "refines"), (False, "supersedes")])
        self.assertEqual(draw_lineage([decision(1)], [(1, "refines", 9), (9, "refines", 1)], 1).layout.lines, [])

    @settings(max_examples=60, deadline=None)
    @given(graphs())
    def test_every_edge_leads_to_the_left_and_no_two_boxes_touch(self, graph: tuple[list[Edge], int]) -> None:
        edges, current = graph
        drawing = drawn(edges, current)
        places = {node.id: node.x for node in drawing.nodes}
        self.assertEqual(len(drawing.layout.lines), len(edges))
        for start, _, end in edges:
            self.assertGreater(places[start], places[end])
        for index, node in enumerate(drawing.nodes):
            self.assertFalse(any(overlaps(node, other) for other in drawing.nodes[index + 1 :]))
            self.assertLessEqual(node.x + WIDTH, drawing.layout.width)
            self.assertLessEqual(node.y + HEIGHT, drawing.layout.height)
