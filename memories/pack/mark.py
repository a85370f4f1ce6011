"""The words by which a pack is known for what it is."""

MARK = "Memory Hub context pack"
