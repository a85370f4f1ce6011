"""The seam for storage backends: what a backend offers, and who may know which one it is."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from django.test import SimpleTestCase

from memories.search import text_index
from memoryhub.core.backends import base, selected, snapshots

ROOT = Path(__file__).parents[2]
PACKAGES = ("benchmarks", "memoryhub", "sessions_app", "memories", "decisions", "governance")
_OF_DATABASES = {"sqlite3", "pysqlite3", "psycopg", "fcntl"}
_PATH_OF_A_STORE = re.compile(r"(?:\b\w*store|target|view|org|STORE|_store\([^()]*\))\.path\b")


class OfferTests(SimpleTestCase):
    def test_a_backend_offers_every_member_of_every_group(self) -> None:
        bound = {
            **{name: (group, getattr(selected, name)) for name, group in get_type_hints(selected).items()},
            "snapshots": (snapshots.Snapshots, snapshots.snapshots),
            "text_index": (text_index.TextIndex, text_index.text_index),
        }
        wrapper = import_module(f"memoryhub.core.backends.{selected.ENGINE}.base").DatabaseWrapper
        self.assertLessEqual(_members(base.Connection), set(dir(wrapper)))
        declared = {group for _, group in inspect.getmembers(base, inspect.isclass) if _is_protocol(group)}
        others = {base.Connection, base.Lease, base.Presence}
        self.assertLessEqual(declared - others, {group for group, _ in bound.values()})
        for name, (group, module) in bound.items():
            for member in _members(group):
                with self.subTest(group=name, member=member):
                    offered, wanted = getattr(module, member), getattr(group, member, None)
                    if inspect.isfunction(wanted):
                        self.assertEqual(_parameters(offered), _parameters(wanted)[1:])


def _is_protocol(group: Any) -> bool:
    return group.__module__ == base.__name__ and Protocol in group.__bases__


def _members(group: Any) -> set[str]:
    functions = {name for name, _ in inspect.getmembers(group, inspect.isfunction) if not name.startswith("_")}
    return functions | set(get_type_hints(group))


def _parameters(function: Any) -> list[str]:
    found = inspect.signature(function).parameters.values()
    # One that a backend has no use for begins with an underscore
    return [parameter.name.lstrip("_") for parameter in found if parameter.default is inspect.Parameter.empty]


class SecretTests(SimpleTestCase):
    def test_databases_are_imported_by_the_backends_and_by_whom_the_contract_names(self) -> None:
        contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        (contract,) = (found for found in contracts if "sqlite3" in found.get("forbidden_modules", ()))
        allowed = {line.partition(" ->")[0] for line in contract["ignore_imports"]}
        for name, imported in _imports():
            if imported in _OF_DATABASES and not name.startswith("memoryhub.core.backends."):
                self.assertTrue({name, f"{name.rpartition('.')[0]}.*"} & allowed, f"{name} imports {imported}")

    def test_nobody_takes_a_store_for_a_file(self) -> None:
        found = [
            f"{path.relative_to(ROOT)}: {line.strip()}"
            for path in _modules()
            for line in path.read_text().splitlines()
            if _PATH_OF_A_STORE.search(line)
        ]
        self.assertEqual(found, [])


def _imports() -> Iterator[tuple[str, str]]:
    for path in _modules():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((name, alias.name.partition(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield name, (node.module or "").partition(".")[0]


def _modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))
