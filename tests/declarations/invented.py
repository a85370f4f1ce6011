"""Django settings of a process with settings and a client that exist in tests only."""

# ruff: noqa: F403
from __future__ import annotations

# The web server's settings; first, because they choose the SQLite library.
from memoryhub.settings import *

# isort: split
import atexit
import tempfile
from pathlib import Path
from typing import Annotated

from pydantic import Field

from memoryhub.client.hook import post
from memoryhub.config import clients, project_settings
from memoryhub.config.project_settings import Group, InFolder, ProjectSettings, SettingInfo


class InventedSettings(ProjectSettings):
    keep_drafts: Annotated[bool, SettingInfo(Group.RETENTION)] = Field(True, description="drafts are kept")
    draft_days: Annotated[int, SettingInfo(Group.RETENTION, InFolder.STRICTER)] = Field(
        7, ge=1, le=365, description="days after which a draft is deleted"
    )


project_settings.ProjectSettings = InventedSettings  # type: ignore[misc]

_file = tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8")  # noqa: SIM115
atexit.register(_file.close)
_file.write(f"{clients.FILE.read_text()}\n{Path(__file__).with_name('quill.toml').read_text()}")
_file.flush()
clients.FILE = Path(_file.name)
post.CLIENTS_FILE = _file.name
