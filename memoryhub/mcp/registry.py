"""Gathers the tools and resources that the apps declare."""

from __future__ import annotations

import importlib
import os

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from memoryhub.core.tools import Tool, ToolGroup, all_tools
from memoryhub.mcp.snapshot import TEST_TOOLS_VARIABLE

_LISTED: dict[str, frozenset[ToolGroup]] = {
    "core": frozenset({ToolGroup.CORE}),
    "work": frozenset({ToolGroup.CORE, ToolGroup.WORK}),
    "full": frozenset(ToolGroup),
}


def load_tools() -> None:
    """Import every app's ``tools`` module, which registers what it declares; tests may name one of their own."""
    modules = [f"{app.name}.tools" for app in apps.get_app_configs() if module_has_submodule(app.module, "tools")]
    modules.extend(filter(None, [os.environ.get(TEST_TOOLS_VARIABLE)]))
    for module in modules:
        importlib.import_module(module)


def listed_tools(profile: str) -> list[Tool]:
    """Return the tools that ``tools/list`` shows under ``profile``; all others can be called all the same."""
    listed = [tool for tool in all_tools() if tool.group in _LISTED[profile]]
    return sorted(listed, key=lambda tool: (list(ToolGroup).index(tool.group), tool.name))
