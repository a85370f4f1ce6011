"""Hook events of supported clients, as data: each becomes an effect on the session and an event of the turn.

A source is the path of a value in the client's JSON: ``tool_input.command``. Several sources are joined; absent ones
are skipped. References: code.claude.com/docs/en/hooks (Claude Code), geminicli.com/docs/hooks/reference (Gemini CLI).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class Effect(Enum):
    # The session starts or continues.
    START = auto()
    # The open turn ends, and the next begins.
    PROMPT = auto()
    # An event is added to the turn.
    APPEND = auto()
    # The turn ends.
    STOP = auto()
    # The session ends.
    END = auto()
    # A known hook that is not recorded.
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts at these paths, one per line, cut to ``longest`` characters."""

    sources: tuple[str, ...]
    longest: int


@dataclass(frozen=True, slots=True)
class Change:
    """A replacement as a diff; ``pairs`` is the path of a list of them."""

    old: str
    new: str
    pairs: str = ""
    longest: int = 4_000


@dataclass(frozen=True, slots=True)
class Value:
    """Any JSON: texts are cut to ``longest`` characters, the whole to four times as many."""

    source: str
    longest: int = 2_000


@dataclass(frozen=True, slots=True)
class ExitCode:
    """The number at one of these paths, else one named in the text at ``text``."""

    sources: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool | str


Source = Texts | Change | Value | ExitCode | Constant


@dataclass(frozen=True, slots=True)
class Becomes:
    """The event's type, and the sources of its payload's fields."""

    type: str
    fields: Mapping[str, Source]


@dataclass(frozen=True, slots=True)
class Hook:
    effect: Effect
    becomes: Becomes | None = None
    # Overrides `becomes` for these tools of the client.
    by_tool: Mapping[str, Becomes] = field(default_factory=dict)
    # Whether the client shows the hook's output to its model.
    answers: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """Hooks by the client's event names, and the paths of session, folder, tool and end reason."""

    hooks: Mapping[str, Hook]
    session: str = "session_id"
    directory: str = "cwd"
    tool: str = "tool_name"
    reason: str = "reason"


def _message(kind: str, *sources: str) -> Becomes:
    return Becomes(kind, {"content": Texts(sources, 50_000)})


def _command(command: str, exit_code: ExitCode, *output: str) -> Becomes:
    fields: dict[str, Source] = {"command": Texts((command,), 10_000), "output": Texts(output, 8_000)}
    return Becomes("command.run", {**fields, "exit_code": exit_code, "directory": Texts(("cwd",), 4_000)})


def _edit(path: str, change: Source) -> Becomes:
    return Becomes("file.edited", {"path": Texts((path,), 4_000), "change": change, "tool": Texts(("tool_name",), 200)})


def _tool(output: str, *, is_error: bool = False) -> Becomes:
    call: dict[str, Source] = {"tool": Texts(("tool_name",), 200), "call_id": Texts(("tool_use_id",), 200)}
    texts: dict[str, Source] = {"input": Value("tool_input"), "output": Value(output)}
    return Becomes("message.tool", {**call, **texts, "is_error": Constant(value=is_error)})


_CLAUDE_EXIT = ExitCode(("tool_response.exit_code", "tool_response.exitCode"), "error")
_CLAUDE_EDITS = {
    "Edit": _edit("tool_input.file_path", Change("tool_input.old_string", "tool_input.new_string")),
    "MultiEdit": _edit("tool_input.file_path", Change("old_string", "new_string", pairs="tool_input.edits")),
    "Write": _edit("tool_input.file_path", Texts(("tool_input.content",), 4_000)),
    "NotebookEdit": _edit("tool_input.notebook_path", Texts(("tool_input.new_source",), 4_000)),
}
_CLAUDE_RUN = ("tool_response.stdout", "tool_response.stderr")

CLAUDE_CODE = Client(
    {
        "SessionStart": Hook(Effect.START, answers=True),
        "UserPromptSubmit": Hook(Effect.PROMPT, _message("message.user", "prompt")),
        "PostToolUse": Hook(
            Effect.APPEND,
            _tool("tool_response"),
            {"Bash": _command("tool_input.command", _CLAUDE_EXIT, *_CLAUDE_RUN), **_CLAUDE_EDITS},
        ),
        "PostToolUseFailure": Hook(
            Effect.APPEND,
            _tool("error", is_error=True),
            {"Bash": _command("tool_input.command", _CLAUDE_EXIT, "error")},
        ),
        "Stop": Hook(Effect.STOP, _message("message.assistant", "last_assistant_message")),
        "StopFailure": Hook(Effect.STOP, _message("note.added", "error", "error_details")),
        "PreCompact": Hook(Effect.APPEND, _message("context.compacted", "trigger", "custom_instructions")),
        "SessionEnd": Hook(Effect.END),
        "PreToolUse": Hook(Effect.NOTHING),
        "SubagentStart": Hook(Effect.NOTHING),
        "SubagentStop": Hook(Effect.NOTHING),
        "PostCompact": Hook(Effect.NOTHING),
        "Notification": Hook(Effect.NOTHING),
    }
)

_GEMINI_EXIT = ExitCode((), "tool_response.llmContent")

GEMINI_CLI = Client(
    {
        "SessionStart": Hook(Effect.START, answers=True),
        "BeforeAgent": Hook(Effect.PROMPT, _message("message.user", "prompt")),
        "AfterTool": Hook(
            Effect.APPEND,
            _tool("tool_response.llmContent"),
            {
                "run_shell_command": _command("tool_input.command", _GEMINI_EXIT, "tool_response.llmContent"),
                "replace": _edit("tool_input.file_path", Change("tool_input.old_string", "tool_input.new_string")),
                "write_file": _edit("tool_input.file_path", Texts(("tool_input.content",), 4_000)),
            },
        ),
        "AfterAgent": Hook(Effect.STOP, _message("message.assistant", "prompt_response")),
        "PreCompress": Hook(Effect.APPEND, _message("context.compacted", "trigger")),
        "SessionEnd": Hook(Effect.END),
        "BeforeTool": Hook(Effect.NOTHING),
        "Notification": Hook(Effect.NOTHING),
    }
)

CLIENTS: Mapping[str, Client] = {"claude-code": CLAUDE_CODE, "gemini-cli": GEMINI_CLI}


def answer_for_client(event: str, text: str) -> dict[str, Any]:
    """Return what a hook prints so that the client adds ``text`` to its model's context."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
