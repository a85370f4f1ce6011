"""Fixtures that answer with questions, which the client answers by repeating its request (2026-07-28)."""

from __future__ import annotations

from typing import Any

from tests.mcp.conformance.offered import Result, prompt, prompted, text, text_result, tool

Requests = dict[str, Result]


def _form(message: str, field: str, kind: str = "string") -> Result:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def _sampling(words: str, max_tokens: int = 100) -> Result:
    messages = [{"role": "user", "content": text(words)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}}


_ROOTS: Result = {"method": "roots/list", "params": {}}


def _asking(requests: Requests, state: str | None = None) -> Result:
    result = {"resultType": "input_required", "inputRequests": requests}
    return result if state is None else {**result, "requestState": state}


def _answers(params: Any, requests: Requests) -> Result | None:
    given = params.input_responses or {}
    return given if given.keys() >= requests.keys() else None


def _once(requests: Requests, state: str | None = None) -> Any:
    async def answer(_: Any, params: Any) -> Result:
        answers = _answers(params, requests)
        if answers is None or params.request_state != state:
            return _asking(requests, state)
        shown = {key: value.model_dump(mode="json", by_alias=True) for key, value in answers.items() if key in requests}
        return text_result(f"state-ok {shown}")

    return answer


_STEPS = [
    {"step1": _form("Step 1: What is your name?", "name")},
    {"step2": _form("Step 2: What is your favorite color?", "color")},
]


async def _rounds(_: Any, params: Any) -> Result:
    """Ask one question after another; the state counts them."""
    done = int(params.request_state or 0)
    if params.request_state is not None and _answers(params, _STEPS[done]) is not None:
        done += 1
    return text_result("all answered") if done == len(_STEPS) else _asking(_STEPS[done], str(done))


async def _what_the_client_can(context: Any, _params: Any) -> Result:
    capabilities = context.session.client_capabilities
    requests: Requests = {}
    if capabilities.sampling is not None:
        requests["sampled"] = _sampling("Say something")
    if capabilities.elicitation is not None:
        requests["asked"] = _form("What is your name?", "name")
    return _asking(requests) if requests else text_result("nothing can be asked")


_CONTEXT = {"user_context": _form("What context should the prompt use?", "context")}


async def _prompt(_: Any, params: Any) -> Result:
    answers = _answers(params, _CONTEXT)
    if answers is None:
        return _asking(_CONTEXT)
    return prompted(text(f"Use this context: {answers['user_context'].content}"))


_NAME = {"user_name": _form("What is your name?", "name")}
_CONFIRM = {"confirm": _form("Please confirm", "ok", "boolean")}
_THREE = {**_NAME, "greeting": _sampling("Generate a greeting", 50), "client_roots": _ROOTS}
_PREFIX = "test_input_required_result_"

TOOLS = {
    **tool(f"{_PREFIX}elicitation", _once(_NAME)),
    **tool(f"{_PREFIX}sampling", _once({"capital_question": _sampling("What is the capital of France?")})),
    **tool(f"{_PREFIX}list_roots", _once({"client_roots": _ROOTS})),
    **tool(f"{_PREFIX}request_state", _once(_CONFIRM, "waiting")),
    **tool(f"{_PREFIX}tampered_state", _once(_CONFIRM, "waiting")),
    **tool(f"{_PREFIX}multiple_inputs", _once(_THREE, "waiting")),
    **tool(f"{_PREFIX}multi_round", _rounds),
    **tool(f"{_PREFIX}capabilities", _what_the_client_can),
}
PROMPTS = prompt(f"{_PREFIX}prompt", _prompt)
