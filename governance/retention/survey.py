from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from governance.retention.candidates import CAPTURED, THINGS, Candidate, select
from governance.retention.policy import Policy
from governance.retention.references import Reference, citations, kept_by_references


# One reading of the store; citations are read once for it
class Survey:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.cited: list[Reference] = citations()

    # Whole streams first, then single events: a citation by a decision that is deleted itself protects nothing
    def past_age(
        self, *, events: Sequence[int] | None = None, things: Sequence[int] | None = None
    ) -> Iterator[Candidate]:
        gone: set[int] = set()
        for found in self.things(things):
            if not found.keeper:
                gone.add(found.id)
            yield found
        yield from self.events(events, but_of=gone)

    def events(self, only: Sequence[int] | None = None, *, but_of: Collection[int] = ()) -> Iterator[Candidate]:
        cited = {reference.kept: reference.keeper for reference in self.cited if reference.stays not in but_of}
        for found in select(CAPTURED, self.policy, only):
            yield found._replace(keeper=found.keeper or cited.get(found.id, ""))

    def things(self, only: Sequence[int] | None = None) -> Iterator[Candidate]:
        found = [candidate for source in THINGS for candidate in select(source, self.policy, only)]
        kept = kept_by_references(found, self.cited)
        yield from (candidate._replace(keeper=kept.get(candidate.id, "")) for candidate in found)
