"""Stores in which something is redacted, and every place where the hub could still have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories import services
from memories.models import Memory
from memories.schemas import MemoryUpdate, MemoryWrite
from sessions_app.schemas import EventAppend, SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import append_event, begin_turn
from tests import tampering
from tests.support import HubTestCase


class RedactionTestCase(HubTestCase):
    """Works in alpha, as ada."""

    # What is selected unless a call says otherwise
    selection: ClassVar[dict[str, Any]] = {}

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    def write(self, title: str, content: str = "", **fields: Any) -> int:
        return services.write_memory(command=MemoryWrite(title=title, content=content or title, **fields)).id

    def update(self, memory_id: int, **fields: Any) -> None:
        services.update_memory(command=MemoryUpdate(id=memory_id, **fields))

    def capture(self, *events: tuple[str, dict[str, Any]], purpose: str = "") -> None:
        start_session(command=SessionStart(session_id="s-1", purpose=purpose))
        turn = begin_turn(command=TurnBegin(session_id="s-1", turn_id="t-1"))
        for name, payload in events:
            append_event(command=EventAppend(type=name, payload=payload, ack_token=turn.ack_token))

    def memory(self, memory_id: int) -> Memory:
        memory: Memory = Memory.objects.get(id=memory_id)
        return memory

    def preview(self, **fields: Any) -> RedactionPreview:
        return preview_redaction(command=RedactionSelect(**{**self.selection, **fields}))

    def redact(self, reason: str = "", **fields: Any) -> RedactionDone:
        token = self.preview(**fields).confirm_token
        return redact(command=RedactionRun(**{**self.selection, **fields}, confirm_token=token, reason=reason))

    def run_with(self, token: str | None) -> RedactionDone:
        return redact(command=RedactionRun(**self.selection, confirm_token=token))

    def assert_gone(self, word: str) -> None:
        self.assertEqual(self.places_with(word), [])
        self.assert_sound()

    def places_with(self, word: str) -> list[str]:
        """Return the files of the home, and the tables, that have the word in lower case."""
        files = (path for path in self.home.rglob("*") if path.is_file())
        names = [str(Path(path).relative_to(self.home)) for path in files if word.encode() in path.read_bytes().lower()]
        return [*names, *tampering.tables_with(word)]
