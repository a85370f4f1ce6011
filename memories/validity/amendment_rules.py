"""Whether a newer text amends an older one: by explicit words on the same subject, or by another value in its place.

Precision comes first: two texts that differ in what they are about, such as staging and production, are both true.
The explicit words are English; texts in other languages are compared by their values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum, auto
from functools import lru_cache
from itertools import chain, product
from math import log
from typing import NamedTuple

from memories.search.snippets import UNLISTED, place_of_stem, stem
from memories.search.text import COMMON_WORDS, STOP_WORDS, folded
from memories.validity.change_words import ACT, CHANGE_WORDS, CHANGELOG, changes_in, is_open_sentence, plain_sentence

# Characters of a newer text that are read; an older one that is longer says more than one sentence can amend
_READ, _LONGEST = 700, 900


class TitledText(NamedTuple):
    content: str
    title: str = ""
    # A section of a document: its time says nothing, and only whole sentences of it are compared
    is_section: bool = False


# Something beside what holds already
_ADDS = re.compile(r"\b(?:too|also|as well|additionally|in addition|besides|another|further|furthermore|both)\b")
_DENIAL = re.compile(
    r"\b(?:not|never|without|cannot|no(?! longer\b)|\w+n['’]t) (?P<what>(?:\S+ ){0,4}?\S+?)"
    r"(?=[,;:]| (?:and|but|or|because|since)\b|$)"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|;\s+|。")
# Sections on what was once so, lines of one sentence, and a sentence without markup
_HISTORY = re.compile(r"chang|histor|release|what.s new|upgrad|migrat|deprecat|\d\.\d|\d{4}", re.IGNORECASE)
_WRAP = re.compile(r"\n(?=[\w`(])")
_PROSE = re.compile(r"[A-Z`](?:(?!::|\]\(|//|[|<>\n]).)+[.!]")
_CLAUSE = re.compile(r",\s+|:\s+|\s[–—-]\s|\s(?=(?:because|since|so that|although|otherwise)\b)")
_TOKEN = re.compile(r"[^\W_][\w.+/%:@&'’~*-]*|[$€£]\d[\d.,]*")
_PART = re.compile(r"[^\W\d_]{3,}|\d+(?:\.\d+)+")
_NUMBER = re.compile(r"[$€£]?\d")
_QUANTITY = re.compile(r"(?<![\w.])(\d+(?:[.,]\d+)*) ?([a-z%]+)")
_NAME = re.compile(r"\d|[a-z].*[A-Z]|\w[./_@&]\w|[A-Z].*[A-Z]")
_NUMBERS = frozenset(
    "none one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty half once twice".split()
)
_POLES = (
    "always/never enabled/disabled on/off yes/no true/false tabs/spaces required/optional must/never allowed/forbidden "
    "before/after single/double public/private daily/weekly hourly/daily weekly/monthly manually/automatically"
).split()
_OPPOSITES = {frozenset(pair.split("/")) for pair in _POLES}
_NEGATIONS = frozenset("not never no without cannot don't doesn't isn't aren't won't must'nt shouldn't".split())
_ARTICLES = frozenset("a an the our its".split())
# Words before what one thing has once
_ONCE = frozenset("by from until after".split())
# Words that begin a narrower statement
_QUALIFIERS = frozenset("on in for at with during when if while under within inside per".split())
# Two texts that differ in these are both true
_PLACES = frozenset(
    """staging production prod dev development sandbox preview locally ci windows linux macos ios watchos android
    desktop mobile tablet""".split()
)


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    return stem(word.removesuffix("s").removesuffix("ment"))


class _Token(NamedTuple):
    word: str
    stem: str
    # Whether it is a number, a name or a path
    is_value: bool
    # The preposition before, without an article
    preposition: str


@dataclass(frozen=True, slots=True)
class _Sentence:
    # The words that are no stop words, by clause
    clauses: Sequence[Sequence[_Token]]
    stems: frozenset[str]
    # With those of the title, and their weight
    titled: frozenset[str]
    weight: float
    # Whether it asks or considers, or is a line of a list of changes
    is_open: bool
    # Whether it says what holds: it is not open, a single act, or an addition
    is_plain: bool
    # What no longer holds, and what has changed
    ended: Sequence[frozenset[str]]
    changed: Sequence[frozenset[str]]
    # What it says not to be so, by clause
    denied: Sequence[frozenset[str]]
    # What something is for
    purposes: frozenset[str]
    # Numbers with their units
    quantities: Sequence[tuple[str, str]]

    @property
    def states_change(self) -> bool:
        return bool(self.ended or self.changed)


@dataclass(frozen=True, slots=True)
class _Parsed:
    title: frozenset[str]
    sentences: Sequence[_Sentence]
    # Stems of the whole text, and their weight
    stems: frozenset[str]
    weight: float
    places: frozenset[str]
    is_long: bool

    # Those of a newer text that may amend another
    @property
    def first(self) -> Sequence[_Sentence]:
        return self.sentences[: 1 if self.is_long else _FIRST]


@lru_cache(maxsize=1024)
def _parsed(text: TitledText) -> _Parsed:
    title = _stems(_tokens(text.title))
    sentences = [_sentence(part, title) for part in _split(text)]
    stems = title.union(*(sentence.stems for sentence in sentences))
    places = _PLACES.intersection(re.findall(r"\w+", f"{text.title} {text.content[:_READ]}".lower()))
    return _Parsed(title, sentences, stems, _weight_of(stems), places, _is_long(text))


def _split(text: TitledText) -> list[str]:
    content = text.content[:_READ]
    if not text.is_section:
        return [part for part in _SENTENCE.split(content) if _TOKEN.search(part)]
    if _HISTORY.search(text.title):
        return []
    return list(filter(_PROSE.fullmatch, _SENTENCE.split(_WRAP.sub(" ", content))))


def _is_long(text: TitledText) -> bool:
    return len(text.content) > _LONGEST


def _sentence(text: str, title: frozenset[str]) -> _Sentence:
    plain = plain_sentence(text)
    clauses = [tokens for part in _CLAUSE.split(text) if (tokens := _tokens(part))]
    stems = frozenset().union(*map(_stems, clauses))
    is_open = is_open_sentence(plain)
    is_act = bool(ACT.search(plain))
    ended: list[frozenset[str]] = []
    changed: list[frozenset[str]] = []
    for groups in changes_in(plain):
        if "old" in groups:
            ended.append(_stems(_tokens(groups["old"])) - _COMMON)
        else:
            changed.append(_stems(_tokens(groups.get("subject") or "")) - _COMMON)
    return _Sentence(
        clauses=clauses,
        stems=stems,
        titled=stems | title,
        weight=_weight_of(stems | title),
        is_open=is_open,
        is_plain=not (is_open or is_act or _ADDS.search(plain)),
        ended=ended,
        changed=changed,
        denied=[_stems(_tokens(match["what"])) for match in _DENIAL.finditer(plain)],
        purposes=frozenset(token.stem for token in chain.from_iterable(clauses) if token.preposition == "for"),
        quantities=_QUANTITY.findall(plain),
    )


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    before = ""
    for match in _TOKEN.finditer(folded(text)):
        name = match[0].rstrip(".:'’/-*~&")
        word = name.lower()
        if word not in STOP_WORDS or word in _NEGATIONS or word in ("on", "off"):
            is_value = bool(_NUMBER.match(name) or _NAME.search(name)) or word in _NUMBERS
            is_value = is_value or (name[:1].isupper() and match.start() > 0)
            tokens.append(_Token(word, _stem(word), is_value, before))
            before = ""
        elif word not in _ARTICLES:
            before = word
    return tokens


# With the parts of names and paths
def _stems(tokens: Sequence[_Token]) -> frozenset[str]:
    stems: set[str] = set()
    for token in tokens:
        if token.word in _WORDS_OF_CHANGE:
            continue
        stems.add(token.stem)
        if token.is_value:
            stems.update(_stem(part) for part in _PART.findall(token.word))
    return frozenset(stems)


_COMMON = frozenset(map(stem, COMMON_WORDS))
_WORDS_OF_CHANGE = _NEGATIONS | CHANGE_WORDS | {"more", "new", "old"}
_EVERYDAY = 100


@lru_cache(maxsize=8192)
def _weight(word: str) -> float:
    if not word.isalpha():
        return 1.0
    return max(0.1, min(1.0, log(place_of_stem(word) / _EVERYDAY) / log(UNLISTED / _EVERYDAY)))


def _weight_of(words: Collection[str]) -> float:
    return sum(map(_weight, words))


class AmendmentEvidence(Enum):
    # Words of change, such as "no longer"
    EXPLICIT = auto()
    # Another value in the same place, or a denial
    VALUE = auto()
    # The same matter only: both may be true, and a reader wants the newer first
    NEAR = auto()


def amendment(older: TitledText, newer: TitledText) -> AmendmentEvidence | None:
    """Return why a newer text holds instead of an older one; None if nothing shows it.

    Args:
        older: an entry or a message.
        newer: one that was written later.
    """
    before, after = _parsed(older), _parsed(newer)
    if before.is_long or after.places - before.places or CHANGELOG.match(newer.title.lower()):
        return None
    couples = list(product(before.sentences, after.first))
    have_other_titles = _have_other_titles(before, after)
    is_section = older.is_section or newer.is_section
    if not newer.is_section and any(_is_explicit(before, after, *couple) for couple in couples):
        return AmendmentEvidence.EXPLICIT
    is_elsewhere = have_other_titles or before.places != after.places
    if not is_elsewhere and any(_is_denied(*couple) or _is_other_value(before, after, *couple) for couple in couples):
        return AmendmentEvidence.VALUE
    if not is_section and any(_is_near(*couple, have_other_titles=have_other_titles) for couple in couples):
        return AmendmentEvidence.NEAR
    return None


def states_change(text: TitledText) -> bool:
    """Return whether a text has explicit words by which something ends, or another begins to hold."""
    # Without parsing the text, which takes longer
    first = _split(text)[: 1 if _is_long(text) else _FIRST]
    return any(next(changes_in(plain_sentence(sentence)), None) is not None for sentence in first)


# Each title has words that the other text lacks, beside common ones
def _have_other_titles(before: _Parsed, after: _Parsed) -> bool:
    if before.title.isdisjoint(after.title):
        return False
    older_only, newer_only = before.title - after.stems, after.title - before.stems
    # A number beside a word is the value
    has_number = [any(word[0].isdigit() for word in words) for words in (older_only, newer_only)]
    return bool(older_only and newer_only) and has_number[0] == has_number[1]


# The subject is shared if two words are, of which one is unusual, and so large a share of both statements by weight
_LEAST_SHARED, _LEAST_WEIGHT, _LEAST_SHARE, _LEAST_SHARES = 2, 1.0, 0.2, 0.75
# In texts of so many sentences, a smaller share is enough
_SHORT, _LEAST_OF_SHORT = 2, 0.5
# Share of the older statement that counts where the newer title has the older one
_OF_SAME_TITLE = 0.5
# Share of the words for what no longer holds that the older text has
_LEAST_OLD = 0.6
# Sentences of a newer text of which one may have the words of change
_FIRST = 3


def _is_explicit(before: _Parsed, after: _Parsed, earlier: _Sentence, later: _Sentence) -> bool:
    shared = earlier.titled & after.stems
    if not later.states_change or len(shared) < _LEAST_SHARED or shared.isdisjoint(later.stems):
        return False
    weight = _weight_of(shared)
    # Both say what something is for
    have_purposes = bool(earlier.purposes and later.purposes)
    if have_purposes and earlier.purposes.isdisjoint(later.stems) and later.purposes.isdisjoint(earlier.stems):
        return False
    share_of_newer = weight / later.weight
    share_of_older = weight / earlier.weight
    if before.title and before.title <= after.title:
        share_of_older = max(share_of_older, _OF_SAME_TITLE)
    is_short = max(len(before.sentences), len(after.sentences)) <= _SHORT
    is_same = weight >= _LEAST_WEIGHT and min(share_of_newer, share_of_older) >= _LEAST_SHARE
    is_same = is_same and share_of_newer + share_of_older >= (_LEAST_OF_SHORT if is_short else _LEAST_SHARES)
    if not is_same:
        return False
    subject = earlier.titled
    if not before.title.isdisjoint(earlier.stems):
        subject = before.title
    if any(not words or words & subject for words in later.changed):
        return True
    return any(_weight_of(words & before.stems) >= _LEAST_OLD * _weight_of(words) > 0 for words in later.ended)


# Share of the older text by weight that both sentences share
_LEAST_MAIN = 0.25


def _is_other_value(before: _Parsed, after: _Parsed, earlier: _Sentence, later: _Sentence) -> bool:
    if not (earlier.is_plain and later.is_plain):
        return False
    if not before.title.isdisjoint(after.title) and len(earlier.quantities) == len(later.quantities) == 1:
        [(number, unit)], [(other_number, other_unit)] = earlier.quantities, later.quantities
        if unit == other_unit and number != other_number:
            return True
    if _weight_of(earlier.titled & later.titled) < _LEAST_MAIN * before.weight:
        return False
    common_titles = len(before.title & after.title)
    return any(_differ_in_value(*parts, common_titles) for parts in product(_parts(earlier), _parts(later)))


# The clauses of a sentence, and the whole
def _parts(sentence: _Sentence) -> list[Sequence[_Token]]:
    if len(sentence.clauses) < 2:
        return list(sentence.clauses)
    return [*sentence.clauses, list(chain.from_iterable(sentence.clauses))]


# Words of a denial, and the share of both sentences by weight that they have in common besides
_MOST_DENIED, _OF_SUBJECT = 3, 0.4


# One says that something is not so, all words of which the other has without a negation
def _is_denied(earlier: _Sentence, later: _Sentence) -> bool:
    if not (earlier.is_plain and later.is_plain):
        return False
    for denial, claim in ((earlier, later), (later, earlier)):
        for denied in denial.denied:
            if claim.denied or not denied or len(denied) > _MOST_DENIED or not denied <= claim.stems:
                continue
            if denial.stems <= denied and len(denied) > 1:
                return True
            shorter = min(_weight_of(earlier.titled - denied), _weight_of(later.titled - denied))
            if _weight_of((earlier.titled & later.titled) - denied) >= _OF_SUBJECT * shorter > 0:
                return True
    return False


# Weight of the words that two statements share if they are on the same matter, and their share of the shorter one
_OF_MATTER, _SHARE_OF_MATTER = 2.4, 0.4


def _is_near(earlier: _Sentence, later: _Sentence, *, have_other_titles: bool) -> bool:
    shared = _weight_of(earlier.titled & later.titled)
    if later.states_change:
        return shared >= _LEAST_WEIGHT
    is_much = shared >= max(_OF_MATTER, _SHARE_OF_MATTER * min(earlier.weight, later.weight))
    return is_much and not later.is_open and not have_other_titles


# Equal words of two clauses, with those of their titles, and words of a value
_LEAST_EQUAL, _LONGEST_VALUE = 2, 3


def _differ_in_value(older: Sequence[_Token], newer: Sequence[_Token], common_titles: int) -> bool:
    """Return whether two clauses are equal but for one value."""
    matcher = SequenceMatcher(None, [token.stem for token in older], [token.stem for token in newer], autojunk=False)
    equal = common_titles
    values = 0
    tail: Sequence[_Token] = ()
    for kind, first, last, start, end in matcher.get_opcodes():
        before, after = older[first:last], newer[start:end]
        if kind == "equal":
            equal += last - first
        elif _are_opposite(before, after):
            # Opposites say more than other values
            values += 1
            equal += len(before) == len(after)
        elif kind == "replace":
            is_last = first > 0 and (last, end) == (len(older), len(newer))
            is_value = _are_alternatives(older[:first], before, after) or (is_last and _happen_once(before, after))
            if not is_value:
                return False
            values += 1
        elif not values or last < len(older) or end < len(newer):
            return False
        else:
            tail = after[:1]
    is_narrower = any(token.preposition in _QUALIFIERS for token in tail)
    return values == 1 and equal >= _LEAST_EQUAL and not is_narrower


# One has a negation that the other lacks, or they are such as always and never
def _are_opposite(before: Sequence[_Token], after: Sequence[_Token]) -> bool:
    words = [token.word for token in (*before, *after)]
    return (len(words) == 1 and words[0] in _NEGATIONS) or (len(before) == 1 and frozenset(words) in _OPPOSITES)


# Words of which one thing may have several objects, and those before names that are usual words: use alpine
def _happen_once(before: Sequence[_Token], after: Sequence[_Token]) -> bool:
    is_short = max(len(before), len(after)) <= _LONGEST_VALUE
    return is_short and before[0].preposition == after[0].preposition and before[0].preposition in _ONCE


_VERBS = "define contain support include export provide accept offer handle list".split()
_SHARING = frozenset([*_VERBS, *(f"{verb}s" for verb in _VERBS)])
_CHOOSING = frozenset(map(_stem, "use prefer choose pick default keep".split()))


def _are_alternatives(start: Sequence[_Token], before: Sequence[_Token], after: Sequence[_Token]) -> bool:
    if not start or not _SHARING.isdisjoint(token.word for token in start):
        return False
    if start[-1].stem in _CHOOSING and len(before) == len(after) == 1:
        return True
    numbers = [{bool(_NUMBER.match(token.word)) for token in tokens} for tokens in (before, after)]
    # A name with its number is another thing with a value of its own
    if True in numbers[0] | numbers[1] and (len(before) != len(after) or numbers[0] == numbers[1] == {True, False}):
        return False
    return max(len(before), len(after)) <= _LONGEST_VALUE and all(token.is_value for token in (*before, *after))
