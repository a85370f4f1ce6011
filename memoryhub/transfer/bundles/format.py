"""The format of bundles: a store's whole log in one file, with its chain, to be moved to another hub (decision 65).

A bundle is a line that names the format, a manifest, the compressed events and the SHA-256 of all that. With a
passphrase, the whole is encrypted. It is read as a stream: first to check it, and then to apply it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from memoryhub.core.log.append import COLUMNS
from memoryhub.core.schemas import Instant, Position, Sha256
from memoryhub.core.stores.store import GLOBAL_STORE, SLUG, Scope, StoreId
from memoryhub.transfer.jsonl import EventLine, Model

INTRO = b"memory-hub-bundle "
FORMAT_VERSION = 1
# Follows the other fields of an event; in a string, its quotation marks would be escaped.
PAYLOAD = ',"payload":'


class Manifest(Model):
    """What a bundle says of itself; the check compares it with the events."""

    scope: Literal[Scope.GLOBAL, Scope.ORG, Scope.PROJECT]
    store: str = Field(pattern=f"^{SLUG.pattern}$")
    events: Position
    head: Sha256
    made_at: Instant
    made_by: str = Field("", max_length=100)

    @property
    def store_id(self) -> StoreId:
        return GLOBAL_STORE if self.scope is Scope.GLOBAL else StoreId(self.scope, self.store)


class BundleEvent(EventLine):
    project_id: str = Field(max_length=64)
    salt: str | None = Field(pattern="^[0-9a-f]{32}$")
    payload_digest: Sha256
    chain_digest: Sha256
    # The payload as it is stored, byte for byte
    payload_json: str | None

    def row(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in COLUMNS)
