"""The storage backend of this process: its groups, bound once."""

from __future__ import annotations

from memoryhub.core.backends import base
from memoryhub.core.backends.sqlite import anchors as _anchors
from memoryhub.core.backends.sqlite import faults as _faults
from memoryhub.core.backends.sqlite import integrity as _integrity
from memoryhub.core.backends.sqlite import stores as _stores
from memoryhub.core.backends.sqlite import wal as _wal

anchors: base.Anchors = _anchors
faults: base.Faults = _faults
repair: base.Repair = _integrity
stores: base.Stores = _stores
wiping: base.Wiping = _wal
