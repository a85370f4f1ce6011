"""Imports the SDK without what a stdio server never uses.

A plain ``import mcp`` costs about a second: it loads its clients and its HTTP stack, and makes pydantic build the
schemas of some six hundred models at once. Here the clients and the HTTP stack are left out, and each schema is built
when it is first used. Only public switches of pydantic are used; where the SDK turns out to be arranged differently,
it is imported plainly.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

_BARE_PACKAGES = ("mcp", "mcp.server")
"""Packages whose ``__init__`` only re-exports; their modules are imported one by one."""
_LEFT_OUT = (
    "starlette",
    "starlette.applications",
    "starlette.middleware",
    "starlette.middleware.authentication",
    "starlette.routing",
    "mcp.server.auth",
    "mcp.server.auth.middleware",
    "mcp.server.auth.middleware.auth_context",
    "mcp.server.auth.middleware.bearer_auth",
    "mcp.server.auth.provider",
    "mcp.server.auth.routes",
    "mcp.server.auth.settings",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
    "mcp.server.transport_security",
)
_Kind = TypeVar("_Kind")


def load() -> None:
    """Import ``mcp.server.lowlevel``, so that later imports of it find it."""
    if "mcp" in sys.modules:
        return
    # Looking for plugins reads the metadata of every installed distribution.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    try:
        _load_slim()
    except Exception:
        logger.warning("the MCP SDK is arranged in an unknown way; importing it plainly", exc_info=True)
        _forget()
        importlib.import_module("mcp.server.lowlevel")


def _load_slim() -> None:
    spec = importlib.util.find_spec("mcp")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the package 'mcp' has no folder")
    root = spec.submodule_search_locations[0]
    for name in _BARE_PACKAGES:
        sys.modules[name] = _package(name, str(Path(root, *name.split(".")[1:])))
    with _left_out(), _deferred_schemas():
        importlib.import_module("mcp.server.lowlevel")


def _package(name: str, folder: str) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = [folder]
    return package


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types")]:
        del sys.modules[name]


class _Absent(ModuleType):
    """A module of which only names for annotations are wanted."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextmanager
def _left_out() -> Iterator[None]:
    absent = {name: _Absent(name) for name in _LEFT_OUT if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextmanager
def deferred_models() -> Iterator[None]:
    """Let pydantic build the schemas of the models defined inside when they are first used: a call uses few."""
    import pydantic

    config = pydantic.BaseModel.model_config
    pydantic.BaseModel.model_config = pydantic.ConfigDict(defer_build=True)
    try:
        yield
    finally:
        pydantic.BaseModel.model_config = config


@contextmanager
def _deferred_schemas() -> Iterator[None]:
    """Do the same for models, and for the adapters made inside."""
    import pydantic

    adapter = pydantic.TypeAdapter

    class DeferredAdapter(adapter[_Kind]):  # type: ignore[misc, valid-type]
        def __init__(self, kind: Any, **settings: Any) -> None:
            if not isinstance(kind, type):
                settings.setdefault("config", pydantic.ConfigDict(defer_build=True))
            super().__init__(kind, _parent_depth=3, **settings)

    pydantic.TypeAdapter = DeferredAdapter  # type: ignore[misc, assignment]
    try:
        with deferred_models():
            yield
    finally:
        pydantic.TypeAdapter = adapter  # type: ignore[misc]
