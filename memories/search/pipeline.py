"""How much each thing counts in a ranking; what was measured for each is in docs/retrieval.md."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The weights of a ranking. A weight of 0 leaves its stage out, which is how each is measured by itself."""

    title: float = 2.0
    """Of a word in the title, where one in the body is 1.0."""
    near: float = 0.3
    """Of a word in what was said just before or after a message."""
    date: float = 0.5
    """Of a word or a number of the date, written out."""
    neighbours: float = 0.25
    """Of the better of a message's two neighbours' scores, beside its own."""
    session: float = 1.0
    """Of the session of a message: how much more the best session's messages count than those of one without hits."""
    session_beside_others: float = 0.5
    """The same, at most, where another ranking is blended in: it brings what belongs together by itself."""
    speaker: float = 0.5
    """Of the speaker of a message, where the question names them: how much more such a message counts."""
    phrases: bool = True
    """Whether names such as ``a.b_c`` are also looked for as a whole."""

    @property
    def uses_surroundings(self) -> bool:
        """Whether anything around a message counts."""
        return any((self.neighbours, self.session, self.speaker))

    def beside_others(self) -> Pipeline:
        """Return the weights where another ranking is blended in."""
        return replace(self, session=min(self.session, self.session_beside_others))


USUAL = Pipeline()
