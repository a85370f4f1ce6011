"""Find what a text claims about code: names, values and words that it shares with lines of a file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from memories.search.snippets import UNLISTED, place_in_english
from memories.search.text import COMMON_WORDS
from memories.validity.definitions import Definition
from memories.validity.working_files import (
    LITERALS,
    MAX_LINE,
    TOKEN,
    WorkingFile,
    number_form,
    stem,
    tokens_of_code,
    words_of_code,
)

# Weights of words: names of code, values, names of products and other words
NAME, VALUE, PROPER, PLAIN, VAGUE = 2.0, 1.9, 1.5, 1.0, 0.5
CODE_SPAN = re.compile(r"```.*?```|``[^`\n]+``|`[^`\n]+`", re.DOTALL)
# A sign that a name is one of code: capitals inside, underscores, members
SIGN_OF_CODE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|^_+[a-z]|[A-Z]{2,}[a-z]{2}|[a-z]\d")
_BELOW_20 = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen""".split()
_TENS = "ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBERS = dict(zip(_TENS, range(10, 100, 10), strict=True)) | {word: number for number, word in enumerate(_BELOW_20)}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000}
_NUMBER_WORD = f"(?:{'|'.join([*_NUMBERS, *_SCALES])})"
_NUMBER_WORDS = re.compile(rf"\b{_NUMBER_WORD}(?:(?:[ -]|(?<=hundred) and ){_NUMBER_WORD}){{0,8}}\b", re.IGNORECASE)
_UNIT = (
    r"(ms|milliseconds?|s|secs?|seconds?|min|minutes?|h|hours?|days?|weeks?|%|percent|[kmg]i?b"
    r"|(?:kilo|mega|giga|kibi|mebi|gibi)bytes?)\b"
)
_QUANTITY = re.compile(rf"(\d[\d_,]*(?:\.\d+)?)[ -]?{_UNIT}")
_FACTORS = {
    "s": (1_000,), "m": (60, 60_000), "h": (60, 3_600, 3_600_000), "d": (24, 1_440, 86_400, 86_400_000),
    "w": (7, 168, 604_800), "k": (1_000, 1_024), "g": (1_024, 2**30), "%": (0.01,), "p": (0.01,),
    "ms": (0.001,), "mb": (1_024, 1_000_000, 2**20),
}  # fmt: skip
# Words of nearly all programs
_VAGUE = frozenset(
    map(
        stem,
        """api app application argument array async base block body boolean build cache call check class client code
        column command common config configuration content context count create custom data database date default
        delete dependency description directory disabled document documentation empty enabled end entry error event
        example exception exit export field file filter flag folder format function generate global handle handler
        header host id import index info input instance integer interface internal item key label language layer length
        level library line link list load local lock log main map match message meta method mode model module name node
        null number object open option order output package page parameter parse part path pattern place plugin point
        port prefix print process program project property public query range raw read record reference release remove
        repository request require reset resource response result return root row rule run save schema scope script
        search section select send server service session setting shared size source stack start state static status
        step stop store string style support sync system table tag target task template test text time title token tool
        tree type unit update url user valid value variable version view void warning word write first last two three
        all no code new line""".split(),
    )
)
_COMMON_STEMS = frozenset(map(stem, COMMON_WORDS))
_MAX_CLAIMS, _MAX_WORDS = 5, 200


class Words(NamedTuple):
    """Words of a text in the form that code has, with their weights and the numbers of their sentences."""

    weights: dict[str, float]
    sentences: dict[str, set[int]]
    # Names of code and of products, by their form or their capitals
    names: set[str]
    # Pieces of code, such as ``retry=None``
    pieces: list[str]

    def are_together(self, word: str, other: str) -> bool:
        return not self.sentences[word].isdisjoint(self.sentences[other])


def words_of_text(text: str, *, is_note: bool = True) -> Words:
    """Return the words of a text, without the numbers of headings and list items.

    Args:
        text: an entry, or what of it is about a file.
        is_note: whether each name in it counts; in a document, only what is marked as code, or has the form of it.
    """
    text = _LONG_RUN.sub(" ", text)
    words = Words({}, {}, set(), pieces_of_code(text, in_prose=is_note))
    for number, sentence in enumerate(_SENTENCE.split(_NUMBERING.sub("", text))):
        for word, weight, is_capital in _weighted(sentence):
            if weight == NAME or (weight == PROPER and is_capital):
                words.names.add(word)
            if weight == PROPER and not is_note:
                weight = PLAIN  # noqa: PLW2901
            if weight and (len(word) > 1 or word.isdigit()):
                words.weights[word] = max(words.weights.get(word, 0), weight)
                words.sentences.setdefault(word, set()).add(number)
        if len(words.weights) > _MAX_WORDS:
            break
    return words


# Such as a key or an image, which patterns would be slow on
_LONG_RUN = re.compile(r"(?:\w|[!-~]){200,}")
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z`*\[(\"'-])|\n\s*\n|\n(?=\s*[-*|])|\s\|\s")
_NUMBERING = re.compile(
    r"^[ \t]*#*[ \t]*\d+[.)][ \t]|#\d+|\b(?:decisions?|issues?|[Pp][Rr]|step) \[?\d+\]?", re.MULTILINE
)


# Words with their weights, and whether each has a capital that is not that of the sentence
def _weighted(sentence: str) -> Iterator[tuple[str, float, bool]]:
    sentence = _NUMBER_WORDS.sub(_in_digits, sentence)
    for span in CODE_SPAN.findall(sentence):
        for token in TOKEN.findall(span):
            yield number_form(token) if token[0].isdigit() else token.lower(), _weight_in_code(token), True
    prose = CODE_SPAN.sub(" `", sentence)
    for match in TOKEN.finditer(prose):
        token = match[0]
        lowered = token.lower()
        if token[0].isdigit():
            yield number_form(token), VALUE, False
        elif SIGN_OF_CODE.search(token):
            yield lowered, NAME, True
        else:
            word = lowered if lowered in LITERALS else stem(token)
            is_first = not prose[: match.start()].strip(" *_(")
            yield word, _weight_in_prose(token, is_first=is_first), not (is_first or token.islower())
    for clause in re.split("[,;:.]", sentence):
        if _SWITCH.search(clause):
            yield "false" if _NEGATION.search(clause) else "true", VAGUE, False
    for number, unit in _QUANTITY.findall(sentence.lower()):
        yield from ((other, VALUE, False) for other in _conversions(number, unit))


def _conversions(number: str, unit: str) -> list[str]:
    kind = unit[0]
    if kind == "m" and not unit.startswith("min"):
        kind = "mb" if "b" in unit else "ms"
    value = float(re.sub("[_,]", "", number))
    return [f"{value * factor:.15g}" for factor in _FACTORS[kind]]


# Whether something is on
_SWITCH = re.compile(r"\b(?:by default|enabled|disabled)\b", re.IGNORECASE)
_NEGATION = re.compile(r"\b(?:not|no|never|off|disabled|without)\b|n't\b", re.IGNORECASE)


# ``250000`` for "two hundred and fifty thousand"; "one" is a number before a unit
def _in_digits(match: re.Match[str]) -> str:
    words = match[0].lower().replace("-", " ").split()
    if words == ["one"] and not re.match(f" {_UNIT}", match.string[match.end() :]):
        return match[0]
    total = group = 0
    for word in words:
        if word == "hundred":
            group = max(group, 1) * 100
        elif word in _SCALES:
            total, group = total + max(group, 1) * _SCALES[word], 0
        else:
            group += _NUMBERS.get(word, 0)
    return str(total + group)


def _weight_in_code(token: str) -> float:
    if token[0].isdigit() or token.lower() in LITERALS:
        return VALUE
    if is_vague(token) or len(token) < 3:
        return VAGUE
    return NAME


def _weight_in_prose(token: str, *, is_first: bool) -> float:
    lowered = token.lower()
    if stem(token) in _COMMON_STEMS or len(token) < 2:
        return 0
    if lowered in LITERALS or stem(token) in _VAGUE:
        return VAGUE
    if lowered.isascii() and place_in_english(lowered) == UNLISTED:
        return PROPER
    if len(token) < 3:
        return 0
    has_capital = token[0].isupper() and not is_first
    return PROPER if has_capital else PLAIN


# A call with its arguments, a value with its name, a member
_PIECE = re.compile(
    r"[\w.:]+(?:\([^()\s]{0,40}(?:\([^()\s]{0,20}\))?[^()\s]{0,20}\)\.\w+)+\([^()\s]{0,40}(?:\([^()\s]{0,20}\))?\)"
    r"|\w+(?:\.\w+)+\(\)|[\w.]+\([^()\s]{1,40}\)|[\w.]+={1,2}[\w.\"'-]+|[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w+)+"
    r"|(?<![\w-])--?[a-z][\w-]*[= ][\w./-]+|\w+(?:-\w+)+"
)
_MOST_PIECES, _LONGEST_PIECE = 20, 80
_PRIVATE = re.compile(r"passw|secret|token|credential|api_?key|[\"'][^\"']{20}", re.IGNORECASE)


def pieces_of_code(text: str, *, in_prose: bool) -> list[str]:
    """Return what a text quotes of code beyond single names."""
    pieces = [span.strip("`").strip() for span in CODE_SPAN.findall(text)]
    pieces = [piece for piece in pieces if re.search(r"\w\W+\w", piece)]
    if in_prose:
        pieces += _PIECE.findall(CODE_SPAN.sub(" ", text))
    fit = [piece.rstrip(".") for piece in pieces if len(piece) <= _LONGEST_PIECE and not _PRIVATE.search(piece)]
    return list(dict.fromkeys(fit))[:_MOST_PIECES]


class Claim(NamedTuple):
    """Words that lines beside each other have, or a piece of code between backticks."""

    text: str
    line: int
    score: float
    # A value that many lines have: a text means one of them
    is_weak: bool = False


def claims_about(words: Words, file: WorkingFile, first: int = 0, last: int = 0) -> list[Claim]:
    """Return what a text with these words claims about a file or some of its lines, the surest first."""
    lines: dict[int, list[tuple[float, str]]] = {}
    for word, weight in words.weights.items():
        within = [number for number in file.places.get(word, ()) if not last or first <= number <= last]
        rarity = min(1, _FEW_LINES / max(1, len(within)))
        for number in within[:_MOST_LINES]:
            lines.setdefault(number, []).append((weight * rarity, word))
    claims: dict[str, Claim] = {}
    for piece in words.pieces:
        numbers = file.lines_of(piece, first, last)
        if numbers:
            claim = _claim_of_piece(piece, numbers, lines, words)
            claims[claim.text] = claim
    for number in sorted(lines):
        matches = sorted(lines[number], reverse=True)
        for claim in (*_whole_line(number, file, words), *_claims_of_line(number, matches, file, words)):
            key = "" if claim.is_weak else claim.text
            if key not in claims or claims[key].score < claim.score:
                claims[key] = claim
    return _best(list(claims.values()))


_OF_PIECE, _OF_LINE = 3.6, 3.5


# A piece of code that more than one line has goes with another name of one line
def _claim_of_piece(piece: str, numbers: list[int], lines: dict[int, list[tuple[float, str]]], words: Words) -> Claim:
    in_piece = words_of_code(piece)
    for number in numbers if len(numbers) > 1 else ():
        for _, word in lines.get(number, ()):
            if words.weights[word] >= PROPER and word not in in_piece:
                return Claim(f"`{piece}` {word}", number, _OF_PIECE)
    return Claim(f"`{piece}`", numbers[0], _OF_PIECE)


# The share and the number of the words of a line that a text has which states just that; without a value more, of
# several lines fewer
_SHARE, _SHARE_WITHOUT_VALUE, _SHARE_OF_LINES, _LEAST_WORDS = 0.75, 0.9, 0.5, 3
_HAS_VALUE = re.compile(r"[\"']|\b\d")


# A line that the text has nearly all words of has to stay as it is
def _whole_line(number: int, file: WorkingFile, words: Words) -> list[Claim]:
    line = file.lines[number - 1].strip()
    if len(line) > _LONGEST_PIECE or _PRIVATE.search(line) or "`" in line:
        return []
    share = _SHARE if _HAS_VALUE.search(line) else _SHARE_WITHOUT_VALUE
    return [Claim(f"`{line}`", number, _OF_LINE)] if _has_most(words, line, share) else []


def _has_most(words: Words, code: str, share: float) -> bool:
    of_code = set(tokens_of_code(code)) - _KEYWORDS
    return len(of_code.intersection(words.weights)) >= max(_LEAST_WORDS, share * len(of_code))


def is_vague(name: str) -> bool:
    """Return whether a name is one that many programs have."""
    return stem(name) in _VAGUE or name.lower() in COMMON_WORDS


def is_stated(words: Words, file: WorkingFile, first: int, last: int) -> bool:
    """Return whether a text has most words of some lines, so that it states all of them."""
    return _has_most(words, " ".join(file.lines[first - 1 : last]), _SHARE_OF_LINES)


_KEYWORDS = frozenset(
    "if else elif for in not is and or return def class func fn let const var self this type struct pub enum except try"
    " catch raise throw while switch case import from".split()
)


# Lines with a word that are compared, and those of a word that tells all that it can
_MOST_LINES, _FEW_LINES = 400, 3


def _is_value(word: str) -> bool:
    return word[0].isdigit() or word in LITERALS


# Characters of a number that says enough by itself, such as 503 or 0.5
_LONG_VALUE = 3


# What the line assigns; a value with a name or word of its sentence; a name; two words of a sentence
def _claims_of_line(number: int, matches: list[tuple[float, str]], file: WorkingFile, words: Words) -> list[Claim]:
    weights = words.weights
    names = [(score, word) for score, word in matches if not _is_value(word)]
    assigned = _assignments(file.lines[number - 1], words, _SHARE_OF_NAME)
    claims = [Claim(piece, number, score, value in LITERALS) for value, (piece, score) in assigned.items()]
    for score, value in matches:
        if not _is_value(value) or value in assigned:
            continue
        is_weak = value in LITERALS or value in "01"
        least = NAME if is_weak else PLAIN
        together = (pair for pair in names if weights[pair[1]] >= least and words.are_together(value, pair[1]))
        if partner := next(together, None):
            claims.append(Claim(f"{partner[1]} {value}", number, partner[0] + _OF_VALUE))
        elif len(value) >= _LONG_VALUE and score == VALUE:
            claims.append(Claim(value, number, score))
    claims += [Claim(word, number, score) for score, word in names if weights[word] >= PROPER]
    for (_, word), (score, other) in pairwise(names):
        if score >= PLAIN and weights[word] < PROPER and words.are_together(word, other):
            claims.append(Claim(f"{word} {other}", number, PLAIN))
    return claims


# ``name = value`` or ``name: value``
_ASSIGNED = re.compile(r"([A-Za-z_][\w-]*)[\"']?[ \t]*(?::[^=\n\"]{0,80}?(?==))?([=:])[ \t]*([\"']?)(\w[\w.]*)")
_OF_VALUE = 1.5
# In a file that was read or is named, and anywhere
_SHARE_OF_NAME, _SHARE_ANYWHERE = 0.3, 0.5


# Values that a sentence has with a share of the parts of the names that the line gives them
def _assignments(line: str, words: Words, share: float) -> dict[str, tuple[str, float]]:
    assigned: dict[str, tuple[str, float]] = {}
    for name, sign, quote, spelling in _ASSIGNED.findall(line[:MAX_LINE]):
        value, *further = tokens_of_code(spelling)
        if value not in words.weights or further or _PRIVATE.search(name):
            continue
        of_name = words_of_code(name)
        in_name = [word for word in of_name if word in words.weights and words.are_together(value, word)]
        score = sum(words.weights[word] for word in in_name)
        is_named = name.lower() in in_name or len(in_name) >= share * len(of_name - {name.lower()})
        if score and is_named and (_is_value(value) or (quote and words.weights[value] >= PLAIN)):
            assigned[value] = f"`{name}{sign}{spelling}`", score + _OF_VALUE
    return assigned


def states(line: str, in_line: Collection[str], words: Words) -> bool:
    """Return whether a line states what a sentence of a text does: a value of a name, or names beside each other.

    Args:
        line: of code, or of a configuration.
        in_line: words of the text that it has.
        words: of the text.
    """
    if _assignments(line, words, _SHARE_ANYWHERE):
        return True
    telling = [word for word in in_line if not _is_value(word) and words.weights[word] >= PLAIN]
    stated = [word for word in in_line if word in words.names or (_is_value(word) and len(word) > 1)]
    return any(word != partner and words.are_together(word, partner) for word in stated for partner in telling)


def value_of_name(line: str, name: str) -> list[str]:
    """Return a claim that a name has the value that a line gives it; none if it does not end there."""
    _, _, piece = line.strip().partition(name)
    piece = f"{name}{piece}".rstrip(" ;,")
    is_whole = "=" in piece and piece.count("(") == piece.count(")") and not piece.endswith(("{", "[", "(", "="))
    if not is_whole or len(piece) > _LONGEST_PIECE or "`" in piece or _PRIVATE.search(piece):
        return []
    return [f"`{piece}`"]


def word_within(words: Words, file: WorkingFile, definition: Definition) -> list[str]:
    """Return the word that a text shares with the body of a definition and that tells the most; none if it is none."""
    in_name = words_of_code(definition.name)
    places: dict[str, int] = {}
    for word in words.weights:
        lines = [line for line in file.places.get(word, ()) if definition.first <= line <= definition.last]
        if lines and word not in in_name and not _is_value(word):
            places[word] = len(lines)
    return sorted(places, key=lambda word: (-words.weights[word], places[word], word))[:1]


def _best(claims: list[Claim]) -> list[Claim]:
    claims.sort(key=lambda claim: (-claim.score, claim.line))
    chosen: list[Claim] = []
    for claim in claims:
        if not any(set(claim.text.split()) <= set(better.text.split()) for better in chosen):
            chosen.append(claim)
    return chosen[:_MAX_CLAIMS]
