"""A lineage as it is drawn."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from django.test import SimpleTestCase
from hypothesis import given, settings
from hypothesis import strategies as st

from decisions.lineage_svg import Drawing, Node, draw_lineage
from memoryhub.core.admin.diagram import HEIGHT, WIDTH, Edge


def decision(number: int, status: str = "accepted", title: str = "") -> dict[str, Any]:
    return {"id": number, "title": title or f"Choice {number}", "status": status, "decided_at": "2026-11-20"}


def drawn(edges: list[Edge], current: int) -> Drawing:
    ids = sorted({current, *(end for start, _, target in edges for end in (start, target))})
    return draw_lineage([decision(number) for number in ids], edges, current)


def columns(drawing: Drawing) -> dict[int, float]:
    return {node.id: node.x for node in drawing.nodes}


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

    def test_a_drawing_a_little_wider_than_a_page_is_shown_whole(self):
        def shrinks(length):
            return drawn([(n + 1, "supersedes", n) for n in range(1, length)], current=1).layout.may_shrink

        self.assertEqual([length for length in range(2, 9) if shrinks(length)], [4])

    def test_a_superseded_one_is_struck_and_each_is_described_in_words(self) -> None:
        drawing = draw_lineage([decision(1, "superseded"), decision(2)], [(2, "supersedes", 1)], 2)
        self.assertEqual([node.is_struck for node in drawing.nodes], [True, False])
        self.assertEqual(drawing.nodes[0].description, "#1 Choice 1, superseded, decided 2026-11-20")
        self.assertEqual(drawing.nodes[1].description, "#2 Choice 2, accepted, decided 2026-11-20, supersedes #1")

    def test_a_long_title_is_broken_and_cut(self) -> None:
        drawing = draw_lineage([decision(1, title="word " * 40)], [], 1)
        (node,) = drawing.nodes
        self.assertEqual(len(node.lines), 2)
        self.assertTrue(node.lines[-1].endswith("…"))

    def test_labels_of_edges_that_meet_do_not_cover_each_other(self) -> None:
        drawing = drawn([(number, "depends_on", 1) for number in range(2, 12)], current=1)
        heights = sorted(line.y for line in drawing.layout.lines)
        self.assertTrue(all(below - above >= 15 for above, below in pairwise(heights)))

    def test_several_edges_between_two_share_a_path(self) -> None:
        drawing = drawn([(2, "refines", 1), (2, "supersedes", 1)], current=2)
        self.assertEqual([bool(line.path) for line in drawing.layout.lines], [True, False])
        self.assertEqual([line.label for line in drawing.layout.lines], ["refines", "supersedes"])

    def test_edges_to_what_is_not_drawn_are_left_out(self) -> None:
        self.assertEqual(draw_lineage([decision(1)], [(1, "refines", 9), (9, "refines", 1)], 1).layout.lines, [])

    @settings(max_examples=60, deadline=None)
    @given(graphs())
    def test_every_edge_leads_to_the_left_and_no_two_boxes_touch(self, graph: tuple[list[Edge], int]) -> None:
        edges, current = graph
        drawing = drawn(edges, current)
        places = columns(drawing)
        self.assertEqual(len(drawing.layout.lines), len(edges))
        for start, _, end in edges:
            self.assertGreater(places[start], places[end])
        for index, node in enumerate(drawing.nodes):
            self.assertFalse(any(overlaps(node, other) for other in drawing.nodes[index + 1 :]))
            self.assertLessEqual(node.x + WIDTH, drawing.layout.width)
            self.assertLessEqual(node.y + HEIGHT, drawing.layout.height)
