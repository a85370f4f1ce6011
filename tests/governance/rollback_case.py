"""Base of the tests of roll-backs: a store that clean and rolled-back callers write to."""

from __future__ import annotations

from typing import Any

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.rollback.schemas import Preview, RollbackMake, RollbackPlan, RollbackUndo, RollbackView
from governance.rollback.services import preview, roll_back, undo_rollback
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.services import update_memory, write_memory
from memoryhub.core import log
from memoryhub.core.origin import use_origin
from tests.support import HubTestCase

ROLLED_BACK = {"actor": "mallory", "session_id": "s-bad", "source": "mcp"}


class RollbackTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada", session_id="s-good", source="rest"))

    def write(self, title: str, *, rolled_back: bool = False, **fields: Any) -> int:
        with use_origin(**(ROLLED_BACK if rolled_back else {})):
            return write_memory(command=MemoryWrite(title=title, content=f"{title}, it says.", **fields)).id

    def revise(self, memory_id: int, content: str, *, rolled_back: bool = False, **fields: Any) -> None:
        with use_origin(**(ROLLED_BACK if rolled_back else {})):
            update_memory(command=MemoryUpdate(id=memory_id, content=content, **fields))

    def decide(self, title: str, *, rolled_back: bool = False, **fields: Any) -> int:
        with use_origin(**(ROLLED_BACK if rolled_back else {})):
            command = DecisionRecord(title=title, chosen=f"Choose {title}.", **fields)
            return record_decision(command=command).id

    def preview(self, **fields: Any) -> Preview:
        return preview(command=RollbackPlan.model_validate({"session_id": "s-bad", **fields}))

    def roll_back(self, **fields: Any) -> RollbackView:
        wanted = {"session_id": "s-bad", **fields}
        with use_origin(actor="olga", session_id="", source="admin"):
            token = self.preview(**{key: item for key, item in wanted.items() if key != "reason"}).confirm_token
            return roll_back(command=RollbackMake.model_validate({**wanted, "confirm_token": token}))

    def undo(self, rollback_id: int, reason: str = "") -> RollbackView:
        with use_origin(actor="olga", session_id="", source="admin"):
            return undo_rollback(command=RollbackUndo(id=rollback_id, reason=reason))

    def assert_rebuilds(self) -> None:
        report = log.rebuild()
        self.assertEqual([], [table.table for table in report.tables if not table.identical])
