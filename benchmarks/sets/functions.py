"""The standard library's functions: the first sentence of a docstring is the question, the function the answer."""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sets.model import Collection, EvaluationSet, SetDocument, SetQuery

COUNT = 1_500
_SEED = "memory-hub"
_LEAST_WORDS = 5
_MOST_CHARACTERS = 20_000
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "__pycache__"}
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n\s*\n")


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    source: str
    sentence: str


def functions(count: int = COUNT, *, installed: bool = False) -> EvaluationSet:
    """Choose ``count`` functions.

    Those of the standard library are the same for a version of Python. Those of the installed packages depend on these.
    """
    chosen = choose(list(installed_packages() if installed else standard_library()), count)
    key, label = (
        ("packages", "installed packages, functions") if installed else ("functions", "standard library, functions")
    )
    documents = [SetDocument(function.name, function.source, function.name, type="reference") for function in chosen]
    queries = [
        SetQuery(function.sentence, frozenset({function.name}), "code", index % 2)
        for index, function in enumerate(chosen)
    ]
    return EvaluationSet(key, label, [Collection(key, documents, queries)])


def choose(found: list[Function], count: int) -> list[Function]:
    """Return ``count`` functions by a fixed seed, with unique sentences, names and sources."""
    taken = [Counter(getattr(function, field) for function in found) for field in ("sentence", "name", "source")]
    alone = [
        function
        for function in found
        if taken[0][function.sentence] == taken[1][function.name] == taken[2][function.source] == 1
    ]
    return random.Random(_SEED).sample(alone, min(count, len(alone)))  # noqa: S311 - the same on every run


def standard_library() -> Iterator[Function]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if _LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            yield from documented(path.read_text(encoding="utf-8", errors="replace"))


def installed_packages() -> Iterator[Function]:
    root = Path(sysconfig.get_paths()["purelib"])
    for path in sorted(root.rglob("*.py")):
        if {"test", "tests", "_vendor"}.isdisjoint(path.relative_to(root).parts):
            yield from documented(path.read_text(encoding="utf-8", errors="replace"))


def documented(source: str) -> Iterator[Function]:
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
    """Walk like ``ast.walk``, but skip expressions: most of a tree, without functions."""
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        waiting.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        yield node


def _sentence(docstring: str) -> str:
    return " ".join(_SENTENCE_END.split(docstring.strip(), maxsplit=1)[0].split())


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> str:
    first = node.body[0]
    code = lines[node.lineno - 1 : first.lineno - 1] + lines[first.end_lineno : node.end_lineno]
    return "\n".join(code)
