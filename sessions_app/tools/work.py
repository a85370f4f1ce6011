"""MCP tools of commits and iterations."""

from __future__ import annotations

from pathlib import Path

from memoryhub.config.folder import current_folder
from memoryhub.core.tools import Answer, Tool, ToolGroup, register_tools
from sessions_app import selectors, services
from sessions_app.models import Iteration
from sessions_app.present import commit_line, iteration_line, iteration_text
from sessions_app.schemas import CommitRead, IterationAdvance, IterationComplete, IterationGet, IterationStart
from sessions_app.services import iterations


def record(command: CommitRead) -> Answer:
    folder = current_folder().directory
    commit = services.record_commit(command=command, directory=Path(folder) if folder else None)
    data = selectors.view_commit(commit)
    attached = f" iteration=#{data['iteration_id']}" if data["iteration_id"] else ""
    return Answer(f"{commit_line(data)}{attached}", data)


TOOLS = [
    Tool(
        "commit_record",
        "Record a commit by its sha; the rest is read from git.",
        CommitRead,
        record,
        group=ToolGroup.WORK,
        writes=True,
        idempotent=True,
        full_name="memory_log_commit",
    ),
]

register_tools(*TOOLS)


def _shown(iteration: Iteration) -> Answer:
    data = selectors.view_iteration(iteration)
    return Answer(iteration_line(data), data)


def start(command: IterationStart) -> Answer:
    return _shown(iterations.start_iteration(command=command))


def advance(command: IterationAdvance) -> Answer:
    return _shown(iterations.advance_iteration(command=command))


def complete(command: IterationComplete) -> Answer:
    return _shown(iterations.complete_iteration(command=command))


def get(command: IterationGet) -> Answer:
    data = selectors.get_iteration(command=command)
    return Answer(iteration_text(data), data)


ITERATION_TOOLS = [
    Tool(
        "iteration_start",
        "Begin an iteration; commits and events attach to it.",
        IterationStart,
        start,
        group=ToolGroup.ITERATIONS,
        writes=True,
    ),
    Tool(
        "iteration_advance",
        "Complete the current phase and begin the next.",
        IterationAdvance,
        advance,
        group=ToolGroup.ITERATIONS,
        writes=True,
    ),
    Tool(
        "iteration_complete",
        "Complete or abandon the iteration.",
        IterationComplete,
        complete,
        group=ToolGroup.ITERATIONS,
        writes=True,
    ),
    Tool(
        "iteration_get",
        "Get an iteration with its phases, commits and events.",
        IterationGet,
        get,
        group=ToolGroup.ITERATIONS,
        full_name="memory_get_iteration",
    ),
]

register_tools(*ITERATION_TOOLS)
