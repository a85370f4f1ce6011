from __future__ import annotations

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from django.test import SimpleTestCase, tag

from memories.models import Tag
from memories.search import index
from memoryhub.core import clock
from memoryhub.core.backends import base, selected, snapshots
from memoryhub.core.errors import Invalid
from memoryhub.core.stores import dialect, rows
from memoryhub.core.stores.dialect import (
    IDS,
    TEXTS,
    begins_with,
    blob,
    days_between,
    elements,
    entries,
    greatest,
    has_part,
    int_elements,
    int_entries,
    json_array_of,
    json_int,
    json_list,
    json_text,
    position_of,
    render,
    unindexed,
)
from tests.databases import on_postgresql, sqlite_only
from tests.support import HubTestCase

ROOT = Path(__file__).parents[2]
PACKAGES = ("benchmarks", "memoryhub", "sessions_app", "memories", "decisions", "governance")
_OF_DATABASES = {"sqlite3", "pysqlite3", "psycopg", "fcntl"}
_PATH_OF_A_STORE = re.compile(r"(?:\b\w*store|target|view|org|STORE|_store\([^()]*\))\.path\b")


@tag("backend")
class OfferTests(SimpleTestCase):
    def test_a_backend_offers_every_member_of_every_group(self) -> None:
        bound = {
            **{name: (group, getattr(selected, name)) for name, group in get_type_hints(selected).items()},
            "snapshots": (snapshots.Snapshots, snapshots.snapshots),
            "text_index": (index.TextIndex, index.text_index),
        }
        wrapper = import_module(f"memoryhub.core.backends.{selected.ENGINE}.base").DatabaseWrapper
        self.assertLessEqual(_members(base.StoreConnection), set(dir(wrapper)))
        declared = {group for _, group in inspect.getmembers(base, inspect.isclass) if _is_protocol(group)}
        others = {base.StoreConnection, base.Lease}
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
        (contract,) = (item for item in contracts if "sqlite3" in item.get("forbidden_modules", ()))
        allowed = {line.partition(" ->")[0] for line in contract["ignore_imports"]}
        for path in _modules(*PACKAGES):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if name.startswith("memoryhub.core.backends."):
                continue
            for imported in _OF_DATABASES & set(_imports(path)):
                self.assertTrue({name, f"{name.rpartition('.')[0]}.*"} & allowed, f"{name} imports {imported}")

    def test_nobody_takes_a_store_for_a_file(self) -> None:
        for path in _modules(*PACKAGES):
            lines = [line.strip() for line in path.read_text().splitlines() if _PATH_OF_A_STORE.search(line)]
            self.assertEqual(lines, [], path)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def _modules(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


RECORD = ROOT / "docs/decisions/0041-write-sql-for-two-databases.md"
_ONLY_SQLITE = re.compile(
    r"\bjson_(?:each|extract|group_array|group_object|type|array|set|valid|tree)\(|\b(?:INSERT|UPDATE) OR [A-Z]+\b"
    r"|\bPRAGMA\b|\bpragma_\w+|writable_schema|\bMATCH\b|\bbm25\(|\bfts5|\browid\b|\btypeof\(|\bINDEXED BY\b"
    r"|\bNOT INDEXED\b|\b(?:ATTACH|DETACH|VACUUM)\b|\bBEGIN IMMEDIATE\b|\bsqlite_(?:master|schema|version|sequence)\b"
    r"|\b(?:julianday|strftime|unixepoch|instr|total|zeroblob)\(|\bGLOB\b|\bRAISE ?\(|\bIS (?:NOT )?[a-z]\w*\.\w+"
    r"|\b(?:max|min)\([^()]*(?:\([^()]*\)[^()]*)?,|(?<![\w)%])\+[a-z]\.\w+|\b(?:WHERE|AND) [01]\b"
)
_SQL = re.compile(
    r"\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|FROM|WHERE|WITH|IN|AND|OR|AS|BEGIN|PRAGMA|ATTACH|DETACH)\b|\("
)


@tag("backend")
class FormTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha"))

    def value(self, sql: str, *parameters: Any) -> Any:
        ((value,),) = rows.fetch(f"SELECT {sql}", parameters)
        return value

    def test_each_form_has_the_value_that_it_names(self):
        document = '{"edge": {"to": 7, "relation": "refines"}, "pair": [1, "two"]}'
        for sql, parameters, value in (
            (f"2 IN {IDS}", [json_list([])], 0),
            (f"2 IN {IDS}", [json_list([1, 2])], 1),
            (f"2 IN {IDS}", [json_list(range(50_000))], 1),
            (f"'b' IN {TEXTS}", [json_list("ab")], 1),
            (json_int("%s", "edge", "to"), [document], 7),
            (json_text("%s", "edge", "relation"), [document], "refines"),
            (json_text("%s", "pair", 1), [document], "two"),
            (json_text("%s", "nothing"), [document], None),
            (greatest("%s", "%s", "2"), [1, 3], 3),
            (position_of("'lo'", "'hello'"), [], 4),
            (days_between("'2026-01-01 12:00'", "'2026-01-03'"), [], 1.5),
            (days_between("'2026-01-01 00:00:00'", "'2026-01-01 07:59:59.999'"), [], 28_799_999 / 86_400_000),
            (f"{unindexed('e.value')} FROM {int_elements()} AS e", ["[5]"], 5),
        ):
            with self.subTest(sql=sql):
                self.assertEqual(self.value(sql, *parameters), value)
        array = self.value(f"{json_array_of('value')} FROM {int_elements()} AS e", "[1, 2]")
        self.assertEqual(json.loads(array), [1, 2])

    def test_arrays_and_objects_are_rows(self):
        nested = int_entries("%s", "at", "last")
        for sql, document, expected in (
            (f"SELECT value FROM {elements()} AS e", '["a", "b"]', [("a",), ("b",)]),
            (f"SELECT value FROM {int_elements('%s', 'ids')} AS e", '{"ids": [3]}', [(3,)]),
            (f"SELECT key, value FROM {entries()} AS e", '{"a": "b"}', [("a", "b")]),
            (f"SELECT key, value FROM {nested} AS e", '{"at": {"last": {"7": 9}}}', [("7", 9)]),
        ):
            with self.subTest(sql=sql):
                self.assertEqual(rows.fetch(sql, [document]), expected)

    @sqlite_only("a column may have values of any type")
    def test_what_is_no_blob_is_empty(self):
        self.assertEqual(self.value(f"{blob('x')} FROM (SELECT 'text' AS x)"), b"")

    def test_a_text_with_nul_is_found_nowhere_or_refused_by_postgresql(self):
        for condition, parameter in (("title = %s", "a\0b"), (f"title IN {TEXTS}", json.dumps(["a\0b"]))):
            sql = f"SELECT id FROM memories_memory WHERE {condition}"
            with self.subTest(condition=condition), self.store():
                if on_postgresql():
                    with self.assertRaisesRegex(Invalid, "a NUL character"):
                        rows.fetch(sql, [parameter])
                else:
                    self.assertEqual(rows.fetch(sql, [parameter]), [])

    def test_a_value_beside_the_log_is_inserted_and_then_replaced(self):
        for value in ("first", "second"):
            rows.put_meta("mark", value)
        self.assertEqual((rows.meta("mark"), rows.meta("another mark")), ("second", None))


class PostgreSQLFormTests(SimpleTestCase):
    def test_each_form_is_rendered(self):
        numbers = "(SELECT key, CAST(value AS bigint) AS value FROM jsonb_each_text((%s)::jsonb))"
        ids = "(SELECT CAST(value AS bigint) FROM jsonb_array_elements_text(%s::jsonb))"
        nested = greatest("0.0", position_of("%s", "lower(x)"))
        other = "INSERT INTO t (key, value) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        for sql, postgresql in (
            (f"id IN {IDS}", f"id IN {ids}"),
            (TEXTS, "(SELECT value FROM jsonb_array_elements_text(%s::jsonb))"),
            (elements("e.x", "a", "b"), "jsonb_array_elements_text((e.x)::jsonb -> 'a' -> 'b')"),
            (entries(), "jsonb_each_text((%s)::jsonb)"),
            (int_entries(), f"LATERAL {numbers}"),
            (json_text("e.x", "edge", "to"), "((e.x)::jsonb -> 'edge' ->> 'to')"),
            (json_text("value", 0), "((value)::jsonb ->> 0)"),
            (json_int("x", "n"), "CAST(((x)::jsonb ->> 'n') AS bigint)"),
            (nested, "greatest(0.0, strpos(lower(x), %s))"),
            (unindexed("m.id"), "m.id"),
            (blob("numbers"), "numbers"),
            (other, other),
            ("SELECT '[]', '{}', 1 % 2", "SELECT '[]', '{}', 1 % 2"),
        ):
            with self.subTest(sql=sql):
                self.assertEqual(render(sql, "postgresql"), postgresql)
        self.assertEqual(render(nested, "sqlite"), "max(0.0, instr(lower(x), %s))")


@tag("backend")
class LookupTests(HubTestCase):
    def test_parts_of_texts_have_their_case(self):
        self.enterContext(self.store("alpha"))
        for number, name in enumerate(("feed.py", "Feed.py", "100%", "feed_py", "a feed.py b"), 1):
            Tag.objects.create(id=number, name=name, created_at=clock.now())
        for lookup, part, ids in (
            (begins_with, "fe", [1, 4]),
            (begins_with, "100%", [3]),
            (has_part, "feed.py", [1, 5]),
            (has_part, "%", [3]),
            (has_part, "_", [4]),
        ):
            matches = Tag.objects.filter(lookup("name", part)).order_by("id")
            self.assertEqual(list(matches.values_list("id", flat=True)), ids, part)


class PortabilityTests(SimpleTestCase):
    def test_no_module_uses_a_lookup_that_ignores_case_in_sqlite(self):
        lookup = re.compile(r"__(?:contains|startswith|endswith)\b")
        self.assertEqual([path for path in _portable_modules() if lookup.search(path.read_text())], [])

    def test_the_record_names_the_modules_that_keep_to_sqlite(self):
        found = {str(path.relative_to(ROOT)) for path in _portable_modules() if any(map(_is_sqlite_only, _texts(path)))}
        listed = [line for line in RECORD.read_text().splitlines() if line.startswith("|")]
        named = set(re.findall(r"`([\w/]+\.py)`", "".join(listed)))
        self.assertEqual(found - {str(Path(dialect.__file__).relative_to(ROOT))}, named)

    def test_the_rule_tells_the_two_apart(self):
        sqlite = "SELECT max(a, b)|WHERE x IS NOT t.y|INSERT OR IGNORE INTO t|AND +m.kind IN|SELECT rowid"
        both = "SELECT max(a), min(b)|WHERE x IS NOT NULL|ON CONFLICT DO NOTHING|a + b.c|WHERE id IN (1)"
        for texts, is_sqlite_only in ((sqlite, True), (both, False)):
            for sql in texts.split("|"):
                self.assertEqual(_is_sqlite_only(sql), is_sqlite_only, sql)


def _portable_modules() -> Iterator[Path]:
    for path in _modules(*PACKAGES[1:]):
        if not {"migrations", "benchmarking", "evaluation", "backends"} & set(path.parts):
            yield path


def _is_sqlite_only(text: str) -> bool:
    return bool(_SQL.search(text) and _ONLY_SQLITE.search(text))


def _texts(path: Path) -> Iterator[str]:
    """Yield a module's string literals without docstrings; f-string values become ``{}``."""
    tree = ast.parse(path.read_text())
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    left_out |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value
