"""The storage backend of this process: its groups, bound once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from memoryhub import env
from memoryhub.core.backends import base

ENGINE = "postgresql" if env.database_url() else "sqlite"


def _group(name: str) -> Any:
    return import_module(f"memoryhub.core.backends.{ENGINE}.{name}")


anchors: base.Anchors = _group("anchors")
differences: base.Differences = _group("differences")
faults: base.Faults = _group("faults")
integrity: base.Integrity = _group("integrity")
machines: base.Machines = _group("machines")
places: base.Places = _group("places")
repair: base.Repair = _group("repair")
scratch: base.Scratch = _group("scratch")
server: base.Server = _group("server")
stores: base.Stores = _group("stores")
views: base.Views = _group("views")
wiping: base.Wiping = _group("wiping")
