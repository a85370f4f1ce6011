"""From a question in words to a query that no input can break."""

from __future__ import annotations

import re

from memoryhub.core.searchable import askings

_WORD = re.compile(r"\w+")
_MAX_TERMS = 32

STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do does doing
    down during each few for from further had has have having he her here hers him his how i if in into is it its itself
    just me more most my no nor not now of off on once only or other our ours out over own same she should so some such
    than that the their theirs them then there these they this those through to too under until up us very was we were
    what when where which while who whom why will with would you your yours""".split()
)
"""English words that say nothing about what is looked for."""


def terms(question: str) -> list[str]:
    """Return the words to look for, without repeats; stop words only where nothing else is left."""
    words = _words(question)
    telling = [word for word in _words(_without_asking(question)) if word not in STOP_WORDS]
    return (telling or words)[:_MAX_TERMS]


def _words(question: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(question.lower().replace("_", " "))))


def _without_asking(question: str) -> str:
    """Return the question without the words that say where to look."""
    for asking in askings(question):
        question = asking.words.sub(" ", question)
    return question


def match_any(words: list[str]) -> str:
    """Return the FTS5 expression that any of the words meets; each is quoted, so none is an operator."""
    return " OR ".join(f'"{word}"' for word in words)
