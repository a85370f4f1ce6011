"""What a person types while she reviews, as the commands of services."""

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
            Invalid: the reason is too long, or the version is none.
        """
        given = {"base_version": self._data.get("base_version") or None, "reason": self._data.get("reason", "").strip()}
        try:
            return ReviewVerdict.model_validate({"id": memory_id, "verdict": verdict, **given})
        except ValidationError as error:
            raise Invalid(explain(error)) from error


class MergeForm:
    """Which memory is to take an item over, and the text that it then has."""

    def __init__(self, memory_id: int, data: QueryDict) -> None:
        self._memory_id = memory_id
        self._data = data

    def target(self) -> int:
        """Return the memory that is to take it over: what was typed comes before what was chosen.

        Raises:
            Invalid: nothing was chosen, or what was typed is no id.
        """
        typed = self._data.get("other", "").strip() or self._data.get("into", "").strip()
        if not typed:
            raise Invalid("choose the memory that is to take the text over, or type its number")
        return end_id("into", typed)

    def command(self) -> ReviewMerge:
        """Return the command.

        Raises:
            Invalid: something that was typed breaks a rule.
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
    """The form of an item that is to be accepted as it is typed."""

    def __init__(self, kind: MemoryKind, memory: Memory, data: Any = None) -> None:
        super().__init__(kind, data, initial=initial_of(memory))
        self._memory = memory
        self.fields["change_reason"].help_text = "Why you change it; it stays with the version."

    def edit(self) -> ReviewEdit | None:
        """Return the command, or None where the form says what is wrong."""
        command = self.command(self._memory)
        return ReviewEdit.model_validate(command.model_dump(exclude_unset=True)) if command else None

    def show(self, error: HubError) -> None:
        """Show what was refused. Who is told that it has changed sees it as it is now, and may go on from there."""
        if isinstance(error, PreconditionFailed):
            self.rebase(self._memory.version)
        self.add_error("title" if isinstance(error, Conflict) else None, sentence(error))
