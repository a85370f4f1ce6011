"""A tool call: validate the arguments, run the handler in a thread, and format its answer or error."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from django.db import connections
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from memoryhub.config.folder import use_folder
from memoryhub.core import log
from memoryhub.core.errors import ChoiceRequired, ConfirmationRequired, HubError, Invalid, Unavailable
from memoryhub.core.origin import use_origin
from memoryhub.core.paging import answering
from memoryhub.core.permissions import use_grant
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import compact_json, hanging
from memoryhub.core.tools import Answer, Tool, all_tools
from memoryhub.core.validation import explain
from memoryhub.mcp.binding import Binding
from memoryhub.mcp.caller import Caller
from memoryhub.mcp.schema import FORMATS, plain_arguments
from memoryhub.mcp.threads import Job, Workers
from memoryhub.mcp.turns import TurnKeeper, TurnKeepers
from memoryhub.ops.serving.drain import drain_before_reading

logger = logging.getLogger(__name__)

Result = dict[str, Any]
T = TypeVar("T")

MAX_ACTOR_LENGTH = 100
# Arguments of every tool, handled by the server.
_SERVER_ARGUMENTS = frozenset({"format", "project_id", "ack_token"})


class Calls:
    def __init__(self, workers: Workers, binding: Binding, keepers: TurnKeepers) -> None:
        self._workers = workers
        self._binding = binding
        self._keepers = keepers
        # Called once with the client's name and its project, at its first call.
        self.describe_client: Callable[[str, str], None] | None = None

    async def call(self, tool: Tool, arguments: dict[str, Any], *, caller: Caller) -> Result:
        """Return the answer or error as a ``CallToolResult``; only questions for the user are raised."""
        as_json = arguments.get("format") == "json"
        try:
            given = _arguments(tool, arguments)
            token = str(arguments.get("ack_token") or "")
            turns = await self._keepers.of(caller.connection)
            answering = partial(_answer, tool, given, as_json=as_json)
            handler = partial(_handle, tool, answering, caller.actor, token, turns)
            answer = await self.run(
                handler, writes=tool.writes or tool.records, caller=caller, project_id=arguments.get("project_id")
            )
        except (ConfirmationRequired, ChoiceRequired):
            raise
        except HubError as error:
            return error_result(error, as_json=as_json)
        except Exception as error:
            logger.exception("tool %s failed", tool.name)
            return _text_result(f"internal error: {type(error).__name__}; the server's log has the details", error=True)
        if answer.session_id is not None:
            turns.choose(answer.session_id)
        return _present(answer, as_json=as_json)

    async def run(self, work: Callable[[], T], *, writes: bool, caller: Caller, project_id: object = None) -> T:
        """Run ``work`` in a thread with the project's store and the caller's origin set."""
        turns = await self._keepers.of(caller.connection)
        return await self._workers.run(
            lambda job: self._run_here(work, job, turns, caller=caller, project_id=project_id),
            writes=writes,
            project=self._binding.project or "",
        )

    def _run_here(
        self, work: Callable[[], T], job: Job[T], turns: TurnKeeper, *, caller: Caller, project_id: object
    ) -> T:
        store = self._binding.check(project_id)
        drain_before_reading(store.name)
        origin = use_origin(source="mcp", actor=caller.actor, session_id=turns.session_id)
        try:
            folder = use_folder(self._binding.folder())
            with use_grant(caller.grant), use_store(store, create=self._binding.creates), folder, origin:
                connection = connections[store.alias]
                connection.ensure_connection()
                job.watch(connection)  # type: ignore[arg-type] # of the backend
                self._binding.note_folder()
                if self.describe_client:
                    self.describe_client(caller.actor, store.name)
                    self.describe_client = None
                return work()
        except Exception as error:
            if job.dropped and not isinstance(error, HubError):
                raise Unavailable("the call was cancelled") from error
            raise


def _handle(tool: Tool, answering: Callable[[], Answer], actor: str, token: str, turns: TurnKeeper) -> Answer:
    if token or tool.keeps_turns or not tool.writes:
        with use_origin(ack_token=token):
            return answering()
    with turns.turn(actor):
        return answering()


def _answer(tool: Tool, given: BaseModel, *, as_json: bool) -> Answer:
    text_handler = None if as_json else tool.in_words
    with answering(as_json=as_json):
        answer = Answer(text_handler(given), {}) if text_handler else tool.handler(given)
    warning = log.anchor_warning()
    if not warning:
        return answer
    return replace(answer, text=f"{answer.text}\n(warning: {warning})", data={**answer.data, "warning": warning})


def clean_actor(name: str) -> str:
    printable = "".join(character for character in name if character.isprintable())
    return printable.strip()[:MAX_ACTOR_LENGTH] or "unknown"


def nearest_tools(name: str) -> list[str]:
    names = {alias: tool.name for tool in all_tools() for alias in (tool.name, *tool.other_names)}
    close = difflib.get_close_matches(name.replace(".", "_"), names, n=3, cutoff=0.5)
    return list(dict.fromkeys(names[match] for match in close))


def _arguments(tool: Tool, arguments: dict[str, Any]) -> BaseModel:
    """Return the validated input.

    Raises:
        Invalid: an argument is unknown, missing or breaks a rule.
    """
    fields = tool.input.model_fields
    given = {
        name: value
        for name, value in _renamed(tool, arguments).items()
        if name not in _SERVER_ARGUMENTS or name in fields
    }
    names = set(fields) | {field.alias for field in fields.values() if field.alias}
    unknown = [name for name in given if name not in names]
    if unknown:
        accepted = ", ".join([*fields, "format"])
        raise Invalid(f"{tool.name} has no argument {unknown[0][:80]!r}; it takes: {accepted}")
    if "format" not in fields and arguments.get("format") not in (None, *FORMATS):
        raise Invalid(f"'format' must be one of {', '.join(map(repr, FORMATS))}")
    try:
        return tool.input.model_validate(plain_arguments(tool.input, _without_nulls(given, fields)))
    except ValidationError as error:
        raise Invalid(f"{tool.name}: {explain(error)}") from error


def _without_nulls(given: dict[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Leave out what is null and has another default: so clients write what they do not say."""
    spare = {name for name, field in fields.items() if not field.is_required() and field.default is not None}
    return {name: value for name, value in given.items() if value is not None or name not in spare}


def _renamed(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:

    given: dict[str, Any] = {}
    for name, value in arguments.items():
        ours = tool.renamed.get(name, name)
        if ours in given:
            raise Invalid(f"{tool.name} got {ours!r} twice, once under an older name; send only {ours!r}")
        given[ours] = value
    return given


def _present(answer: Answer, *, as_json: bool) -> Result:
    if not as_json:
        return _text_result(answer.text)
    data = _clean(answer.data)
    return {**_text_result(compact_json(data)), "structuredContent": data}


def error_result(error: HubError, *, as_json: bool) -> Result:
    # Values are indented, so that stored text can't forge a line of the answer (decision 33).
    facts = {error.code: error.message, **{key: _shown(value) for key, value in error.data.items()}}
    result = _text_result("\n".join(f"{name}: {hanging(fact)}" for name, fact in facts.items()), error=True)
    if as_json:
        result["structuredContent"] = _clean({"code": error.code, "message": error.message, **error.data})
    return result


def _shown(value: object) -> str:
    if isinstance(value, list | tuple) and all(isinstance(part, str | int) for part in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else compact_json(value)


def _text_result(text: str, *, error: bool = False) -> Result:
    clean = text.encode("utf-8", "replace").decode()
    return {"content": [{"type": "text", "text": clean}], "isError": error, "resultType": "complete"}


def _clean(data: dict[str, Any]) -> dict[str, Any]:
    text = compact_json(data).encode("utf-8", "replace").decode()
    clean: dict[str, Any] = json.loads(text)
    return clean
