"""What became of memories: which were given, found, fetched, cited and updated, and which were ignored.

Packs, changes and citations are in the log anyway. A read leaves a note in a small file (``notes``), which a job of the
worker folds into an event (``drain``). ``selectors`` tell, and a quiet weight of searches comes from it (``ranking``).
"""
