"""Ask the user to confirm what cannot be undone.

Clients of the newest protocol revision get the question as the result and repeat the call with the answer. Clients
with a handshake are asked while the call waits. Clients without elicitation get a token to repeat the call with.
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

from memoryhub.core.errors import ConfirmationRequired, Forbidden, HubError, PreconditionFailed
from memoryhub.core.secret_files import SECRET_KEY, read_or_create_secret
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
        """Call a tool; if it needs confirmation, get it and call again."""
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
        # None if the client could not ask after all.
        if self._stopped:
            raise stopping_error()
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                answer = await context.session.elicit_form(question.message, _NO_FIELDS, context.request_id)
                return answer.action
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


async def _confirmed(call: Call, arguments: Arguments, action: str, token: str | None) -> Result:
    if action != "accept":
        did = "declined" if action == "decline" else "dismissed the question"
        raise Forbidden(f"the user {did}; nothing was deleted")
    try:
        return await call({**arguments, TOKEN: token})
    except ConfirmationRequired as question:
        # The state has changed, so the user has not seen this question (decision 17).
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
