"""Whether a store was looked through with today's rules for secrets: what older ones let through is found so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache

from governance.redaction.finding import find_places
from governance.redaction.schemas import RedactionSelect
from memoryhub.core import rows
from memoryhub.core.dialect import upsert
from memoryhub.core.secrets.pack import lines
from sessions_app.settings import project_settings

_KEY = "looked_for_secrets"
"""In ``store_meta``: it is of this copy of the store alone, and no event."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the last look through the whole log found."""

    rules: str
    """A digest of the rules that it was made with."""
    position: int
    """Up to where in the log; what was written since was sanitised by rules as new as these."""
    finds: int
    events: int

    @property
    def is_current(self) -> bool:
        """Whether the rules are still those of today."""
        return self.rules == rules_digest()


def rules_digest() -> str:
    """Return a digest of the rules that hold in the current store now: the pack's, and its own."""
    settings = project_settings().model_dump(mode="json", include={"secret_rules", "secret_allow"})
    return hashlib.sha256(f"{_pack_digest()} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()[:16]


@cache
def _pack_digest() -> str:
    return hashlib.sha256(json.dumps(list(lines()), sort_keys=True).encode()).hexdigest()


def last_look() -> Look | None:
    """Return what the last look found, or None where there was none."""
    found = rows.fetch("SELECT value FROM store_meta WHERE key = %s", [_KEY])
    return Look(**json.loads(found[0][0])) if found else None


def look_through(progress: Callable[[int], None] = lambda _: None) -> Look:
    """Look through the current store's log with the rules of today, and keep what was found; changes no event.

    Args:
        progress: called with the position of each event that was read; what it raises ends the look without a result.
    """
    digest = rules_digest()
    findings = find_places(RedactionSelect(rules=True), progress=progress)
    last = rows.fetch("SELECT coalesce(max(position), 0) FROM raw_events")[0][0]
    look = Look(digest, last, findings.count, len(findings.found))
    rows.execute(upsert("store_meta", "key", ["value"]), [_KEY, json.dumps(asdict(look))])
    return look
