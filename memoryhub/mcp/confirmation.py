"""What cannot be undone is asked of the user first, in the way that the client has for it.

A client of the newest revision gets the question as the call's result and repeats the call with the answer; one that
shook hands is asked while the call waits; one that can ask nobody gets a token with which the call can be repeated.
"""

from __future__ import annotations

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

from memoryhub.core.errors import ConfirmationRequired, Forbidden, HubError, PreconditionFailed
from memoryhub.mcp.threads import stopping_error

if TYPE_CHECKING:
    from mcp.server.request_state import RequestStateBoundary

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
Result = dict[str, Any]
Arguments = dict[str, Any]
Call = Callable[[Arguments], Awaitable[Result]]

TOKEN = "confirm_token"  # noqa: S105  (an argument's name)
_QUESTION = "confirm"
_NO_FIELDS: Arguments = {"type": "object", "properties": {}}
"""The form asks for nothing: to accept it is to confirm."""


class Questions:
    """The questions of one process that wait for their users."""

    def __init__(self) -> None:
        self._waiting: set[anyio.CancelScope] = set()
        self._stopped = False

    def stop(self) -> None:
        """Ask no more: the calls that wait for a user end now with an error."""
        self._stopped = True
        for scope in self._waiting:
            scope.cancel()

    async def confirm(self, context: Context, params: types.CallToolRequestParams, call: Call) -> Result:
        """Call a tool with its arguments; where it asks for confirmation, get it and call again.

        Raises:
            HubError: the user did not confirm, or could not be asked.
        """
        arguments = dict(params.arguments or {})
        answer = _answer_in(params)
        if answer is not None:
            return await _confirmed(call, arguments, answer.action, params.request_state)
        try:
            return await call(arguments)
        except ConfirmationRequired as question:
            if _can_ask(context) and context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return _input_required(question)
            action = await self._ask(context, question) if _can_ask(context) else None
            if action is None:
                raise _with_instructions(question, params.name) from question
            return await _confirmed(call, arguments, action, question.data[TOKEN])

    async def _ask(self, context: Context, question: ConfirmationRequired) -> str | None:
        """Return what the user did with the question, or None where the client could not ask after all."""
        if self._stopped:
            raise stopping_error()
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                asked = context.session.elicit_form(question.message, _NO_FIELDS, context.request_id)
                return (await asked).action
            except (MCPError, ValidationError):
                logger.warning("the client could not ask its user", exc_info=True)
                return None
            finally:
                self._waiting.discard(scope)
        raise stopping_error()


def _answer_in(params: types.CallToolRequestParams) -> types.ElicitResult | None:
    """Return the user's answer that a repeated call carries; one without our state is nobody's answer."""
    answer = (params.input_responses or {}).get(_QUESTION) if params.request_state else None
    return answer if isinstance(answer, types.ElicitResult) else None


async def _confirmed(call: Call, arguments: Arguments, action: str, token: str | None) -> Result:
    """Call again with what the user said; raise what the class says."""
    if action != "accept":
        did = "declined" if action == "decline" else "dismissed the question"
        raise Forbidden(f"the user {did}; nothing was deleted")
    try:
        return await call({**arguments, TOKEN: token})
    except ConfirmationRequired as question:
        # Nobody has seen this other question, and its token is for the user's answer alone.
        raise PreconditionFailed(
            "what the user confirmed has changed meanwhile; call again", id=question.data["id"]
        ) from question


def _can_ask(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _input_required(question: ConfirmationRequired) -> Result:
    params = {"mode": "form", "message": question.message, "requestedSchema": _NO_FIELDS}
    return {
        "resultType": "input_required",
        "inputRequests": {_QUESTION: {"method": "elicitation/create", "params": params}},
        "requestState": question.data[TOKEN],
    }


def _with_instructions(question: ConfirmationRequired, tool: str) -> HubError:
    how = f"nothing was deleted yet: ask the user, and after a yes call {tool} again with this {TOKEN} added"
    return ConfirmationRequired(question.message, **question.data, next=how)


class StateSeal:
    """Middleware that seals what the client must hand back, so that it comes back for the same call and unchanged.

    The SDK's boundary does it; it is imported when first needed, because few calls are, and its cryptography is large.
    """

    @cached_property
    def _boundary(self) -> RequestStateBoundary:
        from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

        return RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="memory-hub")

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.params and ctx.params.get("requestState") is not None:
            return await self._boundary(ctx, call_next)
        result = await call_next(ctx)
        if not is_input_required(result):
            return result

        async def already_known(_: Context) -> HandlerResult:
            return result

        return await self._boundary(ctx, already_known)
