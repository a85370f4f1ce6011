"""Load the tools, resources and prompts of all apps."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from memoryhub.core.tools import Tool, ToolGroup, all_tools
from memoryhub.mcp.snapshot import TEST_TOOLS_VARIABLE

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

_DECLARING = ("tools", "prompts")
_LISTED: dict[str, frozenset[ToolGroup]] = {
    "core": frozenset({ToolGroup.CORE}),
    "work": frozenset({ToolGroup.CORE, ToolGroup.WORK}),
    "full": frozenset(ToolGroup),
}


def load_tools() -> None:
    """Import the registering modules of all apps, and the module that tests name."""
    for app in apps.get_app_configs():
        for name in _DECLARING:
            if module_has_submodule(app.module, name):
                importlib.import_module(f"{app.name}.{name}")
    importlib.import_module("memoryhub.registry.tools")
    if _tests_module():
        importlib.import_module(_tests_module())


def extend_for_tests(server: Server[Any]) -> None:
    extend = getattr(sys.modules.get(_tests_module()), "extend_server", None)
    if extend is not None:
        extend(server)


def _tests_module() -> str:
    return os.environ.get(TEST_TOOLS_VARIABLE, "")


def listed_tools(profile: str) -> list[Tool]:
    # Tools that are not listed can be called too.
    listed = [tool for tool in all_tools() if tool.group in _LISTED[profile]]
    return sorted(listed, key=lambda tool: (list(ToolGroup).index(tool.group), tool.name))


def listed_name(tool: Tool, profile: str) -> str:
    return (tool.full_name if profile == "full" else "") or tool.name
