"""``python -m tests.engines.run FOLDER``: fill a hub with both projects, and print what it answers, as JSON.

It is run once in each database. SQLite, which is first, leaves a bundle of the sample project and its statements in
the folder; PostgreSQL applies the one and plans the others.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import django

SEED = 1


def main(folder: Path) -> dict[str, Any]:
    from memoryhub.core import clock
    from memoryhub.mcp.registry import load_tools
    from tests.databases import on_postgresql
    from tests.engines.answers import recorded
    from tests.engines.story import PROJECT, deterministic, write_history
    from tests.engines.values import NOW

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
    from memories.uses.drain import count_uses
    from memoryhub.core.stores.store import use_store
    from memoryhub.demo.project import demo_store, make_demo
    from memoryhub.transfer.bundles.applying import apply_bundle
    from memoryhub.transfer.bundles.creating import create_bundle
    from memoryhub.transfer.bundles.reading import open_bundle

    if path.exists():
        apply_bundle(open_bundle(path, lambda: ""), demo_store())
        return
    make_demo()
    with use_store(demo_store()):
        count_uses()  # notes of reads are files beside the store, until they are events
        create_bundle(path)


def _answers(project: str, *, every: int, calls: int) -> dict[str, Any]:
    from memoryhub.core import log
    from memoryhub.core.log.rebuild import table_digests
    from memoryhub.core.models import RawEvent
    from memoryhub.core.origin import use_origin
    from memoryhub.core.stores.store import project_store, use_store
    from sessions_app.models import Session
    from tests.engines import answers
    from tests.engines.values import Values

    with use_store(project_store(project)):
        session = str(Session.objects.order_by("id").values_list("session_id", flat=True)[0])
        with use_origin(source="mcp", actor="reader", session_id=session):
            return {
                "types": sorted({event.event_type for event in RawEvent.objects.all()}),
                "tools": answers.tool_answers(Values(), every=every),
                "resources": answers.resource_answers(Values()),
                "completions": answers.completions(),
                "selectors": answers.selector_answers(Values(), calls=calls),
                "head": log.head(),
                "digests": table_digests(),
                "rebuilt": [table.table for table in log.rebuild().tables if not table.identical],
            }


def _statements(path: Path, sent: dict[str, Any]) -> dict[str, Any]:
    from memoryhub.core.stores.store import project_store, use_store
    from tests.engines.answers import problems
    from tests.engines.story import PROJECT

    if sent:
        path.write_bytes(pickle.dumps([each for each in sent.values() if each.is_portable]))
        return {}
    with use_store(project_store(PROJECT)):
        statements = pickle.loads(path.read_bytes())
        return {"count": len(statements), "problems": problems(statements)}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings")
    django.setup()
    json.dump(main(Path(sys.argv[1])), sys.stdout, default=str, ensure_ascii=False)
