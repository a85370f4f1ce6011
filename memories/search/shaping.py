"""How a text is written into the full-text index, so that the parts of names and of words without spaces are found."""

from __future__ import annotations

import re
from datetime import datetime

from memories.search.folding import folded

_TOKEN = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]{2}))")
"""A capital after a small letter or a digit, or the last of several before small letters.

It begins with the capital, since few signs of a text are one: looking for it takes a fifth of the time.
"""
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
"""A part of a camelCase name."""
_LONGEST_NAME = 80

UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+",
)
"""Runs of Chinese, Japanese or Korean, in which no space says where a word ends."""

MONTHS = "January February March April May June July August September October November December".split()


def shaped(text: str) -> str:
    """Return a text as it is indexed: folded, what is without spaces in pairs of signs, the parts of names added.

    A run of n unspaced signs becomes n words: every two that follow each other, and the last one.
    """
    if not text.isascii():
        text = UNSPACED.sub(lambda run: f" {' '.join([*pairs(run[0]), run[0][-1]])} ", folded(text))
    if not _HUMP.search(text):
        return text
    parts = [part for token in _TOKEN.findall(text) for part in name_parts(token)]
    return f"{text}\n{' '.join(parts)}"


def pairs(run: str) -> list[str]:
    """Return every two signs of a run that follow each other."""
    return [run[index : index + 2] for index in range(len(run) - 1)]


def name_parts(token: str) -> list[str]:
    """Return the parts of a camelCase name; none where ``token`` is no such name."""
    if len(token) > _LONGEST_NAME or not _HUMP.search(token):
        return []
    return PART.findall(token)


def date_words(moment: datetime) -> str:
    """Return a date as people write it: ``8 May 2023``."""
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"
