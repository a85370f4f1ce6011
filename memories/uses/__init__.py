"""How memories are used: given in packs, found, fetched, cited, updated, or ignored.

Packs, changes and citations are in the log. A read leaves a note in a small file (``notes``), which a job folds into an
event (``drain``).
"""
