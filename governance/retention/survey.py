"""All that is past its age in the current store, and what keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from governance.retention.policy import Policy
from governance.retention.selection import CAPTURED, THINGS, Candidate, select
from governance.retention.ties import Tie, citations, kept_by_ties


class Survey:
    """One look at the store; what decisions cite is read once for it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.cited: list[Tie] = citations()

    def past_age(self) -> Iterator[Candidate]:
        """Yield all that is past its age, single events first, each by id."""
        yield from self.events()
        yield from self.things()

    def events(self, only: Sequence[int] | None = None) -> Iterator[Candidate]:
        """Yield single events; all, or those among these positions."""
        cited = {tie.kept: tie.keeper for tie in self.cited}
        for found in select(CAPTURED, self.policy, only):
            yield found._replace(keeper=found.keeper or cited.get(found.id, ""))

    def things(self, only: Sequence[int] | None = None) -> Iterator[Candidate]:
        """Yield memories, sessions, decisions, iterations and commits; all, or those among these ids."""
        found = [each for source in THINGS for each in select(source, self.policy, only)]
        kept = kept_by_ties(found, self.cited)
        yield from (each._replace(keeper=kept.get(each.id, "")) for each in found)
