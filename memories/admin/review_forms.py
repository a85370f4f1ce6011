"""Forms that build the commands of a review."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict
from pydantic import ValidationError

from memories.admin.answers import sentence
from memories.admin.forms import ChangedMemoryForm, initial_of
from memories.events import Verdict
from memories.models import Memory, MemoryKind
from memories.references import end_id
from memories.review.schemas import ReviewEdit, ReviewMerge, ReviewVerdict
from memoryhub.core.errors import Conflict, HubError, Invalid, PreconditionFailed
from memoryhub.core.validation import explain


class VerdictForm:
    def __init__(self, data: QueryDict) -> None:
        self._data = data

    def command(self, memory_id: int, verdict: Verdict) -> ReviewVerdict:
        """Return the command.

        Raises:
            Invalid: the reason is too long, or the version is not a number.
        """
        given = {"base_version": self._data.get("base_version") or None, "reason": self._data.get("reason", "").strip()}
        try:
            return ReviewVerdict.model_validate({"id": memory_id, "verdict": verdict, **given})
        except ValidationError as error:
            raise Invalid(explain(error)) from error


class MergeForm:
    def __init__(self, memory_id: int, data: QueryDict) -> None:
        self._memory_id = memory_id
        self._data = data

    def target(self) -> int:
        """Return the memory to merge into; a typed number overrides the selection.

        Raises:
            Invalid: nothing was selected, or the number is not an id.
        """
        typed = self._data.get("other", "").strip() or self._data.get("into", "").strip()
        if not typed:
            raise Invalid("select the memory to merge into, or type its number")
        return end_id("into", typed)

    def command(self) -> ReviewMerge:
        """Return the command.

        Raises:
            Invalid: a value is invalid.
        """
        given = {name: self._data.get(name) or None for name in ("base_version", "into_version")}
        content = self._data.get("content", "").replace("\r\n", "\n")
        try:
            return ReviewMerge.model_validate(
                {"id": self._memory_id, "into": self.target(), "content": content, **given}
            )
        except ValidationError as error:
            raise Invalid(explain(error)) from error


class EditForm(ChangedMemoryForm):
    def __init__(self, kind: MemoryKind, memory: Memory, data: Any = None) -> None:
        super().__init__(kind, data, initial=initial_of(memory))
        self._memory = memory

    def edit(self) -> ReviewEdit | None:
        """Return the command, or None if the form has errors."""
        command = self.command(self._memory)
        return ReviewEdit.model_validate(command.model_dump(exclude_unset=True)) if command else None

    def show(self, error: HubError) -> None:
        """Add an error to the form. After a conflict, the next submission replaces the version shown."""
        if isinstance(error, PreconditionFailed):
            self.rebase(self._memory.version)
        self.add_error("title" if isinstance(error, Conflict) else None, sentence(error))
