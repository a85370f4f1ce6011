"""Steps of the story: each calls the service that a client, an agent or a person would use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.retention.schemas import HoldPlace
from governance.retention.service import place_hold
from memories.events import Verdict
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import MemoryGet, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.selectors import get_memories
from memories.services import update_memory, write_memory
from memories.services.links import create_relation
from memoryhub.core import clock
from memoryhub.core.origin import use_origin
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Turn, TurnStatus
from sessions_app.schemas import (
    CommitRead,
    IterationAdvance,
    IterationComplete,
    IterationStart,
    SessionEnd,
    SettingsChange,
)
from sessions_app.services import end_session, record_commit
from sessions_app.services.capture import capture
from sessions_app.services.profile import change_settings
from sessions_app.services.work import advance_iteration, complete_iteration, start_iteration

Step = Mapping[str, Any]


@dataclass(slots=True)
class Stage:
    """The current scene, and the ids of earlier steps by name."""

    directory: str
    ids: dict[str, int] = field(default_factory=dict)
    session: str = ""
    client: str = ""
    events: int = 0

    def play(self, step: Step) -> None:
        word = next(iter(step))
        fields = {name: self._resolved(value) for name, value in step.items() if name not in ("as", "wait", "by")}
        with use_origin(turn_id=self._turn(), actor=step.get("by", self.client)):
            result = _WORDS[word](self, fields)
        if "as" in step:
            self.ids[step["as"]] = int(result)

    def hook(self, event: Mapping[str, str], **data: Any) -> None:
        self.events += 1
        data |= {"session_id": self.session, "cwd": self.directory}
        hook_event = parse_hook(client=self.client, event=event[self.client], data=data)
        with use_origin(source="hook", turn_id=""):
            capture(event=hook_event, idempotency_key=f"demo-{self.events}")

    def _turn(self) -> str:
        turns = Turn.objects.filter(session_id=self.session, status=TurnStatus.OPEN)
        return str(turns.values_list("turn_id", flat=True).order_by("-id").first() or "")

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return self.ids[value[1:]]
        return [self._resolved(item) for item in value] if isinstance(value, list) else value


_PROMPT = {"claude-code": "UserPromptSubmit", "gemini-cli": "BeforeAgent"}
_DONE = {"claude-code": "PostToolUse", "gemini-cli": "AfterTool"}
_FAILED = _DONE | {"claude-code": "PostToolUseFailure"}
_ANSWER = {"claude-code": "Stop", "gemini-cli": "AfterAgent"}
_SHELL = {"claude-code": "Bash", "gemini-cli": "run_shell_command"}
_EDITOR = {"claude-code": "Edit", "gemini-cli": "replace"}


def _prompt(stage: Stage, step: Step) -> None:
    stage.hook(_PROMPT, prompt=step["prompt"])


def _run(stage: Stage, step: Step) -> None:
    output, code = step["output"], step.get("fails", 0)
    text = f"{output}\nExit code: {code}"
    response = {"stdout": output, "exit_code": code, "llmContent": text}
    call = {"tool_name": _SHELL[stage.client], "tool_input": {"command": step["run"]}, "tool_response": response}
    stage.hook(_FAILED if code else _DONE, **call, error=text)


def _edit(stage: Stage, step: Step) -> None:
    change = {"file_path": step["edit"], "old_string": step["was"], "new_string": step["now"]}
    stage.hook(_DONE, tool_name=_EDITOR[stage.client], tool_input=change)


def _answer(stage: Stage, step: Step) -> None:
    stage.hook(_ANSWER, last_assistant_message=step["answer"], prompt_response=step["answer"])


def _end(stage: Stage, step: Step) -> None:
    end_session(command=SessionEnd(session_id=stage.session, summary=step["end"]))


def _remember(_: Stage, step: Step) -> int:
    return write_memory(command=MemoryWrite(**_named(step, "title"))).id


def _revise(_: Stage, step: Step) -> int:
    return update_memory(command=MemoryUpdate(**_named(step, "id"))).id


def _decide(_: Stage, step: Step) -> int:
    return record_decision(command=DecisionRecord(**_named(step, "title"))).id


def _fetch(_: Stage, step: Step) -> None:
    get_memories(command=MemoryGet(ids=step["fetch"]))


def _relate(_: Stage, step: Step) -> int:
    return create_relation(command=RelationCreate(**_named(step, "source"))).id


def _commit(_: Stage, step: Step) -> int:
    files = [{"path": path, "insertions": more, "deletions": less} for path, more, less in step["files"]]
    body = f"\n\nThis reverts commit {_sha(step['undoes'])}." if "undoes" in step else ""
    fields = {
        "sha": _sha(step["commit"]),
        "message": step["commit"] + body,
        "author": "Maya Lind <maya@tidewatch.example>",
        "committed_at": clock.now(),
        "files": files,
        "decision_ids": step.get("implements", []),
    }
    return int(record_commit(command=CommitRead.model_validate(fields)).id)


def _sha(subject: str) -> str:
    return hashlib.sha1(subject.encode(), usedforsecurity=False).hexdigest()


def _begin(_: Stage, step: Step) -> int:
    iteration = start_iteration(command=IterationStart(command=step["begin"], description=step["description"]))
    return advance_iteration(command=IterationAdvance(id=iteration.id, phase=step["phase"])).id


def _advance(_: Stage, step: Step) -> int:
    return advance_iteration(command=IterationAdvance(phase=step["advance"])).id


def _complete(_: Stage, step: Step) -> int:
    return complete_iteration(command=IterationComplete(outcome=step["complete"])).id


def _set(_: Stage, step: Step) -> None:
    change_settings(command=SettingsChange(settings=step["set"]))


def _hold(_: Stage, step: Step) -> int:
    return place_hold(command=HoldPlace(**_named(step, "stream_id"))).id


def _accept(_: Stage, step: Step) -> int:
    return review_memory(command=ReviewVerdict(**_named(step, "id"), verdict=Verdict.ACCEPTED)).id


# The step's first value is the field `first` of a command.
def _named(step: Step, first: str) -> dict[str, Any]:
    (_, value), *rest = step.items()
    return {first: value, **dict(rest)}


_WORDS: dict[str, Callable[[Stage, Step], Any]] = {
    "prompt": _prompt,
    "run": _run,
    "edit": _edit,
    "answer": _answer,
    "end": _end,
    "remember": _remember,
    "revise": _revise,
    "decide": _decide,
    "fetch": _fetch,
    "relate": _relate,
    "commit": _commit,
    "begin": _begin,
    "advance": _advance,
    "complete": _complete,
    "set": _set,
    "hold": _hold,
    "accept": _accept,
}
