"""Reproducible text to measure with.

Words follow Zipf's law with function words on top, so a question has terms that half of all memories contain and
terms that only one contains.
"""

from __future__ import annotations

import random
import re
from functools import cache
from itertools import accumulate
from typing import Any

_SEED = "memory-hub"
_VOCABULARY_SIZE = 30_000
_FUNCTION_WORDS = (
    "the of to and a in is it that for on was with as be this by are from at or an not but which have we has so when "
    "if then they after before because into only no all its there where than can will should would does were been had"
).split()
_TRADE_WORDS = (
    "test store file query index cache error session request client server commit branch build release module function "
    "table column schema migration lock thread process timeout retry token budget header parser worker queue config "
    "setting user project memory event log replay search rank score vector model prompt answer budget limit cursor "
    "page route view form admin template script style path folder digest chain backup restore upgrade version patch "
    "review merge conflict deploy container network socket stream buffer pool signal hook adapter schedule metric "
    "trace alert"
).split()
_ONSETS = "b br c ch d dr f fl g gr h j k l m n p pl qu r s sh st t tr v w z".split()
_VOWELS = "a e i o u ai ea oo".split()
_CODAS = ["", "", "n", "r", "l", "s", "nd", "rt", "ck", "m"]
_TAGS = tuple(f"{area}-{part}" for area in ("api", "db", "ui", "ops", "docs") for part in ("core", "tests", "build"))
_TYPES = ("note", "decision", "task", "reference", "conversation")
_WORD = re.compile(r"[a-z]+")


def arguments(index: int) -> dict[str, Any]:
    source = random.Random(f"{_SEED}:{index}")  # noqa: S311 - text that must be the same on every run
    words = _draw(source, 120)
    return {
        "title": f"{' '.join(words[:5]).capitalize()} {index}",
        "content": _prose(source, words[5:], source.randint(300, 600)),
        "type": source.choice(_TYPES),
        "tags": source.sample(_TAGS, source.randint(1, 3)),
    }


def question(index: int) -> str:
    ranks = _ranks()
    found = {word for word in _WORD.findall(arguments(index)["content"].lower()) if word in ranks}
    words = sorted(found - set(_FUNCTION_WORDS), key=ranks.__getitem__)
    last = len(words) - 1
    return " ".join(words[last * part // 3] for part in range(4))


def _draw(source: random.Random, count: int) -> list[str]:
    return source.choices(_vocabulary(), cum_weights=_weights(), k=count)


def _prose(source: random.Random, words: list[str], length: int) -> str:
    sentences: list[str] = []
    while words and sum(map(len, sentences)) + len(sentences) < length:
        count = source.randint(6, 14)
        head, words = words[:count], words[count:]
        sentences.append(f"{' '.join(head).capitalize()}{_detail(source, head)}.")
    return " ".join(sentences)[:length].strip()


def _detail(source: random.Random, words: list[str]) -> str:
    kind = source.randrange(6)
    if kind == 0:
        return f" in `src/{words[0]}/{words[-1]}.py:{source.randint(1, 900)}`"
    if kind == 1:
        return f" ({source.randint(2, 5000)} ms, version {source.randint(0, 9)}.{source.randint(0, 20)})"
    return ""


@cache
def _vocabulary() -> list[str]:
    source = random.Random(_SEED)  # noqa: S311 - as above
    words = dict.fromkeys([*_FUNCTION_WORDS, *_TRADE_WORDS])
    while len(words) < _VOCABULARY_SIZE:
        syllables = source.choices((1, 2, 3), (1, 5, 4))[0]
        words["".join(_syllable(source) for _ in range(syllables))] = None
    return list(words)


def _syllable(source: random.Random) -> str:
    return source.choice(_ONSETS) + source.choice(_VOWELS) + source.choice(_CODAS)


@cache
def _weights() -> list[float]:
    return list(accumulate(1 / (rank + 2.7) ** 1.05 for rank in range(_VOCABULARY_SIZE)))


@cache
def _ranks() -> dict[str, int]:
    return {word: rank for rank, word in enumerate(_vocabulary())}
