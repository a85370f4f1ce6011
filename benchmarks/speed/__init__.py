"""Measure the hub against a floor: the same work in the same run without the hub.

``corpus`` makes the text; ``twin`` is the same store filled by bare ``sqlite3``; ``stdio``, ``rest`` and ``service``
are the interfaces; ``measures`` take the figures, ``goals`` judge them, ``report`` and ``table`` show them.
"""
