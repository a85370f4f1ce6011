"""The storage backend of this process: its groups, bound once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from memoryhub import env
from memoryhub.core.backends import base

ENGINE = "postgresql" if env.database_url() else "sqlite"


def _module(name: str) -> Any:
    return import_module(f"memoryhub.core.backends.{ENGINE}.{name}")


anchors: base.Anchors = _module("anchors")
differences: base.Differences = _module("copies")
faults: base.Faults = _module("faults")
integrity: base.Integrity = _module("structure")
machines: base.Machines = _module("machines")
places: base.Places = _module("stores")
repair: base.Repair = _module("copies")
scratch: base.Scratch = _module("copies")
stores: base.Stores = _module("stores")
views: base.Views = _module("copies")
wiping: base.Wiping = _module("wiping")

integrity.require_structure()
