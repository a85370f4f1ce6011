"""Measure the hub against a floor: the same work in the same run without the hub.

``corpus`` makes the text; ``twin`` is the same store filled by bare ``sqlite3``; ``processes`` are the hub's, and their
clients; ``measures`` take the figures, ``goals`` judge them, ``table`` shows them.
"""
