"""Import the SDK without what a server doesn't need.

A plain ``import mcp`` takes about a second: it loads clients and the HTTP stack, and pydantic builds the schemas of
some 600 models. Here clients are skipped, over stdio also the HTTP stack, and each schema is built on first use. If the
SDK's layout has changed, it is imported as usual.
"""

from __future__ import annotations

import gc
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

# Packages whose __init__ only re-exports; their modules are imported directly.
_BARE_PACKAGES = ("mcp", "mcp.server")
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


def load(*, http: bool = False) -> None:
    if "mcp" in sys.modules:
        return
    # The search for plugins would read the metadata of every installed distribution.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    try:
        spec = importlib.util.find_spec("mcp")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("the package 'mcp' has no folder")
        root = spec.submodule_search_locations[0]
        for name in _BARE_PACKAGES:
            package = ModuleType(name)
            package.__path__ = [str(Path(root, *name.split(".")[1:]))]
            sys.modules[name] = package
        with _without(() if http else _LEFT_OUT), _deferred_schemas():
            importlib.import_module("mcp.server.lowlevel")
    except Exception:
        logger.warning("unexpected layout of the MCP SDK; importing all of it", exc_info=True)
        for name in list(sys.modules):
            if name.partition(".")[0] in ("mcp", "mcp_types"):
                del sys.modules[name]
        importlib.import_module("mcp.server.lowlevel")


class _Absent(ModuleType):
    """A stub for a module that is only used in annotations."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    absent = {name: _Absent(name) for name in names if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextmanager
def uncollected() -> Iterator[None]:
    """Let imports go on without a search for garbage: they leave little, and it takes a quarter of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def deferred_models() -> Iterator[None]:
    """Let pydantic build the schemas of models defined inside on first use."""
    import pydantic

    config = pydantic.BaseModel.model_config
    pydantic.BaseModel.model_config = pydantic.ConfigDict(defer_build=True)
    try:
        yield
    finally:
        pydantic.BaseModel.model_config = config


@contextmanager
def _deferred_schemas() -> Iterator[None]:
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
