"""The same history gives the same log, read models and answers in both databases, whose statements are portable."""

from __future__ import annotations

import json
import pickle
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import TestCase

from django.test import tag

from memories.uses.drain import count_uses
from memoryhub.core import clock, log
from memoryhub.core.events.event_types import event_types
from memoryhub.core.log.rebuilding import table_digests
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.core.tools import all_resources, all_tools
from memoryhub.demo.project import demo_store, make_demo
from memoryhub.mcp.listing import load_tools
from memoryhub.transfer.bundles.applying import apply_bundle
from memoryhub.transfer.bundles.archive import create_bundle, open_bundle
from sessions_app.models import Session
from tests import forks
from tests.databases import on_postgresql
from tests.engines.answers import (
    NOT_CALLED,
    NOW,
    Values,
    completions,
    problems,
    recorded,
    resource_answers,
    selector_answers,
    selectors,
    tool_answers,
)
from tests.engines.story import PROJECT, deterministic, write_history
from tests.postgresql import URL_VARIABLE, shared_cluster
from tests.programs import needs
from tests.sessions_app.test_git import Repository

_COMPARED = ("head", "digests", "types", "tools", "resources", "completions", "selectors")
SEED = 1
# Run in each database by a process of its own
_PROGRAM = """
import json, sys
from pathlib import Path
from tests.engines.test_engines import fill_and_answer
json.dump(fill_and_answer(Path(sys.argv[1])), sys.stdout, default=str, ensure_ascii=False)
"""


def fill_and_answer(folder: Path) -> dict[str, Any]:
    """Fill a hub with both projects, and return what it answers.

    SQLite, which is first, leaves a bundle of the sample project and its statements in the folder; PostgreSQL applies
    the one and plans the others.
    """
    load_tools()
    recording: AbstractContextManager[dict[str, Any]] = nullcontext({}) if on_postgresql() else recorded()
    with recording as sent:
        with clock.frozen(NOW):
            _make_demo(folder / "demo.bundle")
        refused = write_history(SEED, folder / "repository")
        with clock.frozen(NOW), deterministic():
            found = {"demo": _answers("demo", every=6, calls=3), PROJECT: _answers(PROJECT, every=1, calls=16)}
    return {**found, "refused": refused, "statements": _statements(folder / "statements", sent)}


def _make_demo(path: Path) -> None:
    if path.exists():
        apply_bundle(open_bundle(path, lambda: ""), demo_store())
    else:
        make_demo()
        with use_store(demo_store()):
            count_uses()  # notes of reads are files beside the store, until they are events
            create_bundle(path)
    # A score depends on how often each text was indexed, which transactions decide: a rebuild indexes each alike
    with use_store(demo_store()):
        log.rebuild()


def _answers(project: str, *, every: int, calls: int) -> dict[str, Any]:
    with use_store(project_store(project)):
        session = str(Session.objects.order_by("id").values_list("session_id", flat=True)[0])
        with use_origin(source="mcp", actor="reader", session_id=session):
            return {
                "types": sorted({event.event_type for event in RawEvent.objects.all()}),
                "tools": tool_answers(Values(), every=every),
                "resources": resource_answers(Values()),
                "completions": completions(),
                "selectors": selector_answers(Values(), calls=calls),
                "head": log.head(),
                "digests": table_digests(),
                "rebuilt": [table.table for table in log.rebuild().tables if not table.identical],
            }


def _statements(path: Path, sent: dict[str, Any]) -> dict[str, Any]:
    if sent:
        path.write_bytes(pickle.dumps([each for each in sent.values() if each.is_portable]))
        return {}
    with use_store(project_store(PROJECT)):
        statements = pickle.loads(path.read_bytes())
        return {"count": len(statements), "problems": problems(statements)}


@needs("postgresql")
@tag("process")
class EngineTests(TestCase):
    sqlite: dict[str, Any]
    postgresql: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        load_tools()
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        _make_repository(folder / "repository")
        cls.sqlite = _run(folder, "")
        # Of a language, because a database of a service sorts and compares by one, where the hub names no collation
        with shared_cluster().database(locale="en-US") as url:
            cls.postgresql = _run(folder, url)

    def test_both_databases_answer_alike(self) -> None:
        self.assertEqual(self.postgresql["refused"], self.sqlite["refused"])
        for project in ("demo", PROJECT):
            for part in _COMPARED:
                ours, theirs = self.sqlite[project][part], self.postgresql[project][part]
                with self.subTest(f"{project} {part}"):
                    self.assertEqual(list(theirs), list(ours))
                    self.assertEqual(_differing(ours, theirs), {})

    def test_a_rebuild_gives_the_same_read_models(self) -> None:
        for answers in (self.sqlite, self.postgresql):
            self.assertEqual([answers[project]["rebuilt"] for project in ("demo", PROJECT)], [[], []])

    def test_every_statement_of_sqlite_can_be_planned_by_postgresql(self) -> None:
        self.assertEqual(self.postgresql["statements"]["problems"], [])
        self.assertGreater(self.postgresql["statements"]["count"], 200)

    def test_the_history_has_events_of_every_type(self) -> None:
        product = {kind.name for kind in event_types() if not kind.schema.__module__.startswith("tests.")}
        self.assertEqual(product - set(self.sqlite[PROJECT]["types"]), set())

    def test_every_reading_tool_and_resource_succeeds(self) -> None:
        answers = self.sqlite[PROJECT]
        tools = {call.split(" ", 1)[0] for call, answer in answers["tools"].items() if "data" in answer}
        self.assertEqual({tool.name for tool in all_tools() if not tool.writes} - tools, set())
        resources = {uri.split("?")[0] for uri, answer in answers["resources"].items() if "data" in answer}
        begun = {resource.uri_template.partition("{")[0] for resource in all_resources()}
        self.assertEqual({begin for begin in begun if not any(uri.startswith(begin) for uri in resources)}, set())
        self.assertTrue(any(answers["completions"].values()))

    def test_every_argument_of_reading_tools_is_given(self) -> None:
        given = {call.split(" ", 1)[0]: set[str]() for call in self.sqlite[PROJECT]["tools"]}
        for call in self.sqlite[PROJECT]["tools"]:
            name, arguments = call.split(" ", 1)
            given[name] |= set(json.loads(arguments))
        missing = {
            f"{tool.name}.{name}"
            for tool in all_tools()
            if not tool.writes
            for name in set(tool.input.model_fields) - given[tool.name]
        }
        self.assertEqual(missing - _WITHOUT_PAGES, set())

    def test_every_selector_is_compared_or_has_a_reason(self) -> None:
        found = self.sqlite[PROJECT]["selectors"]
        self.assertEqual(set(found) | set(NOT_CALLED), set(selectors()))
        failed = [name for name, results in found.items() if not any(map(_is_result, results))]
        self.assertEqual(failed, [])


# Lists that the history does not fill beyond one page
_OF_ONE_PAGE = (
    "memory_conflicts",
    "memory_stale",
    "org_list",
    "project_list",
    "guideline_history",
    "knowledge_history",
    "tool_history",
)
_WITHOUT_PAGES = {f"{name}.cursor" for name in _OF_ONE_PAGE}


def _is_result(result: Any) -> bool:
    return not (isinstance(result, dict) and "error" in result)


def _differing(ours: Any, theirs: Any) -> Any:
    if not isinstance(ours, dict):
        return {} if ours == theirs else {"SQLite": ours, "PostgreSQL": theirs}
    return {name: [ours[name], theirs.get(name)] for name in ours if ours[name] != theirs.get(name)}


def _make_repository(folder: Path) -> None:
    repository = Repository(folder)
    for number in range(4):
        lines = b"line\n" * (number + 3)
        repository.commit(f"Commit {number} – 水位", **{"feed.py": lines, "docs/a.md": b"%d\n" % number})


def _run(folder: Path, url: str) -> dict[str, Any]:
    home = tempfile.mkdtemp(dir=folder)
    code, printed, errors = forks.run_program(_PROGRAM, str(folder), MEMORY_HUB_HOME=home, **{URL_VARIABLE: url})
    assert code == 0, errors[-3000:]
    found: dict[str, Any] = json.loads(printed)
    return found
