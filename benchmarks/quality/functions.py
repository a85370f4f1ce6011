"""Functions of the running Python's standard library: the first sentence of the docstring asks for the rest."""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.questions import Question, QuestionSet
from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store

COUNT = 1_500
_SEED = "memory-hub"
_LEAST_WORDS = 5
_MOST_CHARACTERS = 20_000
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "__pycache__"}
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n\s*\n")


@dataclass(frozen=True, slots=True)
class Function:
    """A function without its docstring, and what the docstring said first."""

    name: str
    source: str
    sentence: str


def functions(count: int = COUNT) -> QuestionSet:
    """Write so many functions, the same on every run of one Python, into a store as memories; return the questions."""
    chosen = choose(list(standard_library()), count)
    store = project_store("functions")
    with use_store(store, create=True), use_origin(source="service", actor="evaluate"):
        commands = [MemoryWrite(title=each.name, content=each.source, type="reference") for each in chosen]
        ids = [result.id for result in write_memories(commands=commands)]
    questions = [
        Question(store, each.sentence, frozenset({answer}), "code", index % 2)
        for index, (each, answer) in enumerate(zip(chosen, ids, strict=True))
    ]
    return QuestionSet("functions", "standard library, functions", len(chosen), questions)


def choose(found: list[Function], count: int) -> list[Function]:
    """Return ``count`` functions by a fixed seed, of those whose sentence, name and source no other has."""
    taken = [Counter(getattr(each, field) for each in found) for field in ("sentence", "name", "source")]
    alone = [each for each in found if taken[0][each.sentence] == taken[1][each.name] == taken[2][each.source] == 1]
    return random.Random(_SEED).sample(alone, min(count, len(alone)))  # noqa: S311 - the same on every run


def standard_library() -> Iterator[Function]:
    """Yield every function of the standard library that has a docstring and more than it, in the order of its files."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if _LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            yield from documented(path.read_text(encoding="utf-8", errors="replace"))


def documented(source: str) -> Iterator[Function]:
    """Yield the functions of one module; nothing where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    lines = source.splitlines()
    for node in _walk_statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.body) > 1:
            sentence = _sentence(ast.get_docstring(node) or "")
            text = _without_docstring(node, lines)
            if len(sentence.split()) >= _LEAST_WORDS and sentence not in text and len(text) <= _MOST_CHARACTERS:
                yield Function(node.name, text, sentence)


def _walk_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk as ``ast.walk`` does, but past expressions: they are most of a tree, and hold no functions."""
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        waiting.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        yield node


def _sentence(docstring: str) -> str:
    return " ".join(_SENTENCE_END.split(docstring.strip(), maxsplit=1)[0].split())


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> str:
    first = node.body[0]
    kept = lines[node.lineno - 1 : first.lineno - 1] + lines[first.end_lineno : node.end_lineno]
    return "\n".join(kept)
