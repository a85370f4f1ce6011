"""Django settings of a process with a kind, settings and a client that exist in tests only. The guides show them."""

# ruff: noqa: E402, F403
from __future__ import annotations

import atexit
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from memoryhub.core.kinds import KINDS, Attribute, Kind, PackSection, Rendering, Show, Tone, ToolNames
from memoryhub.core.schemas import Payload

Line = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class RunbookAttributes(Payload):
    """What a runbook has besides its text."""

    severity: Literal["low", "high"] = Field("low", description="how bad it is when this is needed")
    rehearsed: bool = Field(False, description="someone has tried it")
    minutes: Annotated[int, Attribute(show=Show.BAR)] = Field(10, ge=0, le=240, description="how long it takes")
    warnings: Annotated[str, StringConstraints(max_length=5_000), Attribute(searched=True)] = Field(
        "", description="what can go wrong"
    )
    files: Annotated[list[Line], Attribute(heading="Files that it is about", lists_files=True)] = Field(
        default_factory=list, max_length=50, description="files and folders; a commit that touches one makes it stale"
    )


RUNBOOK = Kind(
    name="runbook",
    label="Runbook",
    plural="Runbooks",
    attributes=RunbookAttributes,
    types=("restore", "deploy", "incident"),
    default_type="incident",
    tone=Tone.AMBER,
    text_label="Steps",
    text_help="One command a line, as you would type it.",
    rendering=Rendering.CODE,
    add_label="Write a runbook",
    empty_text="Write down what to do when something breaks, one step a line.",
    columns=("severity", "rehearsed", "minutes", "updated"),
    filters=("severity", "rehearsed"),
    panel_title="When it is needed",
    tools=ToolNames(nouns=("runbook", "runbooks"), text="steps"),
    pack=PackSection(name="runbooks", title="Runbooks", order=30, share=0.1, text_length=200),
)

# The web server's settings; after the kind, because enums and schemas are made from the kinds at import.
KINDS[RUNBOOK.name] = RUNBOOK
from memoryhub.settings import *

# isort: split
from memoryhub.config import clients, hook_table, project_settings
from memoryhub.config.project_settings import InFolder, ProjectSettings, SettingInfo, Topic


class InventedSettings(ProjectSettings):
    keep_drafts: Annotated[bool, SettingInfo(Topic.RETENTION)] = Field(True, description="drafts are kept")
    draft_days: Annotated[int, SettingInfo(Topic.RETENTION, InFolder.STRICTER)] = Field(
        7, ge=1, le=365, description="days after which a draft is deleted"
    )


project_settings.ProjectSettings = InventedSettings  # type: ignore[misc]

QUILL = """\
[quill]
name = "Quill"
program = "quill"
folders = ["{home}/.quill"]
user = ["{home}/.quill/mcp.json"]
repository = [".quill/mcp.json"]
servers = ["mcpServers"]
environment = "env"

[quill.hooks]
user = ["{home}/.quill/hooks.json"]
repository = ".quill/hooks.json"
timeout = 5
matcher = "*"

[quill.hooks.events.Opened]
effect = "start"

[quill.hooks.events.Asked]
effect = "prompt"
type = "message.user"
content = ["question"]

[quill.hooks.events.Used]
effect = "tool"
result = "outcome"
commands.sh = { command = "tool_input.line", output = ["outcome"], exit_text = "outcome" }

[quill.hooks.events.Answered]
effect = "stop"
type = "message.assistant"
content = ["reply"]

[quill.hooks.events.Closed]
effect = "end"
"""
_file = tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8")  # noqa: SIM115
atexit.register(_file.close)
_file.write(f"{clients.FILE.read_text()}\n{QUILL}")
_file.flush()
clients.FILE = Path(_file.name)
hook_table.CLIENTS_FILE = _file.name
