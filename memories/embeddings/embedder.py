"""What every model is here: a name, a version, and a function from texts to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]


class Embedder(Protocol):
    """A model that is loaded."""

    @property
    def name(self) -> str:
        """What a setting names it by."""

    @property
    def version(self) -> str:
        """What differs where the same text may get another vector."""

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return a row a text, each of length 1, as float32."""
