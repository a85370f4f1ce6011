"""Which of what is written waits for a person."""

from __future__ import annotations

from dataclasses import dataclass

from memories.duplicates import Existing
from memories.events import MemoryState, ReviewStatus
from memories.kinds import attribute_columns
from memories.models import MemoryScope, ReviewState
from memories.projectors.memories import content_hash
from memoryhub.config.project_settings import ProjectSettings, project_settings
from memoryhub.config.retention_rules import ReviewPolicy
from memoryhub.core.origin import Origin, current_origin

PERSONS_DOOR = "admin"
"""The door at which a person sits, and signs what she writes with it."""
_IMPORTED = "import:"
"""What the topics of what was imported begin with."""
_AGAIN = "revised after it was rejected"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the current store's project asks of who writes now."""

    settings: ProjectSettings
    origin: Origin

    @classmethod
    def current(cls) -> Policy:
        """Return the policy of the current store, for whoever writes now."""
        return cls(project_settings(), current_origin())

    def of_new(self, state: MemoryState) -> ReviewStatus | None:
        """Return how a new memory stands; None where it is accepted."""
        reason = self._asks(state)
        return ReviewStatus(state=ReviewState.PROPOSED, reason=reason) if reason else None

    def of_revision(self, existing: Existing, state: MemoryState) -> ReviewStatus | None:
        """Return how a memory stands with its next version; None where it is accepted.

        A person accepts by writing. Nobody else does: what waits goes on waiting, and what was rejected waits again.
        """
        if self.origin.source == PERSONS_DOOR:
            return None
        before = existing.standing
        if before.state is ReviewState.PROPOSED:
            return before
        if before.state is ReviewState.REJECTED:
            return ReviewStatus(state=ReviewState.PROPOSED, reason=_AGAIN)
        reason = self._asks(state)
        if not reason:
            return None
        is_promoted = existing.state.scope is MemoryScope.SESSION
        return ReviewStatus(
            state=ReviewState.PROPOSED, reason=reason, accepted_version=None if is_promoted else existing.version
        )

    def _asks(self, state: MemoryState) -> str:
        """Return why a person is to look at a text; empty where nobody has to."""
        if self.origin.source == PERSONS_DOOR or state.scope is MemoryScope.SESSION:
            return ""
        return self._by_source(state) or self._by_confidence(state) or self._by_policy(state)

    def _by_source(self, state: MemoryState) -> str:
        actor = self.origin.actor.lower()
        names = {self.origin.source, actor, f"agent:{actor}"}
        if (state.topic_key or "").startswith(_IMPORTED):
            names.add("import")
        found = next((each for each in self.settings.review_sources if each in names), "")
        return f"everything from {found} is reviewed" if found else ""

    def _by_confidence(self, state: MemoryState) -> str:
        least = self.settings.review_below_confidence
        confidence = attribute_columns(state.kind, state.attributes)["confidence"] if least else None
        is_below = confidence is not None and confidence < least
        return f"its confidence {confidence:g} is below {least:g}" if is_below else ""

    def _by_policy(self, state: MemoryState) -> str:
        percent = self.settings.review_sample_percent
        if self.settings.review_policy is ReviewPolicy.ALL:
            return "everything is reviewed"
        if self.settings.review_policy is ReviewPolicy.SAMPLED and is_sampled(state.content, percent):
            return f"one of the {percent} % that are sampled"
        return ""


def is_sampled(content: str, percent: int) -> bool:
    """Whether a text is among so many of a hundred: the same text always is, or never."""
    return int(content_hash(content)[:8], 16) % 100 < percent
