"""Importing the package registers every projector."""

from memories.projectors import memories, quarantine
from memories.projectors import memories as links
from memories.projectors import memories as packs
from memories.projectors import memories as review
from memories.projectors import quarantine as erasure

__all__ = ["erasure", "links", "memories", "packs", "quarantine", "review"]
