"""What the code looks like: names, statements, sizes and imports that a linter does not know."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from django.test import SimpleTestCase

ROOT = Path(__file__).parent.parent
APPS = ("memoryhub", "sessions_app", "memories", "decisions", "governance")
# Participles and pronouns fit everything, so they say nothing.
VAGUE = frozenset("found given wanted known made shown kept taken own others left rest each done told".split())
# What Django and the commands name alike in every module
REPEATED_CLASSES = frozenset({"Meta", "Media", "Command", "Migration"})
MOST_LINES = 500
MOST_MODULES_OF_A_PRIVATE_NAME = 3

Place = tuple[str, int]


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of the product's modules, without migrations, by path."""
    paths = sorted(path for app in APPS for path in (ROOT / app).rglob("*.py") if "migrations" not in path.parts)
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in paths}


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for path, tree in trees().items():
        for node in ast.walk(tree):
            yield path, node


def names_that_are_bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ExceptHandler(name=str(name)):
            yield name


def fields_of_classes() -> dict[ast.Name, str]:
    """Return what class bodies declare: columns, keys of events and answers, parameters of interfaces."""
    fields = {}
    for _, node in nodes():
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                targets = getattr(statement, "targets", [getattr(statement, "target", None)])
                fields.update({target: target.id for target in targets if isinstance(target, ast.Name)})
    return fields


def module_of(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imports_of(tree: ast.Module, modules: frozenset[str]) -> set[str]:
    """Return the modules that a module imports when it is loaded itself."""
    imported = set()
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module in modules:
            for alias in statement.names:
                submodule = f"{statement.module}.{alias.name}"
                imported.add(submodule if submodule in modules else statement.module)
    return imported


class NamesTests(SimpleTestCase):
    def test_names_are_nouns_of_the_domain(self) -> None:
        fields = fields_of_classes()
        names_of_fields = set(fields.values())
        vague = []
        for path, node in nodes():
            is_field = node in fields or (isinstance(node, ast.Attribute) and node.attr in names_of_fields)
            for name in names_that_are_bound(node):
                if name.strip("_") in VAGUE and not is_field:
                    vague.append(f"{path}:{getattr(node, 'lineno', 0)} {name}")
        self.assertEqual([], vague)

    def test_no_two_classes_have_one_name(self) -> None:
        places: dict[str, list[str]] = defaultdict(list)
        for path, node in nodes():
            if isinstance(node, ast.ClassDef) and node.name not in REPEATED_CLASSES:
                places[node.name].append(f"{path}:{node.lineno}")
        self.assertEqual({name: lines for name, lines in places.items() if len(lines) > 1}, {})

    def test_a_private_function_that_many_modules_have_says_what_it_does(self) -> None:
        modules: dict[str, set[str]] = defaultdict(set)
        for path, tree in trees().items():
            for statement in tree.body:
                if isinstance(statement, ast.FunctionDef) and statement.name.startswith("_"):
                    modules[statement.name].add(path)
        repeated = {name: len(paths) for name, paths in modules.items() if len(paths) > MOST_MODULES_OF_A_PRIVATE_NAME}
        self.assertLessEqual(len(repeated), 30, repeated)


class StatementTests(SimpleTestCase):
    def test_a_conditional_expression_has_one_condition(self) -> None:
        nested = [
            f"{path}:{node.lineno}"
            for path, node in nodes()
            if isinstance(node, ast.IfExp) and (isinstance(node.test, ast.BoolOp) or isinstance(node.orelse, ast.IfExp))
        ]
        self.assertEqual(nested, [])

    def test_a_conditional_expression_is_no_statement(self) -> None:
        statements = [
            f"{path}:{node.lineno}"
            for path, node in nodes()
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.IfExp | ast.BoolOp)
        ]
        self.assertEqual(statements, [])

    def test_a_comprehension_fits_on_two_lines(self) -> None:
        kinds = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
        long = [
            f"{path}:{node.lineno}"
            for path, node in nodes()
            if isinstance(node, kinds) and (node.end_lineno or 0) - node.lineno > 3  # with the lines of its brackets
        ]
        self.assertEqual(long, [])


class ModuleTests(SimpleTestCase):
    def test_files_are_short_enough_to_read(self) -> None:
        lengths = {path: len((ROOT / path).read_text("utf-8").splitlines()) for path in trees()}
        self.assertEqual({path: lines for path, lines in lengths.items() if lines > MOST_LINES}, {})

    def test_a_comment_is_a_sentence_at_what_it_explains(self) -> None:
        comments = {
            path: re.findall(r"^ *# Of\b.*", (ROOT / path).read_text("utf-8"), re.MULTILINE) for path in trees()
        }
        self.assertEqual({path: lines for path, lines in comments.items() if lines}, {})

    def test_no_module_imports_itself_through_others(self) -> None:
        modules = frozenset(module_of(path) for path in trees())
        graph = {module_of(path): imports_of(tree, modules) for path, tree in trees().items()}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            self.fail(" -> ".join(error.args[1]))
