from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memoryhub.core import log
from memoryhub.core.log.checkpoint import Checkpoint, checkpoint_at, read_checkpoint, write_checkpoint
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import current_store


class AuditVerify(Command):
    pass


@dataclass(frozen=True, slots=True)
class Audit:
    """The verification, the checkpoint it was compared with and the one that was written, if any."""

    found: log.Verification
    compared: Checkpoint | None = None
    written: Checkpoint | None = None


def verify_log(*, checkpoint: Path | None = None, new_checkpoint: Path | None = None) -> Audit:
    """Verify the current store's hash chain.

    Args:
        checkpoint: file to compare with; it is created if it does not exist.
        new_checkpoint: file to write the chain's head to, if the chain is valid.

    Raises:
        Invalid: the file holds no checkpoint, or that of another store.
    """
    earlier = read_checkpoint(checkpoint) if checkpoint else None
    found = log.verify(earlier)
    target = new_checkpoint or (checkpoint if earlier is None else None)
    if target is None or not found.ok:
        return Audit(found, earlier)
    written = checkpoint_at(current_store(), found.events, found.head_digest)
    write_checkpoint(target, written)
    return Audit(found, earlier, written)
