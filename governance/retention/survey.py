"""All that is past its age in the current store, and what keeps it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from governance.retention.candidates import CAPTURED, THINGS, Candidate, select
from governance.retention.policy import Policy
from governance.retention.references import Tie, citations, kept_by_ties


class Survey:
    """One look at the store; what decisions cite is read once for it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.cited: list[Tie] = citations()

    def past_age(
        self, *, events: Sequence[int] | None = None, things: Sequence[int] | None = None
    ) -> Iterator[Candidate]:
        """Yield all that is past its age, or those of these ids; what goes with its stream first, each by id.

        What only a decision that goes itself cites is kept by nothing.
        """
        gone: set[int] = set()
        for found in self.things(things):
            if not found.keeper:
                gone.add(found.id)
            yield found
        yield from self.events(events, but_of=gone)

    def events(self, only: Sequence[int] | None = None, *, but_of: Collection[int] = ()) -> Iterator[Candidate]:
        """Yield single events; all, or those at these positions. What decisions cite is kept, but by those left out."""
        cited = {tie.kept: tie.keeper for tie in self.cited if tie.stays not in but_of}
        for found in select(CAPTURED, self.policy, only):
            yield found._replace(keeper=found.keeper or cited.get(found.id, ""))

    def things(self, only: Sequence[int] | None = None) -> Iterator[Candidate]:
        """Yield memories, sessions, decisions, iterations and commits; all, or those among these ids."""
        found = [each for source in THINGS for each in select(source, self.policy, only)]
        kept = kept_by_ties(found, self.cited)
        yield from (each._replace(keeper=kept.get(each.id, "")) for each in found)
