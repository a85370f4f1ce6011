"""A checkpoint: the head of a store's chain in a file that its owner keeps wherever she likes.

The anchor beside the store can go together with the store's tail; a checkpoint on another disk cannot.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from memoryhub.core import clock
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores.store import StoreId


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a store's chain was at a time."""

    scope: str
    store: str
    position: int
    digest: str
    time: str

    def require_store(self, store: StoreId) -> None:
        """Refuse to judge one store by another's head.

        Raises:
            Invalid: the checkpoint is of another store.
        """
        if (self.scope, self.store) != (store.scope.value, store.name):
            raise Invalid(f"the checkpoint is of {self.scope} {self.store!r}, not of {store.scope} {store.name!r}")


def checkpoint_at(store: StoreId, position: int, digest: str) -> Checkpoint:
    """Return a checkpoint of a head that was just found."""
    return Checkpoint(store.scope.value, store.name, position, digest, clock.to_text(clock.now()))


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return what the file holds, or None where there is no such file.

    Raises:
        Invalid: it holds no checkpoint.
        Unavailable: it cannot be read.
    """
    try:
        content = json.loads(path.read_text())
        return Checkpoint(**{**content, "position": int(content["position"])})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, KeyError) as error:
        raise Invalid(f"{path} holds no checkpoint; verify --write-checkpoint {path} makes one") from error


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file whole or not at all, private, and on the disk when this returns.

    Raises:
        Unavailable: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps(asdict(checkpoint)) + "\n")
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror})") from error
