"""Ask the user to confirm what cannot be undone, or to choose.

Clients of the newest protocol revision get the question as the result and repeat the call with the answer. Clients
with a handshake are asked while the call waits. Clients without elicitation get a token to repeat the call with, or
the choices.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.methods import is_input_required
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from memoryhub.core.errors import ChoiceRequired, ConfirmationRequired, Forbidden, HubError, Invalid, PreconditionFailed
from memoryhub.core.secret_files import SECRET_KEY, read_or_create_secret
from memoryhub.mcp.threads import stopping_error

if TYPE_CHECKING:
    from mcp.server.request_state import RequestStateBoundary

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
Result = dict[str, Any]
Arguments = dict[str, Any]
Call = Callable[[Arguments], Awaitable[Result]]

# What a call raises to have its user asked
Question = ConfirmationRequired | ChoiceRequired

TOKEN = "confirm_token"  # noqa: S105  (an argument's name)
_QUESTION = "confirm"
# The field of a choice, and what the state of one begins with
_CHOICE = "choice"
_SEAL = "memory-hub mcp state"
# The form has no fields; accepting it confirms.
_NO_FIELDS: Arguments = {"type": "object", "properties": {}}


class Questions:
    """Open questions of this process."""

    def __init__(self) -> None:
        self._waiting: set[anyio.CancelScope] = set()
        self._stopped = False

    def stop(self) -> None:
        """End the calls that wait for an answer with an error, and ask no more."""
        self._stopped = True
        for scope in self._waiting:
            scope.cancel()

    async def confirm(self, context: Context, params: types.CallToolRequestParams, call: Call) -> Result:
        """Call a tool; if it needs an answer from the user, ask and call again."""
        arguments = dict(params.arguments or {})
        answer = _answer_in(params)
        if answer is not None:
            return await _confirmed(call, arguments, answer, params.request_state or "")
        try:
            return await call(arguments)
        except (ConfirmationRequired, ChoiceRequired) as question:
            if _can_ask(context) and context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return _input_required(question)
            answer = await self._ask(context, question) if _can_ask(context) else None
            if answer is None:
                raise _with_instructions(question, params.name) from question
            return await _confirmed(call, arguments, answer, _state_of(question))

    async def _ask(self, context: Context, question: Question) -> types.ElicitResult | None:
        # None if the client could not ask after all.
        if self._stopped:
            raise stopping_error()
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                return await context.session.elicit_form(_text_of(question), _form_of(question), context.request_id)
            except (MCPError, ValidationError):
                logger.warning("the client could not ask its user", exc_info=True)
                return None
            finally:
                self._waiting.discard(scope)
        raise stopping_error()


def _answer_in(params: types.CallToolRequestParams) -> types.ElicitResult | None:
    # An answer without our state belongs to no question.
    answer = (params.input_responses or {}).get(_QUESTION) if params.request_state else None
    return answer if isinstance(answer, types.ElicitResult) else None


async def _confirmed(call: Call, arguments: Arguments, answer: types.ElicitResult, state: str) -> Result:
    if answer.action != "accept":
        did = "declined" if answer.action == "decline" else "dismissed the question"
        raise Forbidden(f"the user {did}; nothing was changed")
    try:
        return await call({**arguments, **_arguments_of(answer, state)})
    except ConfirmationRequired as question:
        # The state has changed, so the user has not seen this question (decision 17).
        raise PreconditionFailed(
            "what the user confirmed has changed meanwhile; call again", id=question.data["id"]
        ) from question


def _state_of(question: Question) -> str:
    if isinstance(question, ChoiceRequired):
        return ":".join([_CHOICE, *question.choices])
    token: str = question.data[TOKEN]
    return token


def _arguments_of(answer: types.ElicitResult, state: str) -> Arguments:
    # The argument that the user's answer adds to the call
    kind, *choices = state.split(":")
    if kind != _CHOICE:
        return {TOKEN: state}
    choice = (answer.content or {}).get(_CHOICE)
    if choice not in choices:
        raise Invalid(f"the user chose none of {', '.join(choices)}; nothing was changed")
    return {str(choice): True}


def _text_of(question: Question) -> str:
    if isinstance(question, ChoiceRequired):
        return "\n".join([f"{question.question}. Choose one:", *question.data.get("entries", [])])
    return question.message


def _form_of(question: Question) -> Arguments:
    if not isinstance(question, ChoiceRequired):
        return _NO_FIELDS
    field = {"type": "string", "enum": list(question.choices)}
    return {"type": "object", "properties": {_CHOICE: field}, "required": [_CHOICE]}


def _can_ask(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _input_required(question: Question) -> Result:
    params = {"mode": "form", "message": _text_of(question), "requestedSchema": _form_of(question)}
    return {
        "resultType": "input_required",
        "inputRequests": {_QUESTION: {"method": "elicitation/create", "params": params}},
        "requestState": _state_of(question),
    }


def _with_instructions(question: Question, tool: str) -> HubError:
    if isinstance(question, ChoiceRequired):
        return question
    how = f"nothing was deleted yet: ask the user; if they agree, call {tool} again with this {TOKEN}"
    return ConfirmationRequired(question.message, **question.data, next=how)


class StateSeal:
    """Middleware that seals the state which the client returns, with the SDK's boundary.

    The boundary is imported on first use, because its cryptography is large and few calls need it.
    """

    @cached_property
    def _boundary(self) -> RequestStateBoundary:
        from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

        # Of all machines of a hub, because the client's answer may come to another one
        key = hashlib.sha256(f"{_SEAL}:{read_or_create_secret(SECRET_KEY)}".encode()).digest()
        return RequestStateBoundary(RequestStateSecurity(keys=[key]), default_audience="memory-hub")

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.params and ctx.params.get("requestState") is not None:
            return await self._boundary(ctx, call_next)
        result = await call_next(ctx)
        if not is_input_required(result):
            return result

        async def already_known(_: Context) -> HandlerResult:
            return result

        return await self._boundary(ctx, already_known)
