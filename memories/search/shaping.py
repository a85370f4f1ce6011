"""Prepare texts for the full-text index (decision 20)."""

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

# Emoji without their colour and variation; flags are two letters
_EMOJI = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}|[\u231a-\u23ff\u2600-\u27bf\u2b1b-\u2b55\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
)
_CRON_FIELD = r"(?:\*|\d\d?|[A-Z]{3})(?:[-/,](?:\*|\d\d?|[A-Z]{3}))*"
_CRON = re.compile(rf"(?<![\w*/])(?:{_CRON_FIELD} +){{4}}{_CRON_FIELD}(?![\w*/])")

MONTHS = "January February March April May June July August September October November December".split()


def shaped(text: str) -> str:
    """Return a text as it is indexed: folded, with parts of camelCase names, unspaced runs split into pairs."""
    # A run of n characters becomes n words: every adjacent pair, and the last character
    signs = signs_in(text)
    if not text.isascii():
        text = UNSPACED.sub(lambda run: f" {' '.join([*pairs(run[0]), run[0][-1]])} ", folded(text))
    if signs:
        text = f"{text}\n{' '.join(map(sign_word, signs))}"
    if not _HUMP.search(text):
        return text
    parts = [part for token in _TOKEN.findall(text) for part in name_parts(token)]
    return f"{text}\n{' '.join(parts)}"


def signs_in(text: str) -> list[str]:
    """Return the emoji and the cron lines of a text, of which the tokenizer would leave nothing or a few numbers."""
    found = [" ".join(line.split()) for line in _CRON.findall(text) if "*" in line] if "*" in text else []
    return found if text.isascii() else [*found, *_EMOJI.findall(text)]


def sign_word(sign: str) -> str:
    """Return the word by which an emoji or a cron line is indexed; other words, and names of several, as they are."""
    return sign if sign.replace(" ", "").isalnum() else f"sign{sign.encode().hex()}"


def pairs(run: str) -> list[str]:
    return [run[index : index + 2] for index in range(len(run) - 1)]


def name_parts(token: str) -> list[str]:
    """Return the parts of a camelCase name; empty for any other token."""
    if len(token) > _LONGEST_NAME or not _HUMP.search(token):
        return []
    return PART.findall(token)


def date_words(moment: datetime) -> str:
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"
