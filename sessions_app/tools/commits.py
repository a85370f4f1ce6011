"""The MCP tool of commits."""

from __future__ import annotations

from pathlib import Path

from memoryhub.core.tools import Answer, Tool, ToolGroup, register_tools
from sessions_app import selectors, services
from sessions_app.present import commit_line
from sessions_app.schemas import CommitRead


def record(command: CommitRead) -> Answer:
    """Answer with the commit as it is known now."""
    data = selectors.view_commit(services.record_commit(command=command, directory=Path.cwd()))
    attached = f" iteration=#{data['iteration_id']}" if data["iteration_id"] else ""
    return Answer(f"{commit_line(data)}{attached}", data)


TOOLS = [
    Tool(
        "commit_record",
        "Record a commit by its sha, the rest read from git; link it with the decisions that it carries out.",
        CommitRead,
        record,
        group=ToolGroup.WORK,
        writes=True,
        idempotent=True,
        aliases=("memory_log_commit",),
    ),
]

register_tools(*TOOLS)
