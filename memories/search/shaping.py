"""Prepares texts for the full-text index (decision 20)."""

from __future__ import annotations

import re
from datetime import datetime

from memories.search.folding import folded

_TOKEN = re.compile(r"[^\W_]+")
# A capital after a small letter or digit, or the last of several capitals before small letters. The pattern begins with
# the capital because capitals are rare: this takes a fifth of the time.
_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]{2}))")
# Part of a camelCase name
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LONGEST_NAME = 80

# Runs of Chinese, Japanese or Korean, which have no spaces between words
UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+",
)

MONTHS = "January February March April May June July August September October November December".split()


def shaped(text: str) -> str:
    """Return a text as it is indexed: folded, with parts of camelCase names, unspaced runs split into pairs."""
    # A run of n characters becomes n words: every adjacent pair, and the last character
    if not text.isascii():
        text = UNSPACED.sub(lambda run: f" {' '.join([*pairs(run[0]), run[0][-1]])} ", folded(text))
    if not _HUMP.search(text):
        return text
    parts = [part for token in _TOKEN.findall(text) for part in name_parts(token)]
    return f"{text}\n{' '.join(parts)}"


def pairs(run: str) -> list[str]:
    return [run[index : index + 2] for index in range(len(run) - 1)]


def name_parts(token: str) -> list[str]:
    """Return the parts of a camelCase name; empty for any other token."""
    if len(token) > _LONGEST_NAME or not _HUMP.search(token):
        return []
    return PART.findall(token)


def date_words(moment: datetime) -> str:
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"
