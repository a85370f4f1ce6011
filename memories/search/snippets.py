"""Find the words of a question in a text, in any form, and cut the passage that has most of them. For display only."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter

from memories.embeddings.engine import BUNDLED_VOCABULARY
from memories.search.text import (
    PART,
    UNSPACED,
    all_forms,
    folded,
    folded_with_places,
    is_prefix,
    telling_words,
    without_accents,
)

# Characters of a snippet
LENGTH = 200

_TOKEN = re.compile(r"[^\W_]+")
# A letter that may have an accent, or another length in lower case
_OTHER_LETTER = re.compile(r"[^\W\d_a-zA-Z]")
_ENDING = re.compile(r"(?<=\w{3})(?:ings?|ions?|ie[sd]|ed|es|ers?|ly|e|s|y)$")
_READ = 20_000
_PLACES = 100
_STEM = 5

Spans = list[tuple[int, int]]


def snippet(text: str, words: Sequence[str], length: int = LENGTH) -> str:
    """Return about ``length`` characters of ``text`` from where ``words`` are densest, on one line."""
    flat = " ".join(text[:_READ].split())
    if len(flat) <= length:
        return flat
    stems = {form.removesuffix("*")[:_STEM] for form in all_forms(words)}  # a text may hold another form of a word
    plain, places_of = folded_with_places(flat)
    # Where most of the words are within ``length``, and some characters before
    starts = places(plain.lower(), stems)[:_PLACES]
    best = most = end = 0
    for index, place in enumerate(starts):
        while end < len(starts) and starts[end] < place + length:
            end += 1
        if end - index > most:
            best, most = place, end - index
    start = max(0, best - 20)
    if places_of:
        start = places_of[min(start, len(places_of) - 1)][0]
    start = min(start, len(flat) - length)  # words near the end are shown with what comes before them
    start = flat.find(" ", start - 1) + 1 if start else 0
    stop = command_end(flat, start, start + length)
    cut = flat[start:stop]
    if stop < len(flat):
        cut = f"{cut if stop > start + length else cut.rsplit(' ', 1)[0]} …"
    return f"… {cut}" if start else cut


# Characters between a passage and the command that it leads to, and of that command
_LEAD, _COMMAND = 80, 160
_CODE = re.compile(rf"[^`]{{0,{_LEAD}}}(`{{1,3}})[^`]{{1,{_COMMAND}}}\1")
_CODE_END = re.compile(rf"[^`]{{0,{_COMMAND}}}`{{1,3}}")


def command_end(text: str, start: int, end: int) -> int:
    """Return where a passage of a text ends: further on if it would end inside a command, or shortly before one."""
    is_inside = text.count("`", start, end) % 2 == 1
    code = (_CODE_END if is_inside else _CODE).match(text, end)
    return code.end() if code else min(end, len(text))


def spans(text: str, words: Sequence[str]) -> Spans:
    """Return start and end of each word of ``text`` that is a form of one of ``words``, in characters."""
    merged: Spans = []
    for start, end, _ in occurrences(text, words):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def occurrences(text: str, words: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return start and end of each word of ``text`` that is a form of one of ``words``, and its place in ``words``."""
    stems: dict[str, list[int]] = {}
    beginnings: dict[str, list[int]] = {}
    literal: list[tuple[str, int]] = []
    for place, word in enumerate(words):
        for form in all_forms([word]):
            if is_prefix(form):
                beginnings.setdefault(_fold_case(form[:-1]), []).append(place)
            else:
                stems.setdefault(stem(form), []).append(place)
            if UNSPACED.match(form) or not form.rstrip("*").isalnum():
                literal.append((form, place))
    # NFKC would turn the ellipsis at either end of a snippet into three characters
    plain, places_of = folded_with_places(text.replace("…", "."))
    matches: list[tuple[int, int, int]] = []
    for form, place in literal:
        matches += [(*match.span(), place) for match in re.finditer(re.escape(form), plain)]
    for token in _tokens(plain, {*stems, *beginnings}):
        matches += _in_token(token, stems, beginnings)
    if places_of:
        matches = [(places_of[start][0], places_of[end - 1][1], place) for start, end, place in matches]
    return sorted(set(matches))


def words_between(at: Sequence[tuple[int, int, int]], start: int, end: int) -> set[int]:
    """Return the places of the words that begin in a part of a text, given its ``occurrences``."""
    first, after = (bisect_left(at, border, key=itemgetter(0)) for border in (start, end))
    return {place for _, _, place in at[first:after]}


# Only tokens that may contain a stem: most are skipped without being matched
def _tokens(text: str, stems: set[str]) -> Iterator[re.Match[str]]:
    if not text.isascii() and _OTHER_LETTER.search(text):
        yield from _TOKEN.finditer(text)
        return
    end = 0
    for place in places(text.lower(), stems):
        if place < end:
            continue
        begin = place
        while begin and text[begin - 1].isalnum():
            begin -= 1
        token = _TOKEN.match(text, begin)
        if token:
            yield token
            end = token.end()


def places(text: str, parts: Iterable[str]) -> list[int]:
    starts: set[int] = set()
    for part in filter(None, parts):
        place = text.find(part)
        while place >= 0:
            starts.add(place)
            place = text.find(part, place + 1)
    return sorted(starts)


_Places = Mapping[str, Sequence[int]]


# The whole token if it is one of the words, else its matching camelCase parts
def _in_token(token: re.Match[str], stems: _Places, beginnings: _Places) -> Iterator[tuple[int, int, int]]:
    word = token[0]
    start, end = token.span()
    whole = [*stems.get(stem(word), ())]
    if beginnings:
        plain = _fold_case(word)
        for beginning, places_of_words in beginnings.items():
            if plain.startswith(beginning):
                whole += places_of_words
    for place in whole:
        yield start, end, place
    if whole or (word.isalpha() and (word.islower() or word.istitle())):
        return  # a plain word has no parts
    for part in PART.finditer(word):
        if part[0] != word:
            for place in stems.get(stem(part[0]), ()):
                yield start + part.start(), start + part.end(), place


# Characters of a passage: about a paragraph
_PASSAGE = 500
_LONGEST_PASSAGE = 700
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_LINE_END = re.compile(r"\n|(?<=[.!?])\s+|(?<=[。！？])")


def passages(text: str) -> Spans:
    """Return where each passage of a text starts and ends: paragraphs, short ones joined and long ones divided."""
    pieces: Spans = []
    for start, end in _divided(text, 0, len(text), _PARAGRAPH_END):
        if end - start > _LONGEST_PASSAGE:
            for line in sentences(text, start, end):
                pieces += [(place, min(place + _PASSAGE, line[1])) for place in range(*line, _PASSAGE)]
        else:
            pieces.append((start, end))
    joined: Spans = []
    for start, end in pieces:
        if joined and end - joined[-1][0] <= _PASSAGE:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where each sentence or line of a part of a text starts and ends."""
    return _divided(text, start, end, _LINE_END)


def _divided(text: str, start: int, end: int, border: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    for match in border.finditer(text, start, end):
        if match.start() > start:
            yield start, match.start()
        start = match.end()
    if text[start:end].strip():
        yield start, end


def only_asks(text: str, words: Sequence[str]) -> bool:
    """Return whether a text has at least half of the words of a question and no others that mean something."""
    matches = occurrences(text, words)
    if len({place for _, _, place in matches}) * 2 < len(words):
        return False
    remainder = list(text)
    for start, end, _ in matches:
        remainder[start:end] = " " * (end - start)
    return not telling_words(_TOKEN.findall("".join(remainder).lower()))


def words_in(text: str, words: Sequence[str]) -> list[str]:
    text = folded(text[:_READ])
    plain = _fold_case(text)
    return [word for word in words if any(_is_in(text, plain, form) for form in all_forms([word]))]


def _is_in(text: str, plain: str, word: str) -> bool:
    if UNSPACED.match(word):
        return word in text
    beginning = _fold_case(word[:-1]) if is_prefix(word) else stem(word)
    place = plain.find(beginning)
    # A stem inside a word is no match
    while place > 0 and plain[place - 1].isalnum():
        place = plain.find(beginning, place + 1)
    return place >= 0


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return a word without its ending, roughly: ``descaling`` and ``descaled`` have the same stem."""
    short = _ENDING.sub("", _fold_case(word))
    has_double_end = len(short) > 3 and short[-1] == short[-2]
    return short[:-1] if has_double_end else short


# Place of a word that the vocabulary of English does not have
UNLISTED = 40_000


def place_in_english(word: str) -> int:
    """Return the place of a word among those of English, the most usual first."""
    return min(_places_in_english().get(form, UNLISTED) for form in (word, stem(word), f"{stem(word)}e"))


_ENDINGS_OF_STEMS = ("", "e", "s", "es", "ed", "ing", "er", "y", "ly", "ment")


def place_of_stem(short: str) -> int:
    """Return the place of the most usual English word with a stem."""
    places = _places_in_english()
    return min([places.get(short + ending, UNLISTED) for ending in _ENDINGS_OF_STEMS])


# The vocabulary of the bundled model is in the order of how often its words are used
@cache
def _places_in_english() -> dict[str, int]:
    return {word: place for place, word in enumerate(BUNDLED_VOCABULARY.read_text("utf-8").split("\n"), 1)}


def _fold_case(text: str) -> str:
    return without_accents(text.lower())
