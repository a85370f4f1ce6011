"""Tools for tests; the server loads the module that ``MEMORY_HUB_TEST_TOOLS`` names."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Literal

from django.db import connections
from pydantic import BaseModel, Field

from memories.schemas import MemoryWrite
from memories.tools import write
from memoryhub.core.errors import ConfirmationRequired, ConflictError, NotFound
from memoryhub.core.origin import current_origin
from memoryhub.core.schemas import unlisted
from memoryhub.core.stores.store import current_store
from memoryhub.core.tools import Answer, Resource, Tool, ToolGroup, register_resources, register_tools

_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class EchoInput(BaseModel):
    text: str = Field(max_length=100_000_000)
    times: int = Field(1, ge=1, le=5, description="How often.")
    mode: Literal["plain", "loud"] = "plain"
    tags: list[str] | None = None


class NothingInput(BaseModel):
    """No arguments at all."""


class FileInput(BaseModel):
    """A file to write, seconds to sleep, and a file to wait for."""

    path: str
    seconds: float = 0
    until: str = ""


class ShredInput(BaseModel):
    path: str
    confirm_token: str | None = Field(None, json_schema_extra=unlisted)


def _echo(given: EchoInput) -> Answer:
    text = " ".join([given.text] * given.times)
    return Answer(text.upper() if given.mode == "loud" else text, {"text": text, "tags": given.tags or []})


def _origin(_: NothingInput) -> Answer:
    origin = current_origin()
    text = f"{origin.source} {origin.actor} {origin.session_id} {current_store().name}"
    return Answer(text, {"origin": text})


def _print(_: NothingInput) -> Answer:
    print("this is not for the wire", flush=True)
    return Answer("printed", {})


def _crash(_: NothingInput) -> Answer:
    raise ZeroDivisionError("on purpose")


def _fail(_: NothingInput) -> Answer:
    raise ConflictError("there is one already; update it instead", id=412, choices=["alpha", "beta"])


def _endless(_: NothingInput) -> Answer:
    with connections[f"store:project:{current_store().name}"].cursor() as cursor:
        cursor.execute(_ENDLESS)
        return Answer(str(cursor.fetchone()), {})


def _slow_write(given: FileInput) -> Answer:
    path = Path(given.path)
    path.write_text("begun")
    time.sleep(given.seconds)
    while given.until and not Path(given.until).exists():
        time.sleep(0.01)
    path.write_text("done")
    return Answer("written", {})


def _wait(given: FileInput) -> Answer:
    with Path(given.path).open("a") as trace:
        trace.write("begun\n")
    while not Path(given.until).exists():
        time.sleep(0.01)
    return Answer("waited", {})


def _forget(given: FileInput) -> Answer:
    Path(given.path).write_text("")
    return Answer("emptied", {})


def _die(_: NothingInput) -> Answer:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _write_and_die(given: MemoryWrite) -> Answer:
    answer = write(given)
    if not (mark := Path(os.environ["MEMORY_HUB_HOME"], "died")).exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


def _shred(given: ShredInput) -> Answer:
    path = Path(given.path)
    token = f"shred-{path.stat().st_ino}"
    if given.confirm_token != token:
        raise ConfirmationRequired("permanently delete #412 'file'?", id=412, confirm_token=token)
    path.unlink()
    return Answer("deleted", {"id": 412})


def _read_item(parameters: dict[str, str]) -> dict[str, object]:
    if parameters["id"] == "404":
        raise NotFound("there is no #404 in this store")
    return {"parameters": parameters, "store": current_store().name}


_DESTRUCTIVE: dict[str, Any] = {"group": ToolGroup.QUERY, "writes": True, "destructive": True}

register_tools(
    Tool("test_echo", "Say it again.", EchoInput, _echo, aliases=("old_echo",), renamed={"utterance": "text"}),
    Tool("test_origin", "Say who calls.", NothingInput, _origin),
    Tool("test_print", "Print to stdout.", NothingInput, _print),
    Tool("test_crash", "Fail unexpectedly.", NothingInput, _crash, group=ToolGroup.WORK),
    Tool("test_fail", "Fail with an error of the hub.", NothingInput, _fail, group=ToolGroup.QUERY),
    Tool("test_endless", "Read for ever.", NothingInput, _endless, group=ToolGroup.QUERY),
    Tool("test_wait", "Read until a file exists.", FileInput, _wait, group=ToolGroup.QUERY),
    Tool("test_slow_write", "Write slowly.", FileInput, _slow_write, group=ToolGroup.QUERY, writes=True),
    Tool("test_die", "End the process.", NothingInput, _die, group=ToolGroup.QUERY, writes=True),
    Tool("test_write_and_die", "Write, and end the first process.", MemoryWrite, _write_and_die, writes=True),
    Tool("test_forget", "Empty a file.", FileInput, _forget, idempotent=True, **_DESTRUCTIVE),
    Tool("test_shred", "Delete a file for good.", ShredInput, _shred, aliases=("old_shred",), **_DESTRUCTIVE),
)
register_resources(Resource("test://item/{id}{?a,b}", "item", "One item.", _read_item))
