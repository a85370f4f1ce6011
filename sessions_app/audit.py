"""Proof of the log: walk its chain, and compare it with a checkpoint that was kept elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memoryhub.core import log
from memoryhub.core.log.checkpoint import Checkpoint, checkpoint_at, read_checkpoint, write_checkpoint
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import current_store


class AuditVerify(Command):
    """Prove that the log is what was written."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found, what it was compared with, and the checkpoint that was written, if any."""

    found: log.Verification
    compared: Checkpoint | None = None
    written: Checkpoint | None = None


def verify_log(*, checkpoint: Path | None = None, new_checkpoint: Path | None = None) -> Audit:
    """Walk the current store's chain.

    Args:
        checkpoint: compare with this file's checkpoint; where there is none yet, write it.
        new_checkpoint: write the head to this file. Only a chain that holds is written down.

    Raises:
        Invalid: the file holds no checkpoint, or another store's.
    """
    known = read_checkpoint(checkpoint) if checkpoint else None
    found = log.verify(known)
    target = new_checkpoint or (checkpoint if known is None else None)
    if target is None or not found.ok:
        return Audit(found, known)
    written = checkpoint_at(current_store(), found.events, found.head_digest)
    write_checkpoint(target, written)
    return Audit(found, known, written)
