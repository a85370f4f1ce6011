"""Run one operation of the hub with stores in PostgreSQL, and die before its Nth statement: NAME N FOLDER.

Statements and steps of the processes that it starts are counted with it. An even number is the death of all of them, as
when a machine stops, an odd one that of one process alone.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
from django.core.management import CommandError, call_command

from governance import jobs
from governance.imports import list_batches, preview_undo
from governance.imports import undo_import as undo
from governance.redaction import service as redaction
from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.retention.schemas import RetentionPlanRequest, RetentionRunRequest
from governance.retention.selectors import plan_retention
from governance.retention.service import run_retention
from governance.rollback import service as rollbacks
from governance.rollback.schemas import RollbackMake, RollbackPlan
from memories.models import Memory, MemoryScope
from memories.schemas import MemoryDelete, MemoryTouch, MemoryWrite
from memories.services import delete_memory, write_memory
from memories.services.deletion import erase_memory
from memoryhub.core import clock
from memoryhub.core.errors import ConfirmationRequired, HubError, NotFound
from memoryhub.core.log.views import as_of
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.demo.project import remove_demo
from memoryhub.ops import hub_databases
from memoryhub.ops.hub_databases import prepare_databases
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.projects import ProjectCreate, create_project
from memoryhub.transfer.moving import switching
from tests.forks import SUBPROCESS

PROJECT = "alpha"
# A project that moves, one of an older version, and an organisation
MOVING, OLDER, ORG = "moving", "older", "acme"
# What the operation ends with if another of its processes was killed
CHILD_KILLED = 3
NAME = "Maya Quokkaland"
Operation = Callable[[Path], None]


def write(_folder: Path) -> None:
    write_memory(command=MemoryWrite(title="Killed", content=f"Ask {NAME} for the gauge.", idempotency_key="killed"))


def create(_folder: Path) -> None:
    with use_store(project_store("another"), create=True):
        write(_folder)


def undo_import(folder: Path) -> None:
    present = [batch.id for batch in list_batches() if not batch.is_undone]
    for batch_id in present:
        undo(batch_id=batch_id, token=preview_undo(batch_id).token)
    if not present:
        with suppress(SystemExit):  # of read models that differed, which the refusal of a second undo names
            rebuild(folder)


def rebuild(_folder: Path) -> None:
    command("rebuild")


def redact(_folder: Path) -> None:
    preview = redaction.preview_redaction(command=RedactionSelect(text=NAME))
    if preview.events:
        redaction.redact(command=RedactionRun(text=NAME, confirm_token=preview.confirm_token))
    else:
        wipe()


def roll_back(_folder: Path) -> None:
    plan = rollbacks.preview(command=RollbackPlan(actor="bad"))
    if plan.counts:  # nothing is left if it was done before the death
        rollbacks.roll_back(command=RollbackMake(actor="bad", confirm_token=plan.confirm_token))


def retain(_folder: Path) -> None:
    later = clock.from_text("2040-01-01")
    digest = plan_retention(command=RetentionPlanRequest(now=later)).digest
    run_retention(command=RetentionRunRequest(now=later, digest=digest))


def back_up(folder: Path) -> None:
    command("bundle", "create", str(folder / "alpha.bundle"), "--force")


def erase(_folder: Path) -> None:
    memory = Memory.objects.filter(title="To erase").first()
    if memory is None:
        wipe()
        return
    if memory.deleted_at is None:
        delete_memory(command=MemoryTouch(id=memory.id))
    command = MemoryDelete(id=memory.id, permanent=True)
    try:
        erase_memory(command=command)
    except ConfirmationRequired as error:
        erase_memory(command=command.model_copy(update={"confirm_token": error.data["confirm_token"]}))


def organize(_folder: Path) -> None:
    create_org(command=OrgCreate.model_validate({"id": ORG, "if_exists": "update"}))
    create_project(command=ProjectCreate.model_validate({"id": PROJECT, "org_id": ORG, "if_exists": "update"}))


def publish(_folder: Path) -> None:
    for scope in (MemoryScope.ORG, MemoryScope.GLOBAL):
        note = MemoryWrite(title=f"For {scope}", content="Shared.", scope=scope, idempotency_key=f"for-{scope}")
        with use_store(project_store(PROJECT)):
            write_memory(command=note)


def read_past(_folder: Path) -> None:
    with as_of(10):
        pass


def upgrade(_folder: Path) -> None:
    with use_store(project_store(OLDER)):
        pass


def prepare_hub(_folder: Path) -> None:
    prepare_databases()


def make_sample(folder: Path) -> None:
    remove_sample(folder)
    run_command("demo")


def remove_sample(_folder: Path) -> None:
    with suppress(NotFound):
        remove_demo()


def command(*words: str) -> None:
    call_command(*words, "--project", PROJECT, stdout=StringIO(), stderr=StringIO())


def wipe() -> None:
    """Do as the worker's job after a removal that was killed when it was committed."""
    jobs.wipe(mock.Mock())


def run_command(*words: str) -> None:
    call_command(*words, stdout=StringIO(), stderr=StringIO())


def bundle(name: str, project: str) -> Operation:
    return lambda folder: run_command("bundle", "apply", str(folder / name), "--project", project)


def moving(*options: str) -> Operation:
    return lambda _folder: run_command("move", MOVING, *options)


# In this order: each is repeated until it completes, and begins where the one before has ended
IN_PROJECT: dict[str, Operation] = {
    "write": write,
    "create": create,
    "import_documents": lambda folder: command("import", "markdown", str(folder / "documents")),
    "import_records": lambda folder: command("import", "jsonl", str(folder / "export.jsonl")),
    "import_notes": lambda folder: command("import", "obsidian", str(folder / "vault"), "--yes"),
    "undo_import": undo_import,
    "rebuild": rebuild,
    "read_past": read_past,
    "erase": erase,
    "redact": redact,
    "roll_back": roll_back,
    "retain": retain,
    "back_up": back_up,
    "adopt": bundle("whole.bundle", "adopted"),
    "forward": bundle("longer.bundle", "adopted"),
    "merge": bundle("longer.bundle", PROJECT),
}
MOVES: dict[str, Operation] = {
    "move_to_server": moving("--to", "second"),
    "undo_move": moving("--undo", "--to", "second"),
    "move_to_files": moving("--to", "sqlite"),
    "move_back": moving("--undo", "--to", "sqlite"),
    "confirm_files": moving("--confirm", "--to", "sqlite"),
    "move_on": moving("--to", "second"),
    "confirm_server": moving("--confirm", "--to", "second"),
}
OPERATIONS: dict[str, Operation] = {
    **IN_PROJECT,
    **MOVES,
    "upgrade": upgrade,
    "organize": organize,
    "publish": publish,
    "make_sample": make_sample,
    "remove_sample": remove_sample,
    "back_up_all": lambda _folder: run_command("backup"),
    "prepare_hub": prepare_hub,
}


class Counter:
    """Counts what all processes of an operation do, and kills at one of them."""

    def __init__(self, last: int, folder: Path) -> None:
        self._last, self._path = last, folder / "statements"
        # The numbers of all processes of the operation
        self._processes = folder / "processes"
        with self._processes.open("a") as file:
            file.write(f"{os.getpid()}\n")

    def count(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(b".")
            if file.tell() == self._last:
                self._kill()

    def _kill(self) -> None:
        own = os.getpid()
        if self._last % 2 == 0:
            for pid in set(map(int, self._processes.read_text().split())) - {own}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        os.kill(own, signal.SIGKILL)

    def watch(self, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count()
            return function(*arguments, **options)

        setattr(owner, name, counted)


def run_child(last: str, folder: str, module: str, *arguments: str) -> None:
    Counter(int(last), Path(folder)).watch(psycopg.Cursor, "execute")
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main(name: str, last: int, folder: Path) -> int:
    """Run an operation; with ``last``, die before that statement or step."""
    for file in ("statements", "processes"):
        (folder / file).write_bytes(b"")

    def child(module: str, *arguments: str) -> list[str]:
        own = [sys.executable, "-m", "tests.postgres.killed_operation", "--child"]
        return [*own, str(last), str(folder), module, *arguments]

    counter = Counter(last, folder)
    counter.watch(psycopg.Cursor, "execute")
    counter.watch(switching.Peer, "ask")
    with (
        mock.patch.object(switching, "module_command", child),
        mock.patch.object(switching, "subprocess", SUBPROCESS),
        mock.patch.object(hub_databases, "module_command", child),
        use_origin(actor="ada", source="cli"),
        use_store(project_store(PROJECT)) if name in IN_PROJECT else nullcontext(),
    ):
        try:
            OPERATIONS[name](folder)
        except (CommandError, HubError) as error:
            print(error, file=sys.stderr)
            return CHILD_KILLED if "has ended; try again" in str(error) else 1
    print((folder / "statements").stat().st_size)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        run_child(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
