"""Decide which writes need review (decision 24)."""

from __future__ import annotations

from dataclasses import dataclass, field

from memories.duplicates import Existing
from memories.events import MemoryState, ReviewStatus
from memories.kinds import attribute_columns
from memories.models import MemoryScope, ReviewState
from memories.projectors import content_hash
from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.config.retention_rules import Lessons, ReviewPolicy
from memoryhub.core.origin import PERSONS_DOORS, Origin, current_origin

# The rules that propose lessons from a session
RULES_DOOR = "rules"
# How the sources of their memories begin, and the reasons for which these wait
PROPOSED_BY_RULE = "rule: "
# Prefix of the topic keys of imports
_IMPORTED = "import:"
_REVISED_AFTER_REJECTION = "revised after rejection"


@dataclass(frozen=True, slots=True)
class ReviewGate:
    settings: ProjectSettings = field(default_factory=project_settings)
    origin: Origin = field(default_factory=current_origin)

    def of_new(self, state: MemoryState) -> ReviewStatus | None:
        if self.origin.source == RULES_DOOR:
            reason = state.source if self.settings.lessons is Lessons.PROPOSED else ""
        else:
            reason = self._reason(state)
        return ReviewStatus(state=ReviewState.PROPOSED, reason=reason) if reason else None

    def of_revision(self, existing: Existing, state: MemoryState) -> ReviewStatus | None:
        """Return the status of a memory with its next version; None means accepted.

        A person accepts by writing. For others, a proposed memory stays proposed, a rejected one is proposed again.
        What a rule has proposed becomes the writer's own.
        """
        if self.origin.source in PERSONS_DOORS:
            return None
        before = existing.status
        if before.reason.startswith(PROPOSED_BY_RULE) and self.origin.source != RULES_DOOR:
            return self.of_new(state)  # an agent has confirmed it in its own words
        if before.state is ReviewState.PROPOSED:
            return before
        if before.state is ReviewState.REJECTED:
            return ReviewStatus(state=ReviewState.PROPOSED, reason=_REVISED_AFTER_REJECTION)
        reason = self._reason(state)
        if not reason:
            return None
        is_promoted = existing.state.scope is MemoryScope.SESSION
        accepted_version = None if is_promoted else existing.version
        return ReviewStatus(state=ReviewState.PROPOSED, reason=reason, accepted_version=accepted_version)

    def _reason(self, state: MemoryState) -> str:
        if self.origin.source in PERSONS_DOORS or state.scope is MemoryScope.SESSION:
            return ""
        actor = self.origin.actor.lower()
        names = {self.origin.source, actor, f"agent:{actor}"}
        if (state.topic_key or "").startswith(_IMPORTED):
            names.add("import")
        for source in self.settings.review_sources:
            if source in names:
                return f"policy reviews all writes from {source}"
        least = self.settings.review_below_confidence
        if least:
            confidence = attribute_columns(state.kind, state.attributes)["confidence"]
            if confidence is not None and confidence < least:
                return f"confidence {confidence:g} is below {least:g}"
        if self.settings.review_policy is ReviewPolicy.ALL:
            return "policy reviews all writes"
        percent = self.settings.review_sample_percent
        if self.settings.review_policy is ReviewPolicy.SAMPLED and is_sampled(state.content, percent):
            return f"sampled by the review policy ({percent} %)"
        return ""


def is_sampled(content: str, percent: int) -> bool:
    """Return whether a text belongs to a sample of ``percent`` of 100; deterministic for each text."""
    return int(content_hash(content)[:8], 16) % 100 < percent
