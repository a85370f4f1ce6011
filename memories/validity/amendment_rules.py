"""Whether a newer text amends an older one: by explicit words on the same subject, or by another value in its place.

Precision comes first: two texts that differ in what they are about, such as staging and production, are both true.
The explicit words are English; texts in other languages are compared by their values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import chain, product
from math import log
from typing import NamedTuple

from memories.search.snippets import UNLISTED, place_in_english, stem
from memories.search.text import COMMON_WORDS, STOP_WORDS, folded

# Characters of a newer text that are read; an older one that is longer says more than one sentence can amend
_READ, _LONGEST = 700, 900


class TitledText(NamedTuple):
    content: str
    title: str = ""


_IS = r"(?:is|are|was|were|has been|have been|had been|got|gets)(?: (?:being|now|finally|completely|all))*"
_ENDED = "gone removed retired abandoned deprecated obsolete outdated replaced superseded discontinued dropped".split()
_CHANGED = (
    "moved migrated switched changed bumped raised lowered increased reduced extended shortened upgraded downgraded "
    "renamed converted reverted reversed moving migrating switching changing raising lowering"
).split()
_HAS_ENDED = f"(?:{'|'.join(_ENDED)}|(?:switched|turned) off|shut down|phased out)"
_HAS_CHANGED = f"(?:{'|'.join(_CHANGED)})"
_OLD = r"(?P<old>.*?)(?= (?:with|by|to|for|in favou?r|as|because|and)\b|$)"


class _Rule(NamedTuple):
    """Words of a clause by which something ends, or another begins to hold.

    The group ``old`` is what no longer holds, ``subject`` is what has changed.
    """

    # The clause has one of these
    words: frozenset[str]
    pattern: re.Pattern[str]


def _rule(words: str | Sequence[str], pattern: str) -> _Rule:
    return _Rule(frozenset(words.split() if isinstance(words, str) else words), re.compile(pattern))


_RULES = [
    _rule("longer", r"(?P<old>.*\bno longer\b.*)"),
    _rule("any anymore", r"(?P<old>.*\b(?:not|no|nothing|nobody|only|\w+n['’]t)\b.*)\b(?:any ?more|any longer)\b"),
    _rule("instead rather place rid", rf"\b(?:instead of|rather than|in place of|rid of) {_OLD}"),
    _rule(
        "replaces replaced replacing replace supersedes superseded superseding",
        rf"\b(?:replac|supersed)(?:es|ed|ing|e) {_OLD}",
    ),
    _rule("stop stopped forget", rf"\b(?:stop(?:ped)? using|forget(?: about)?) {_OLD}"),
    _rule(
        "drop dropped dropping retired retiring",
        rf"(?:^|\b(?:we|i|please|have|has|['’]ve) )(?:drop(?:ped|ping)?|retir(?:ed|ing)) {_OLD}",
    ),
    _rule([*_ENDED, "off", "down", "out"], rf"^(?P<old>.*?) {_IS} {_HAS_ENDED}\b"),
    _rule(_CHANGED, rf"\b{_HAS_CHANGED}\b.*?\bfrom (?P<old>.*?) (?:to|over to|onto) "),
    _rule(_CHANGED, rf"^(?P<subject>.*?) (?:has been|have been|is|are|was|were|got) (?:now )?{_HAS_CHANGED}\b"),
    _rule(
        _CHANGED,
        rf"\b(?:we|we['’](?:ve|re)|we have|i|i['’]ve) (?:now )?{_HAS_CHANGED}\b(?P<subject>.*?)(?: to\b|$)",
    ),
    _rule(_CHANGED, rf"^(?P<subject>(?:\S+ ){{1,6}}){_HAS_CHANGED}\b"),
    _rule(
        "now today as going henceforth onwards",
        r"\bfrom (?:now|today)\b|\bas of\b|\bgoing forward|\bhenceforth|\bonwards",
    ),
    _rule("actually correction scratch wrong", r"^(?:ok |no )?(?:actually|correction|scratch that)\b|\bi was wrong\b"),
    _rule(
        "instead now",
        r"\binstead$|\bnow$|\bwe now\b|\bnow (?:is|are|uses?|runs?|needs?|goes|go|lives?)\b"
        r"|\b(?:is|are|runs?|uses?|goes|go|lives?|needs?|reads?) now\b",
    ),
    _rule("back", r"\bback to\b"),
    _rule("not", rf"^(?:and )?not {_OLD}"),
    _rule("over", rf"\bprefer(?:red)?\b.* over {_OLD}"),
]
# A text with words of change has one of these
CHANGE_WORDS = frozenset().union(*(rule.words for rule in _RULES)) - {
    "as",
    "place",
    "out",
    "off",
    "down",
    "any",
    "not",
    "over",
}
# What is asked or only considered
_OPEN = re.compile(
    r"\?\s*$|^(?:should|could|would|shall|can|may|do|does|did|is|are|what|why|how|if|maybe|perhaps|todo)\b(?! not\b)"
    r"|\b(?:might|maybe|perhaps|would|could|consider(?:ing)?|propos(?:e|al|ed)|plan(?:s|ned|ning)? to|todo|wonder"
    r"|think about|discuss(?:ed|ing)?|whether|decided against|in case)\b"
)
# A single act, which says nothing of what holds
_ACT = re.compile(
    r"\b(?:i|i['’]ve|i['’]ll|i['’]m|let me|let['’]s) (?:have |now |also |just )*(?!mean|prefer|want|was wrong)[a-z]+"
)
# A line of a list of changes
_CHANGELOG = re.compile(
    r"[-*•+] |(?:done|fix(?:ed|es)?|merged?|add(?:ed|s)?|tested|ran|refactor(?:ed)?|investigated|released|committed"
    r"|pushed|new|improved?|running|thanks|(?:fix|feat|chore|refactor|docs|tests?|perf|build|ci|style|revert)(?:\([^)]*\))?!?:)\b"
)
# Something beside what holds already
_ADDS = re.compile(r"\b(?:too|also|as well|additionally|in addition|besides|another|further|furthermore|both)\b")
_DENIAL = re.compile(
    r"\b(?:not|never|without|cannot|\w+n['’]t) (?P<what>(?:\S+ ){0,4}?\S+?)(?=[,;:]| (?:and|but|or|because|since)\b|$)"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|;\s+|。")
_CLAUSE = re.compile(r",\s+|:\s+|\s[–—-]\s|\s(?=(?:because|since|so that|although|otherwise)\b)")
_PAUSE = re.compile(r"[,;:]\s|[,;:]$")
_TOKEN = re.compile(r"[^\W_][\w.+/%:@&'’~*-]*|[$€£]\d[\d.,]*")
_PART = re.compile(r"[^\W\d_]{3,}|\d+(?:\.\d+)+")
_NUMBER = re.compile(r"[$€£]?\d")
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
# Words that begin a narrower statement
_QUALIFIERS = frozenset("on in for at with during when if while under within inside per".split())
# Two texts that differ in these are both true
_PLACES = frozenset(
    """staging production prod dev development sandbox preview locally ci windows linux macos ios watchos android
    desktop mobile tablet""".split()
)


def _stem(word: str) -> str:
    return stem(word.removesuffix("s").removesuffix("ment"))


class _Token(NamedTuple):
    word: str
    stem: str
    # Whether it is a number, a name or a path
    is_value: bool
    # The word before, if that begins a narrower statement
    qualifier: str


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    # The words that are no stop words, by clause
    clauses: Sequence[Sequence[_Token]]
    stems: frozenset[str]
    # Whether it asks or considers, or is a line of a list of changes
    is_open: bool
    is_act: bool
    adds: bool
    # What no longer holds, and what has changed
    ended: Sequence[frozenset[str]]
    changed: Sequence[frozenset[str]]
    # What it says not to be so, by clause
    denied: Sequence[frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Parsed:
    title: frozenset[str]
    sentences: Sequence[_Sentence]
    # Stems of the whole text
    stems: frozenset[str]
    places: frozenset[str]
    is_long: bool


@lru_cache(maxsize=1024)
def _parsed(text: TitledText) -> _Parsed:
    content = text.content[:_READ]
    is_long = len(text.content) > _LONGEST
    sentences = [_sentence(part) for part in _SENTENCE.split(content) if _TOKEN.search(part)]
    title = _stems(_tokens(text.title))
    stems = title.union(*(sentence.stems for sentence in sentences))
    places = _PLACES.intersection(re.findall(r"\w+", f"{text.title} {content}".lower()))
    return _Parsed(title, sentences, stems, places, is_long)


def _sentence(text: str) -> _Sentence:
    plain = " ".join(folded(text).lower().split()).rstrip(".!")
    clauses = [tokens for part in _CLAUSE.split(text) if (tokens := _tokens(part))]
    stems = frozenset().union(*map(_stems, clauses))
    is_open = bool(_OPEN.search(plain) or _CHANGELOG.match(plain))
    is_act = bool(_ACT.search(plain))
    ended: list[frozenset[str]] = []
    changed: list[frozenset[str]] = []
    if not is_open and len(plain) <= _LONGEST_SENTENCE:
        for groups in _matches(plain):
            if "old" in groups:
                ended.append(_stems(_tokens(groups["old"])) - _COMMON)
            elif not is_act:
                changed.append(_stems(_tokens(groups.get("subject", ""))) - _COMMON)
    denied = [_stems(_tokens(match["what"])) for match in _DENIAL.finditer(plain)]
    return _Sentence(plain, clauses, stems, is_open, is_act, bool(_ADDS.search(plain)), ended, changed, denied)


def _matches(sentence: str) -> Iterator[dict[str, str]]:
    for clause in _PAUSE.split(sentence):
        words = clause.split()
        for rule in _RULES:
            if not rule.words.isdisjoint(words) and (match := rule.pattern.search(clause)):
                yield match.groupdict()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    before = ""
    for match in _TOKEN.finditer(folded(text)):
        name = match[0].rstrip(".:'’/-*~&")
        word = name.lower()
        if word not in STOP_WORDS or word in _NEGATIONS or word in ("on", "off"):
            is_value = bool(_NUMBER.match(name) or _NAME.search(name)) or word in _NUMBERS
            is_value = is_value or (name[:1].isupper() and match.start() > 0) or _is_unusual(word)
            tokens.append(_Token(word, _stem(word), is_value, before))
        before = word if word in _QUALIFIERS else ""
    return tokens


@lru_cache(maxsize=8192)
def _is_unusual(word: str) -> bool:
    return word.isascii() and word.isalpha() and place_in_english(word) == UNLISTED


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
_EVERYDAY = 300


@lru_cache(maxsize=8192)
def _weight(word: str) -> float:
    if not word.isalpha():
        return 1.0
    return max(0.1, min(1.0, log(place_in_english(word) / _EVERYDAY) / log(UNLISTED / _EVERYDAY)))


def _weight_of(words: Collection[str]) -> float:
    return sum(map(_weight, words))


class Replacement(NamedTuple):
    # Whether the newer text has words of change, such as "no longer"
    is_explicit: bool


def amendment(older: TitledText, newer: TitledText) -> Replacement | None:
    """Return how a newer text amends an older one; None if both may be true.

    Args:
        older: an entry or a message.
        newer: one that was written later.
    """
    before, after = _parsed(older), _parsed(newer)
    if before.is_long or after.places - before.places or _CHANGELOG.match(newer.title.lower()):
        return None
    if any(_is_explicit(before, sentence, after) for sentence in _first_of(after)):
        return Replacement(is_explicit=True)
    if not _have_other_titles(before, after) and (_has_other_value(before, after) or _denies(before, after)):
        return Replacement(is_explicit=False)
    return None


def states_change(text: TitledText) -> bool:
    """Return whether a text has explicit words by which something ends, or another begins to hold."""
    return any(sentence.ended or sentence.changed for sentence in _first_of(_parsed(text)))


def _first_of(text: _Parsed) -> Sequence[_Sentence]:
    return text.sentences[: 1 if text.is_long else _FIRST]


# Each title has words that the other text lacks, beside common ones
def _have_other_titles(before: _Parsed, after: _Parsed) -> bool:
    if before.title.isdisjoint(after.title):
        return False
    older_only = before.title - after.stems
    newer_only = after.title - before.stems
    for is_number in (True, False):
        if any(_is_number(word) is is_number for word in older_only) and any(
            _is_number(word) is is_number for word in newer_only
        ):
            return True
    return False


def _is_number(word: str) -> bool:
    return any(character.isdigit() for character in word)


# The subject is shared if two words are, of which one is unusual, and so large a share of both statements by weight
_LEAST_SHARED, _LEAST_WEIGHT, _LEAST_SHARE, _LEAST_SHARES = 2, 1.2, 0.25, 0.66
# Share of the older statement that counts where the newer title has the older one
_OF_SAME_TITLE = 0.5
# Share of the words for what no longer holds that the older text has
_LEAST_OLD = 0.6
# Sentences of a newer text of which one may have the words of change, and their characters
_FIRST, _LONGEST_SENTENCE = 3, 300


def _is_explicit(before: _Parsed, sentence: _Sentence, after: _Parsed) -> bool:
    if not (sentence.ended or sentence.changed):
        return False
    for earlier in before.sentences:
        older = earlier.stems | before.title
        shared = older & after.stems
        weight = _weight_of(shared)
        if len(shared) < _LEAST_SHARED or weight < _LEAST_WEIGHT or shared.isdisjoint(sentence.stems):
            continue
        if _have_other_purposes(earlier, sentence):
            continue
        share_of_newer = weight / _weight_of(sentence.stems | after.title)
        share_of_older = weight / _weight_of(older)
        if before.title and before.title <= after.title:
            share_of_older = max(share_of_older, _OF_SAME_TITLE)
        is_same = min(share_of_newer, share_of_older) >= _LEAST_SHARE
        is_same = is_same and share_of_newer + share_of_older >= _LEAST_SHARES
        if any(_has_old(before, words, is_same=is_same) for words in sentence.ended):
            return True
        if is_same and (len(shared) > _LEAST_SHARED or not _have_other_titles(before, after)):
            subject = _subject_of(before, earlier)
            if any(not words or words & subject for words in sentence.changed):
                return True
    return False


# Both say what something is for
def _have_other_purposes(earlier: _Sentence, sentence: _Sentence) -> bool:
    older = {token.stem for token in chain.from_iterable(earlier.clauses) if token.qualifier == "for"}
    newer = {token.stem for token in chain.from_iterable(sentence.clauses) if token.qualifier == "for"}
    return bool(older and newer) and older.isdisjoint(sentence.stems) and newer.isdisjoint(earlier.stems)


# Whether the older text has what no longer holds: most of it, or all of a name if the subject is not the same otherwise
def _has_old(before: _Parsed, words: frozenset[str], *, is_same: bool) -> bool:
    shared = words & before.stems
    if is_same:
        return bool(shared) and len(shared) >= _LEAST_OLD * len(words)
    return len(shared) == len(words) >= _LEAST_SHARED and _weight_of(shared) >= _LEAST_WEIGHT


# Words of a sentence from its beginning that are taken for its subject
_HEAD = 3


def _subject_of(text: _Parsed, sentence: _Sentence) -> frozenset[str]:
    if text.title and not text.title.isdisjoint(sentence.stems):
        return text.title
    return text.title | _stems([*chain.from_iterable(sentence.clauses)][:_HEAD])


def _has_other_value(before: _Parsed, after: _Parsed) -> bool:
    common_titles = len(before.title & after.title)
    for sentence in _first_of(after):
        if sentence.is_open or sentence.is_act or sentence.adds:
            continue
        for earlier in before.sentences:
            if earlier.is_act or earlier.is_open or not _is_main(before, earlier, sentence, after.title):
                continue
            for one, other in product(_parts(earlier), _parts(sentence)):
                if _differ_in_value(one, other, common_titles):
                    return True
    return False


# The clauses of a sentence, and the whole
def _parts(sentence: _Sentence) -> list[Sequence[_Token]]:
    if len(sentence.clauses) < 2:
        return list(sentence.clauses)
    return [*sentence.clauses, list(chain.from_iterable(sentence.clauses))]


# Words of a denial, and the share of both sentences by weight that they have in common besides
_MOST_DENIED, _OF_SUBJECT = 3, 0.4


# One says that something is not so, all words of which the other has without a negation
def _denies(before: _Parsed, after: _Parsed) -> bool:
    for earlier, later in product(before.sentences, _first_of(after)):
        if any(sentence.is_open or sentence.is_act or sentence.adds for sentence in (earlier, later)):
            continue
        for denial, claim in ((earlier, later), (later, earlier)):
            if claim.denied:
                continue
            for denied in denial.denied:
                if not (0 < len(denied) <= _MOST_DENIED and denied <= claim.stems):
                    continue
                older, newer = earlier.stems | before.title, later.stems | after.title
                shorter = min(_weight_of(older - denied), _weight_of(newer - denied))
                if _weight_of((older & newer) - denied) >= _OF_SUBJECT * shorter > 0:
                    return True
    return False


# Share of the older text by weight that both sentences share
_LEAST_MAIN = 0.25


def _is_main(before: _Parsed, earlier: _Sentence, sentence: _Sentence, title: frozenset[str]) -> bool:
    shared = (earlier.stems | before.title) & (sentence.stems | title)
    return _weight_of(shared) >= _LEAST_MAIN * _weight_of(before.stems)


# Equal words of two clauses, with those of their titles, and words after the value that only one of them has
_LEAST_EQUAL, _TAIL = 2, 4


def _differ_in_value(older: Sequence[_Token], newer: Sequence[_Token], common_titles: int) -> bool:
    """Return whether two clauses are equal but for one value."""
    matcher = SequenceMatcher(None, [token.stem for token in older], [token.stem for token in newer], autojunk=False)
    equal = common_titles
    values = 0
    for kind, first, last, start, end in matcher.get_opcodes():
        before, after = older[first:last], newer[start:end]
        if kind == "equal":
            equal += last - first
        elif _are_opposite(before, after):
            # Opposites say more than other values
            values += 1
            equal += len(before) == len(after)
        elif (
            first
            and kind == "replace"
            and (_are_values(before, after) or _are_choices(older[first - 1], before, after))
        ):
            values += 1
        elif kind == "replace" or not values or last < len(older) or end < len(newer) or _is_narrower(after):
            return False
    return values == 1 and equal >= _LEAST_EQUAL and not any(token.word in _SHARING for token in older)


def _is_narrower(tail: Sequence[_Token]) -> bool:
    return len(tail) > _TAIL or any(token.qualifier for token in tail[:1])


def _are_values(before: Sequence[_Token], after: Sequence[_Token]) -> bool:
    longest = max(len(before), len(after))
    if len(before) != len(after) and any(_NUMBER.match(token.word) for token in (*before, *after)):
        return False
    # A name with its number is another thing with a value of its own
    has_number = {bool(_NUMBER.match(token.word)) for token in before}
    if len(has_number) > 1 and has_number == {bool(_NUMBER.match(token.word)) for token in after}:
        return False
    return longest <= _LONGEST_VALUE and all(token.is_value for token in (*before, *after))


_LONGEST_VALUE = 3
# Words of which one thing may have several objects
_SHARING = frozenset(
    """define defines contain contains support supports include includes export exports provide provides accept accepts
    offer offers handle handles list lists""".split()
)


# One has a negation that the other lacks, or they are such as always and never
def _are_opposite(before: Sequence[_Token], after: Sequence[_Token]) -> bool:
    words = [token.word for token in (*before, *after)]
    return (len(words) == 1 and words[0] in _NEGATIONS) or (len(before) == 1 and frozenset(words) in _OPPOSITES)


# Things that have numbers: exercise 3 and exercise 4
_COUNTED = frozenset(
    """chapter exercise step phase stage part section level issue pr ticket task case figure table page day week sprint
    item option room lesson unit player team group batch round attempt revision""".split()
)
_CHOOSING = frozenset(map(stem, "use uses prefer choose pick default keep".split()))


# Names that are usual words: use alpine, use distroless
def _are_choices(verb: _Token, before: Sequence[_Token], after: Sequence[_Token]) -> bool:
    return verb.stem in _CHOOSING and len(before) == len(after) == 1
