"""A tool call: validate arguments, run the handler in a thread, ask the user, format the answer."""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import mcp_types as types
from django.db import connections
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.methods import is_input_required
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from memoryhub.config.current_settings import use_folder
from memoryhub.config.repository import work_in
from memoryhub.core import errors, log
from memoryhub.core.origin import use_origin
from memoryhub.core.paging import answering
from memoryhub.core.permissions import use_grant
from memoryhub.core.secret_files import SECRET_KEY, read_or_create_secret
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import compact_json, hanging
from memoryhub.core.tools import Answer, Tool, all_tools
from memoryhub.core.validation import explain
from memoryhub.mcp.binding import Binding, Caller, ConnectionState, TurnKeeper, TurnKeepers
from memoryhub.mcp.listing import FORMATS, plain_arguments
from memoryhub.mcp.threads import ThreadJob, Workers, stopping_error
from memoryhub.ops.serving.drain import drain_before_reading

if TYPE_CHECKING:
    from mcp.server.request_state import RequestStateBoundary

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
Arguments = dict[str, Any]
Result = dict[str, Any]
ToolCall = Callable[[Arguments], Awaitable[Result]]
# What a call raises to have its user asked
Question = errors.ConfirmationRequired | errors.ChoiceRequired
T = TypeVar("T")

MAX_ACTOR_LENGTH = 100
# Arguments of every tool, handled by the server.
_SERVER_ARGUMENTS = frozenset({"format", "project_id", "ack_token"})
_TOKEN = "confirm_token"  # noqa: S105  (an argument's name)
_KEY = "idempotency_key"
_QUESTION = "confirm"
# The field of a choice, and what the state of one begins with
_CHOICE = "choice"
_SEAL = "memory-hub mcp state"


class Calls:
    def __init__(self, workers: Workers, binding: Binding, keepers: TurnKeepers, questions: Questions) -> None:
        self.questions = questions
        self._workers = workers
        self._binding = binding
        self._keepers = keepers
        # Called once with the client's name and its project, at its first call.
        self.describe_client: Callable[[str, str], None] | None = None
        # Called with the connection's session after each call of a tool.
        self.note_state: Callable[[ConnectionState], None] | None = None
        # The number of a relay's request, as part of a key; "" over HTTP
        self.key_of: Callable[[object], str] = lambda _: ""

    async def call(self, tool: Tool, arguments: dict[str, Any], *, caller: Caller) -> Result:
        """Return the answer or error as a ``CallResult``; only questions for the user are raised."""
        as_json = arguments.get("format") == "json"
        try:
            if caller.key and _KEY in tool.input.model_fields and arguments.get(_KEY) is None:
                arguments = {**arguments, _KEY: caller.key}
            command = _arguments(tool, arguments)
            token = str(arguments.get("ack_token") or "")
            turns = await self._keepers.of(caller.connection)
            answer = await self.run(
                partial(_handle, tool, command, turns, actor=caller.actor, token=token, as_json=as_json),
                writes=tool.writes or tool.records,
                caller=caller,
                project_id=arguments.get("project_id"),
            )
        except (errors.ConfirmationRequired, errors.ChoiceRequired):
            raise
        except errors.HubError as error:
            return error_result(error, as_json=as_json)
        except Exception as error:
            logger.exception("tool %s failed", tool.name)
            return _text_result(f"internal error: {type(error).__name__}; the server's log has the details", error=True)
        if answer.session_id is not None:
            turns.choose(answer.session_id)
        if self.note_state:
            self.note_state(turns.state)
        return _present(answer, as_json=as_json)

    async def run(self, work: Callable[[], T], *, writes: bool, caller: Caller, project_id: object = None) -> T:
        """Run ``work`` in a thread with the project's store and the caller's origin set."""
        turns = await self._keepers.of(caller.connection)
        return await self._workers.run(
            lambda job: self._run_here(work, job, turns, caller=caller, project_id=project_id),
            writes=writes,
            project=self._binding.lane,
        )

    def _run_here(
        self, work: Callable[[], T], job: ThreadJob[T], turns: TurnKeeper, *, caller: Caller, project_id: object
    ) -> T:
        store = self._binding.check(project_id)
        drain_before_reading(store.name)
        origin = use_origin(source="mcp", actor=caller.actor, session_id=turns.session_id)
        try:
            folder = use_folder(self._binding.folder())
            here = work_in(self._binding.directory)
            with use_grant(caller.grant), use_store(store, create=self._binding.creates), folder, here, origin:
                connection = connections[store.alias]
                connection.ensure_connection()
                job.watch(connection)
                self._binding.note_folder()
                if self.describe_client:
                    self.describe_client(caller.actor, store.name)
                    self.describe_client = None
                return work()
        except Exception as error:
            if job.dropped and not isinstance(error, errors.HubError):
                raise errors.Unavailable("the call was cancelled") from error
            raise


def _handle(tool: Tool, command: BaseModel, turns: TurnKeeper, *, actor: str, token: str, as_json: bool) -> Answer:
    turn: AbstractContextManager[object] = use_origin(ack_token=token)
    if tool.writes and not tool.keeps_turns and not token:
        turn = turns.turn(actor)
    with turn:
        with answering(as_json=as_json):
            if tool.in_words and not as_json:
                answer = Answer(tool.in_words(command), {})
            else:
                answer = tool.handler(command)
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
    values: Arguments = {}
    for argument, value in arguments.items():
        name = tool.renamed.get(argument, argument)
        if name in values:
            raise errors.Invalid(f"{tool.name} got {name!r} twice, once under an older name; send only {name!r}")
        values[name] = value
    for name in _SERVER_ARGUMENTS.difference(fields):
        values.pop(name, None)
    names = {*fields, *(field.alias for field in fields.values())}
    for name in values:
        if name not in names:
            accepted = ", ".join([*fields, "format"])
            raise errors.Invalid(f"{tool.name} has no argument {name[:80]!r}; it takes: {accepted}")
    if "format" not in fields and arguments.get("format") not in (None, *FORMATS):
        raise errors.Invalid(f"'format' must be one of {', '.join(map(repr, FORMATS))}")
    for name, field in fields.items():
        # Clients send null for what they leave to the default.
        if values.get(name, ...) is None and not field.is_required() and field.default is not None:
            del values[name]
    try:
        return tool.input.model_validate(plain_arguments(tool.input, values))
    except ValidationError as error:
        raise errors.Invalid(f"{tool.name}: {explain(error)}") from error


def _present(answer: Answer, *, as_json: bool) -> Result:
    if not as_json:
        return _text_result(answer.text)
    data = _clean(answer.data)
    return {**_text_result(compact_json(data)), "structuredContent": data}


def error_result(error: errors.HubError, *, as_json: bool) -> Result:
    # Values are indented, so that stored text can't forge a line of the answer (decision 33).
    facts = {error.code: error.message, **error.data}
    lines = [f"{name}: {hanging(_in_words(fact))}" for name, fact in facts.items()]
    result = _text_result("\n".join(lines), error=True)
    if as_json:
        result["structuredContent"] = _clean({"code": error.code, "message": error.message, **error.data})
    return result


def _in_words(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(part, str | int) for part in value):
        return ", ".join(map(str, value))
    return compact_json(value)


def _text_result(text: str, *, error: bool = False) -> Result:
    clean = text.encode("utf-8", "replace").decode()
    return {"content": [{"type": "text", "text": clean}], "isError": error, "resultType": "complete"}


def _clean(data: dict[str, Any]) -> dict[str, Any]:
    text = compact_json(data).encode("utf-8", "replace").decode()
    clean: dict[str, Any] = json.loads(text)
    return clean


class Questions:
    """Open questions of this process.

    Clients of the newest protocol revision get the question as the result and repeat the call with the answer. Clients
    with a handshake are asked while the call waits. Clients without elicitation get a token to repeat the call with, or
    the choices.
    """

    def __init__(self) -> None:
        self._waiting: set[anyio.CancelScope] = set()
        self._stopped = False

    def stop(self) -> None:
        """End the calls that wait for an answer with an error, and ask no more."""
        self._stopped = True
        for scope in self._waiting:
            scope.cancel()

    async def confirm(self, context: Context, params: types.CallToolRequestParams, call: ToolCall) -> Result:
        """Call a tool; if it needs an answer from the user, ask and call again."""
        arguments = dict(params.arguments or {})
        answer = (params.input_responses or {}).get(_QUESTION)
        # An answer without our state belongs to no question.
        if params.request_state and isinstance(answer, types.ElicitResult):
            return await _confirmed(call, arguments, answer, params.request_state)
        try:
            return await call(arguments)
        except (errors.ConfirmationRequired, errors.ChoiceRequired) as question:
            if not _can_ask(context):
                raise _with_instructions(question, params.name) from question
            if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return _input_required(question)
            result = await self._ask(context, question)
            if result is None:
                raise _with_instructions(question, params.name) from question
            return await _confirmed(call, arguments, result, _state_of(question))

    async def _ask(self, context: Context, question: Question) -> types.ElicitResult | None:
        # None if the client could not ask after all.
        if self._stopped:
            raise stopping_error()
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                return await context.session.elicit_form(
                    _question_text(question), _form_of(question), context.request_id
                )
            except (MCPError, ValidationError):
                logger.warning("the client could not ask its user", exc_info=True)
                return None
            finally:
                self._waiting.discard(scope)
        raise stopping_error()


async def _confirmed(call: ToolCall, arguments: Arguments, answer: types.ElicitResult, state: str) -> Result:
    if answer.action == "decline":
        raise errors.Forbidden("the user declined; nothing was changed")
    if answer.action != "accept":
        raise errors.Forbidden("the user dismissed the question; nothing was changed")
    # The argument that the user's answer adds to the call
    kind, *choices = state.split(":")
    confirmed: Arguments = {_TOKEN: state}
    if kind == _CHOICE:
        choice = (answer.content or {}).get(_CHOICE)
        if choice not in choices:
            raise errors.Invalid(f"the user chose none of {', '.join(choices)}; nothing was changed")
        confirmed = {str(choice): True}
    try:
        return await call({**arguments, **confirmed})
    except errors.ConfirmationRequired as question:
        # The state has changed, so the user has not seen this question (decision 17).
        raise errors.PreconditionFailed(
            "what the user confirmed has changed meanwhile; call again", id=question.data["id"]
        ) from question


def _state_of(question: Question) -> str:
    if isinstance(question, errors.ChoiceRequired):
        return ":".join([_CHOICE, *question.choices])
    token: str = question.data[_TOKEN]
    return token


def _question_text(question: Question) -> str:
    if isinstance(question, errors.ChoiceRequired):
        return "\n".join([f"{question.question}. Choose one:", *question.data.get("entries", [])])
    return question.message


def _form_of(question: Question) -> Arguments:
    if not isinstance(question, errors.ChoiceRequired):
        return {"type": "object", "properties": {}}  # accepting it confirms
    field = {"type": "string", "enum": list(question.choices)}
    return {"type": "object", "properties": {_CHOICE: field}, "required": [_CHOICE]}


def _can_ask(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.elicitation is None:
        return False
    return capabilities.elicitation.form is not None or capabilities.elicitation.url is None


def _input_required(question: Question) -> Result:
    params = {"mode": "form", "message": _question_text(question), "requestedSchema": _form_of(question)}
    return {
        "resultType": "input_required",
        "inputRequests": {_QUESTION: {"method": "elicitation/create", "params": params}},
        "requestState": _state_of(question),
    }


def _with_instructions(question: Question, tool: str) -> errors.HubError:
    if isinstance(question, errors.ChoiceRequired):
        return question
    how = f"nothing was deleted yet: ask the user; if they agree, call {tool} again with this {_TOKEN}"
    return errors.ConfirmationRequired(question.message, **question.data, next=how)


class StateSeal:
    """Middleware that seals the state which the client returns, with the SDK's boundary.

    The boundary is imported on first use, because its cryptography is large and few calls need it.
    """

    @cached_property
    def _boundary(self) -> RequestStateBoundary:
        from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

        # All machines of a hub have the same key, because the client's answer may come to another one.
        key = hashlib.sha256(f"{_SEAL}:{read_or_create_secret(SECRET_KEY)}".encode()).digest()
        return RequestStateBoundary(RequestStateSecurity(keys=[key]), default_audience="memory-hub")

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.params and ctx.params.get("requestState") is not None:
            return await self._boundary(ctx, call_next)
        result = await call_next(ctx)
        if not is_input_required(result):
            return result

        async def existing_result(_: Context) -> HandlerResult:
            return result

        return await self._boundary(ctx, existing_result)
