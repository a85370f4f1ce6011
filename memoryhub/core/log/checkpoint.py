"""A checkpoint: the head of a store's chain in a file that the user keeps, for example on another disk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from memoryhub.core import clock
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores.store import StoreId


# The store's anchor can be lost together with the end of the log; a checkpoint on another disk cannot.
@dataclass(frozen=True, slots=True)
class Checkpoint:
    scope: str
    store: str
    position: int
    digest: str
    time: str

    def require_store(self, store: StoreId) -> None:
        if (self.scope, self.store) != (store.scope.value, store.name):
            raise Invalid(f"the checkpoint belongs to {self.scope} {self.store!r}, not to {store.scope} {store.name!r}")


def checkpoint_at(store: StoreId, position: int, digest: str) -> Checkpoint:
    return Checkpoint(store.scope.value, store.name, position, digest, clock.to_text(clock.now()))


def read_checkpoint(path: Path) -> Checkpoint | None:
    try:
        content = json.loads(path.read_text("utf-8"))
        return Checkpoint(**{**content, "position": int(content["position"])})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, KeyError) as error:
        raise Invalid(f"{path} is not a checkpoint; create one with `verify --write-checkpoint {path}`") from error


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file atomically, readable by its owner only, and sync it."""
    try:
        with replacing(path) as file:
            file.write(f"{json.dumps(asdict(checkpoint))}\n".encode())
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror})") from error
