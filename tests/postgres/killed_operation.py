"""Run one operation of the hub with stores in PostgreSQL, and die before its Nth statement: NAME N FOLDER."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import django
import psycopg

PROJECT = "alpha"
NAME = "Maya Quokkaland"


def write(_folder: Path) -> None:
    from memories.schemas import MemoryWrite
    from memories.services import write_memory

    write_memory(command=MemoryWrite(title="Killed", content=f"Ask {NAME} for the gauge.", idempotency_key="killed"))


def create(_folder: Path) -> None:
    from memoryhub.core.stores.store import project_store, use_store

    with use_store(project_store("another"), create=True):
        write(_folder)


def import_documents(folder: Path) -> None:
    command("import", "markdown", str(folder / "documents"))


def import_records(folder: Path) -> None:
    command("import", "jsonl", str(folder / "export.jsonl"))


def undo_import(_folder: Path) -> None:
    from governance.imports.batches import list_batches
    from governance.imports.undo import preview_undo
    from governance.imports.undo import undo_import as undo

    for batch in list_batches():
        if not batch.is_undone:
            undo(batch_id=batch.id, token=preview_undo(batch.id).token)


def rebuild(_folder: Path) -> None:
    command("rebuild")


def redact(_folder: Path) -> None:
    from governance.redaction.schemas import RedactionRun, RedactionSelect
    from governance.redaction.service import preview_redaction
    from governance.redaction.service import redact as run

    preview = preview_redaction(command=RedactionSelect(text=NAME))
    if preview.events:
        run(command=RedactionRun(text=NAME, confirm_token=preview.confirm_token))


def roll_back(_folder: Path) -> None:
    from governance.rollback.schemas import RollbackMake, RollbackPlan
    from governance.rollback.services import preview
    from governance.rollback.services import roll_back as run

    plan = preview(command=RollbackPlan(actor="bad"))
    if plan.counts:  # nothing is left if it was done before the death
        run(command=RollbackMake(actor="bad", confirm_token=plan.confirm_token))


def retain(_folder: Path) -> None:
    from governance.retention.run import run_retention
    from governance.retention.schemas import RetentionPlanRequest, RetentionRunRequest
    from governance.retention.selectors import plan_retention
    from memoryhub.core import clock

    later = clock.from_text("2040-01-01")
    digest = plan_retention(command=RetentionPlanRequest(now=later)).digest
    run_retention(command=RetentionRunRequest(now=later, digest=digest))


def back_up(folder: Path) -> None:
    command("bundle", "create", str(folder / "alpha.bundle"), "--force")


def adopt(folder: Path) -> None:
    from django.core.management import call_command

    call_command("bundle", "apply", str(folder / "whole.bundle"), "--project", "adopted", stdout=StringIO())


def command(*words: str) -> None:
    from django.core.management import call_command

    call_command(*words, "--project", PROJECT, stdout=StringIO(), stderr=StringIO())


OPERATIONS: dict[str, Callable[[Path], None]] = {
    operation.__name__: operation
    for operation in (
        write, create, import_documents, import_records, undo_import, rebuild, redact, roll_back, retain, back_up, adopt
    )
}  # fmt: skip


def main(name: str, last: int, folder: Path) -> int:
    """Return the number of statements that the operation sent; with ``last``, die before that one."""
    sent = 0
    execute = psycopg.Cursor.execute

    def counted(cursor: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(cursor, *arguments, **options)

    django.setup()
    from memoryhub.core.origin import use_origin
    from memoryhub.core.stores.store import project_store, use_store

    psycopg.Cursor.execute = counted  # type: ignore[method-assign, assignment]
    with use_origin(actor="ada", source="cli"), use_store(project_store(PROJECT)):
        OPERATIONS[name](folder)
    return sent


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
