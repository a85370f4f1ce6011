"""What is so, after what happened. Importing the package registers every projector."""

from memories.projectors import erasure, links, memories, packs, quarantine, review

__all__ = ["erasure", "links", "memories", "packs", "quarantine", "review"]
