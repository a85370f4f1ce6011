"""What clients tell at their hooks, and what becomes of it. All of it is data: another client is one more table.

A source says where in the client's JSON a value is: ``tool_input.command``. Several are joined, those that are absent
left out. Claude Code's are those of its hooks reference (code.claude.com/docs/en/hooks), Gemini CLI's those of its own
(geminicli.com/docs/hooks/reference).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


class Effect(Enum):
    """What a hook's event does to the session and its turn."""

    START = auto()
    """The session begins or goes on."""
    PROMPT = auto()
    """The turn that is open ends, and the next begins."""
    APPEND = auto()
    """Something happened in the turn."""
    STOP = auto()
    """The turn ends."""
    END = auto()
    """The session ends."""
    NOTHING = auto()
    """It is known, and nothing is kept of it."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts at these places, one below the other, cut to ``longest`` characters."""

    sources: tuple[str, ...]
    longest: int


@dataclass(frozen=True, slots=True)
class Change:
    """What was replaced by what; ``each`` names a list of such pairs."""

    old: str
    new: str
    each: str = ""
    longest: int = 4_000


@dataclass(frozen=True, slots=True)
class Value:
    """Any JSON, with its texts cut to ``longest`` characters and the whole to four times as many."""

    source: str
    longest: int = 2_000


@dataclass(frozen=True, slots=True)
class ExitCode:
    """A number at one of these places, else one that the text at ``told`` names."""

    sources: tuple[str, ...]
    told: str


@dataclass(frozen=True, slots=True)
class Constant:
    """Always this."""

    value: bool | str


Source = Texts | Change | Value | ExitCode | Constant


@dataclass(frozen=True, slots=True)
class Becomes:
    """The event of a turn that it becomes: its type, and where the fields of its payload come from."""

    type: str
    fields: Mapping[str, Source]


@dataclass(frozen=True, slots=True)
class Hook:
    """One of a client's hook events."""

    effect: Effect
    becomes: Becomes | None = None
    by_tool: Mapping[str, Becomes] = field(default_factory=dict)
    """Instead of ``becomes``, for these of the client's tools."""
    answers: bool = False
    """Whether the client shows its model what the hook answers."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its events by their own names, and where each says in which session, folder and tool it happened."""

    hooks: Mapping[str, Hook]
    session: str = "session_id"
    directory: str = "cwd"
    tool: str = "tool_name"
    reason: str = "reason"
    """Why a session ended."""


def _message(kind: str, *sources: str) -> Becomes:
    return Becomes(kind, {"content": Texts(sources, 50_000)})


def _command(command: str, exit_code: ExitCode, *output: str) -> Becomes:
    fields: dict[str, Source] = {"command": Texts((command,), 10_000), "output": Texts(output, 8_000)}
    return Becomes("command.run", {**fields, "exit_code": exit_code, "directory": Texts(("cwd",), 4_000)})


def _edit(path: str, change: Source) -> Becomes:
    return Becomes("file.edited", {"path": Texts((path,), 4_000), "change": change, "tool": Texts(("tool_name",), 200)})


def _tool(output: str, *, is_error: bool = False) -> Becomes:
    call: dict[str, Source] = {"tool": Texts(("tool_name",), 200), "call_id": Texts(("tool_use_id",), 200)}
    told: dict[str, Source] = {"input": Value("tool_input"), "output": Value(output)}
    return Becomes("message.tool", {**call, **told, "is_error": Constant(value=is_error)})


_CLAUDE_EXIT = ExitCode(("tool_response.exit_code", "tool_response.exitCode"), "error")
_CLAUDE_EDITS = {
    "Edit": _edit("tool_input.file_path", Change("tool_input.old_string", "tool_input.new_string")),
    "MultiEdit": _edit("tool_input.file_path", Change("old_string", "new_string", each="tool_input.edits")),
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
