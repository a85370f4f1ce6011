"""The steps of a generated history that govern the store; the whole has events of every type."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from governance.imports.undo import preview_undo, undo_import
from governance.redaction.schemas import RedactionRun
from governance.redaction.service import preview_redaction, redact
from governance.retention.run import run_due
from governance.retention.schemas import HoldLift, HoldPlace
from governance.retention.selectors import lift_hold, place_hold
from governance.rollback.schemas import RollbackMake, RollbackUndo
from governance.rollback.services import preview, roll_back, undo_rollback
from memories.uses.drain import prune_uses
from memoryhub.core import clock, log
from memoryhub.core.log.anchor import replace_anchor
from memoryhub.core.log.loss import accept_loss
from memoryhub.core.log.quarantine import (
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
)
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import current_store, project_store, use_store
from memoryhub.transfer.bundles.applying import apply_bundle
from memoryhub.transfer.bundles.creating import create_bundle
from memoryhub.transfer.bundles.reading import open_bundle
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import MemoryRecord, SessionRecord, TurnRecord
from tests.engines.story import PROJECT, Story
from tests.engines.values import CONTROL


class GovernedStory(Story):
    def do_hold(self) -> None:
        with self.govern():
            place_hold(command=HoldPlace(stream_id="session:s-main", reason=self.text(3)))
            hold = place_hold(command=HoldPlace(stream_id=f"memory:{self.memories[2]}", reason="so"))
            lift_hold(command=HoldLift(id=hold.id, reason=CONTROL))

    def do_roll_back(self) -> None:
        for session in ("s-bad", "s-worse"):
            with use_origin(actor="mallory", session_id=session):
                self.call("session_start", session_id=session)
                bad = self.write()
                self.call("memory_update", id=self.memories[3], content=self.text(9))
                self.call("relation_create", source=bad, relation="related_to", target=self.memories[0])
                self.decide(refines=[self.decisions[0]])
        with self.govern():
            made = [self._rolled_back(session_id="s-bad"), self._rolled_back(session_id="s-worse", action="undo")]
            undo_rollback(command=RollbackUndo(id=made[0], reason=self.text(3)))

    def _rolled_back(self, **selection: str) -> int:
        command = RollbackMake.model_validate(selection)
        token = preview(command=command).confirm_token
        return roll_back(command=command.model_copy(update={"confirm_token": token})).id

    def do_quarantine(self) -> None:
        with self.govern(), log.transaction():
            placed = QuarantinePlaced(ids=[self.memories[4], self.decisions[3]], reason=self.text(3))
            log.append(log.prepare(QUARANTINE_PLACED, placed), entity="quarantine")
            log.append(log.prepare(QUARANTINE_LIFTED, QuarantineLifted(ids=[self.decisions[3]])), entity="quarantine")

    def do_redact(self) -> None:
        self.write(content="The secret word is marmalade.")
        command = RedactionRun(text="marmalade", label="word", reason=self.text(3))
        with self.govern():
            token = preview_redaction(command=command).confirm_token
            redact(command=command.model_copy(update={"confirm_token": token}))

    def do_import(self) -> None:
        at = clock.now() - timedelta(days=9)
        for keys in ("abc", "bcd"):
            memories = [MemoryRecord(key, self.title(), self.text(20), created=at, tags=("im port",)) for key in keys]
            turns = (TurnRecord(self.text(9), self.text(9), at, at), TurnRecord(CONTROL, "", at))
            session = SessionRecord(f"s-{keys}", self.text(3), turns, "done", started=at, ended=at)
            reports = Importer("mem0", PROJECT).run([*memories, session], place="/data/ü.json")
        batch = reports[0].batch
        assert batch
        with self.govern():
            undo_import(batch_id=batch, token=preview_undo(batch).token)

    def do_merge(self) -> None:
        with self.govern(), TemporaryDirectory() as folder:
            path = Path(folder, "other.bundle")
            with use_store(project_store("other")):
                self.write(title="From another store", scope="project")
                create_bundle(path)
            apply_bundle(open_bundle(path, lambda: ""), current_store())

    def do_lose_events(self) -> None:
        with self.govern():
            replace_anchor(current_store(), log.head()[0] + 7, "f" * 64)
            accept_loss(store=current_store(), reason=self.text(3))

    def do_retain(self) -> None:
        with self.govern(), clock.frozen(clock.now() + timedelta(days=75)):
            run_due(now=clock.now())
            prune_uses(now=clock.now(), until=time.monotonic())
