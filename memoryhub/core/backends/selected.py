"""The storage backend of this process: its groups, bound once."""

from __future__ import annotations

from memoryhub.core.backends import base
from memoryhub.core.backends.sqlite import anchors as _anchors
from memoryhub.core.backends.sqlite import differences as _differences
from memoryhub.core.backends.sqlite import faults as _faults
from memoryhub.core.backends.sqlite import integrity as _integrity
from memoryhub.core.backends.sqlite import repair as _repair
from memoryhub.core.backends.sqlite import scratch as _scratch
from memoryhub.core.backends.sqlite import stores as _stores
from memoryhub.core.backends.sqlite import views as _views
from memoryhub.core.backends.sqlite import wal as _wal

anchors: base.Anchors = _anchors
differences: base.Differences = _differences
faults: base.Faults = _faults
integrity: base.Integrity = _integrity
repair: base.Repair = _repair
scratch: base.Scratch = _scratch
stores: base.Stores = _stores
views: base.Views = _views
wiping: base.Wiping = _wal
