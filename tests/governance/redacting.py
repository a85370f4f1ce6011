"""Stores in which something is redacted, and every place where the hub could still have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories import services
from memories.models import Memory
from memories.schemas import MemoryWrite
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

    def memory(self, memory_id: int) -> Memory:
        memory: Memory = Memory.objects.get(id=memory_id)
        return memory

    def preview(self, **fields: Any) -> RedactionPreview:
        return preview_redaction(command=RedactionSelect(**{**self.selection, **fields}))

    def redact(self, reason: str = "", **fields: Any) -> RedactionDone:
        token = self.preview(**fields).confirm_token
        return redact(command=RedactionRun(**{**self.selection, **fields}, confirm_token=token, reason=reason))

    def places_with(self, word: str) -> list[str]:
        """Return the files of the home, and the tables, that have the word in lower case."""
        files = (path for path in self.home.rglob("*") if path.is_file())
        names = [str(Path(path).relative_to(self.home)) for path in files if word.encode() in path.read_bytes().lower()]
        return [*names, *tampering.tables_with(word)]
