"""Find what a text claims about code: names, values and words that it shares with lines of a file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from memories.embeddings.engine import BUNDLED_VOCABULARY
from memories.search.text import COMMON_WORDS
from memories.validity.working_files import LITERALS, WorkingFile, number_form, stem, tokens_of_code, words_of_code

# Weights of words: names of code, values, names of products and other words
NAME, VALUE, PROPER, PLAIN, VAGUE = 2.0, 1.9, 1.5, 1.0, 0.4
CODE_SPAN = re.compile(r"```.*?```|``[^`\n]+``|`[^`\n]+`", re.DOTALL)
# A sign that a name is one of code: capitals inside, underscores, members
SIGN_OF_CODE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|^_+[a-z]|[A-Z]{2,}[a-z]{2}|[a-z]\d")
_TOKEN = re.compile(r"[^\W\d]\w*|\d[\d_,]*(?:\.\d+)*")
_NUMBER_WORDS = dict(
    zip(
        "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty ninety"
        " hundred thousand".split(),
        "2 3 4 5 6 7 8 9 10 11 12 15 20 30 40 50 60 90 100 1000".split(),
        strict=True,
    )
)
_QUANTITY = re.compile(
    r"(\d[\d_,]*(?:\.\d+)?)[ -]?"
    r"(ms|milliseconds?|s|secs?|seconds?|min|minutes?|h|hours?|days?|weeks?|[kKmMgG]i?[bB]|%|percent)\b"
)
_FACTORS = {
    "s": (1_000,), "m": (60, 60_000), "h": (60, 3_600, 3_600_000), "d": (24, 1_440, 86_400, 86_400_000),
    "w": (7, 168, 604_800), "k": (1_000, 1_024), "g": (1_024, 2**30), "%": (0.01,), "p": (0.01,),
}  # fmt: skip
_MEGA = (1_024, 1_000_000, 2**20)
_TRUTH = {"enabled": "true", "disabled": "false"}
# Words of nearly all programs
_VAGUE = frozenset(
    map(
        stem,
        """api app application argument array async base block body boolean build cache call check class client code
        column command common config configuration content context count create custom data database date default
        delete dependency description directory document documentation empty end entry error event example exception
        exit export field file filter flag folder format function generate global handle handler header host id
        import index info input instance integer interface internal item key label language layer length level
        library line link list load local lock log main map match message meta method mode model module name node
        null number object open option order output package page parameter parse part path pattern place plugin
        point port prefix print process program project property public query range raw read record reference
        release remove repository request require reset resource response result return root row rule run save
        schema scope script search section select send server service session setting shared size source stack start
        state static status step stop store string style support sync system table tag target task template test
        text time title token tool tree type unit update url user valid value variable version view void warning
        word write first last two three all no code new line""".split(),
    )
)
_COMMON_STEMS = frozenset(map(stem, COMMON_WORDS))
_MAX_CLAIMS, _MAX_WORDS = 5, 200


class Words(NamedTuple):
    """Words of a text in the form that code has, with their weights and the numbers of their sentences."""

    weights: dict[str, float]
    sentences: dict[str, set[int]]
    # As the text has them
    spellings: dict[str, str]
    # Pieces of code, such as ``retry=None``
    pieces: list[str]

    def are_together(self, word: str, other: str) -> bool:
        return not self.sentences[word].isdisjoint(self.sentences[other])

    def is_name(self, word: str) -> bool:
        """Return whether it is a name of code or of a product, by its form or its capitals."""
        weight, spelling = self.weights[word], self.spellings[word]
        return weight == NAME or (weight == PROPER and not spelling.islower())


def words_of_text(text: str, *, is_note: bool = True) -> Words:
    """Return the words of a text, without the numbers of headings and list items.

    Args:
        text: an entry, or what of it is about a file.
        is_note: whether each name in it counts; in a document, only what is marked as code, or has the form of it.
    """
    words = Words({}, {}, {}, pieces_of_code(text, in_prose=is_note))
    for number, sentence in enumerate(_SENTENCE.split(_NUMBERING.sub("", text))):
        for word, weight, spelling in _weighted(sentence):
            if weight == PROPER and not is_note:
                weight = PLAIN  # noqa: PLW2901
            if weight and (len(word) > 1 or word.isdigit()):
                words.weights[word] = max(words.weights.get(word, 0), weight)
                words.sentences.setdefault(word, set()).add(number)
                words.spellings.setdefault(word, spelling)
        if len(words.weights) > _MAX_WORDS:
            break
    return words


_SENTENCE = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z`*\[(\"'-])|\n\s*\n|\n(?=\s*[-*|])|\s\|\s")
_NUMBERING = re.compile(
    r"^[ \t]*#*[ \t]*\d+[.)][ \t]|#\d+|\b(?:decisions?|issues?|[Pp][Rr]|step) \[?\d+\]?", re.MULTILINE
)


def _weighted(sentence: str) -> Iterator[tuple[str, float, str]]:
    for span in CODE_SPAN.findall(sentence):
        for token in _TOKEN.findall(span):
            yield _whole(token), _weight_in_code(token), token
    prose = CODE_SPAN.sub(" `", sentence)
    for match in _TOKEN.finditer(prose):
        token = match[0]
        lowered = token.lower()
        if token[0].isdigit():
            yield number_form(token), VALUE, token
        elif SIGN_OF_CODE.search(token):
            yield lowered, NAME, token
        elif lowered in _NUMBER_WORDS:
            yield _NUMBER_WORDS[lowered], VALUE, token
        else:
            word = _TRUTH.get(lowered) or (lowered if lowered in LITERALS else stem(token))
            is_first = not prose[: match.start()].strip(" *_(")
            # A capital says nothing at the beginning of a sentence
            yield word, _weight_in_prose(token, is_first=is_first), lowered if is_first else token
    for number, unit in _QUANTITY.findall(sentence):
        for other in _conversions(number_form(number), unit):
            yield other, VALUE, other


def _whole(token: str) -> str:
    return number_form(token) if token[0].isdigit() else token.lower()


def _weight_in_code(token: str) -> float:
    if token[0].isdigit() or token.lower() in LITERALS:
        return VALUE
    if stem(token) in _VAGUE or token.lower() in COMMON_WORDS or len(token) < 3:
        return VAGUE
    return NAME


def _weight_in_prose(token: str, *, is_first: bool) -> float:
    lowered = token.lower()
    if lowered in LITERALS or lowered in _TRUTH:
        return VAGUE
    if stem(token) in _COMMON_STEMS or len(token) < 2:
        return 0
    if stem(token) in _VAGUE:
        return VAGUE
    if not is_english(lowered):
        return PROPER
    if len(token) < 3:
        return 0
    is_proper = token[0].isupper() and not is_first
    return PROPER if is_proper else PLAIN


def is_english(word: str) -> bool:
    """Return whether a word, in lower case, is one of English and no name, as far as the model's vocabulary has it."""
    if not word.isascii():
        return True
    vocabulary = _vocabulary()
    return word in vocabulary or any(
        word.endswith(ending) and word[: -len(ending)] + base in vocabulary for ending, base in _ENDINGS
    )


_ENDINGS = (
    ("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"), ("er", ""), ("er", "e"),
    ("ers", ""), ("ly", ""), ("ise", "ize"), ("ises", "ize"), ("ised", "ize"), ("ising", "ize"), ("izes", "ize"),
    ("ation", "e"), ("able", ""),
)  # fmt: skip


@cache
def _vocabulary() -> frozenset[str]:
    return frozenset(BUNDLED_VOCABULARY.read_text("utf-8").split("\n"))


def _conversions(number: str, unit: str) -> list[str]:
    try:
        value = float(number)
    except ValueError:
        return []
    letter = unit[0].lower()
    factors = _FACTORS.get(letter, ())
    if unit.lower() in ("ms", "millisecond", "milliseconds"):
        factors = (0.001,)
    elif letter == "m" and unit.lower().endswith("b"):
        factors = _MEGA
    return [f"{value * factor:g}" if value * factor < 1e15 else "" for factor in factors]


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


def claims_about(words: Words, file: WorkingFile, first: int = 0, last: int = 0) -> list[Claim]:
    """Return what a text with these words claims about a file or some of its lines, the surest first."""
    lines: dict[int, list[tuple[float, str]]] = {}
    for word, weight in words.weights.items():
        within = [number for number in file.places.get(word, ()) if not last or first <= number <= last]
        rarity = _rarity(len(within))
        for number in within[:_MOST_PLACES]:
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
            if claim.text not in claims or claims[claim.text].score < claim.score:
                claims[claim.text] = claim
    return _best(list(claims.values()))


_OF_PIECE, _OF_LINE = 3.6, 3.5


# A piece of code that more than one line has goes with another name of one line
def _claim_of_piece(piece: str, numbers: list[int], lines: dict[int, list[tuple[float, str]]], words: Words) -> Claim:
    in_piece = words_of_code(piece)
    if len(numbers) > 1:
        for number in numbers:
            names = [
                word for _, word in lines.get(number, ()) if words.weights[word] >= PROPER and word not in in_piece
            ]
            if names:
                return Claim(f"`{piece}` {names[0]}", number, _OF_PIECE)
    return Claim(f"`{piece}`", numbers[0], _OF_PIECE)


# The share and the number of the words of a line that a text has which states just that; without a value more
_SHARE, _SHARE_WITHOUT_VALUE, _LEAST_WORDS = 0.75, 0.9, 3
_HAS_VALUE = re.compile(r"[\"']|\b\d")


# A line that the text has nearly all words of has to stay as it is
def _whole_line(number: int, file: WorkingFile, words: Words) -> list[Claim]:
    line = file.lines[number - 1].strip()
    if len(line) > _LONGEST_PIECE or _PRIVATE.search(line) or "`" in line:
        return []
    of_line = [word for word in tokens_of_code(line) if word not in _KEYWORDS]
    matches = [word for word in of_line if word in words.weights]
    share = _SHARE if _HAS_VALUE.search(line) else _SHARE_WITHOUT_VALUE
    if len(matches) < max(_LEAST_WORDS, share * len(of_line)):
        return []
    return [Claim(f"`{line}`", number, _OF_LINE)]


def is_stated(words: Words, file: WorkingFile, first: int, last: int) -> bool:
    """Return whether a text has most words of some lines, so that it states all of them."""
    of_lines = set(tokens_of_code(" ".join(file.lines[first - 1 : last]))) - _KEYWORDS
    return len(of_lines.intersection(words.weights)) >= max(_LEAST_WORDS, _SHARE_OF_LINES * len(of_lines))


_SHARE_OF_LINES = 0.5
_KEYWORDS = frozenset(
    "if else elif for in not is and or return def class func fn let const var self this type struct pub enum except try"
    " catch raise throw while switch case import from".split()
)


_MOST_PLACES = 40


def _rarity(count: int) -> float:
    if count <= 3:
        return 1.0
    if count <= 10:
        return 0.7
    return 0.4 if count <= _MOST_PLACES else 0.1


def _is_value(word: str) -> bool:
    return word[0].isdigit() or word in LITERALS


# Characters of a number that says enough by itself, such as 503 or 0.5
_LONG_VALUE = 3


# A value with a name or word of its sentence; a name; two words of a sentence
def _claims_of_line(number: int, matches: list[tuple[float, str]], file: WorkingFile, words: Words) -> list[Claim]:
    weights = words.weights
    names = [(score, word) for score, word in matches if not _is_value(word)]
    claims: list[Claim] = []
    for score, value in matches:
        if not _is_value(value):
            continue
        is_weak = value in LITERALS or value in "01"
        least = PROPER if is_weak else PLAIN
        partners = [
            (score, word) for score, word in names if weights[word] >= least and words.are_together(value, word)
        ]
        if not partners and len(value) >= _LONG_VALUE and score == VALUE:
            claims.append(Claim(value, number, score))
        partners = partners or [
            (score, word) for score, word in names if _assignment(word, value, file.lines[number - 1])
        ]
        if partners:
            claims.append(_claim_of_value(partners[0][1], value, number, file, partners[0][0] + 1.5))
    claims += [Claim(_name(word, file, words), number, score) for score, word in names if weights[word] >= PROPER]
    claims += _pairs(number, names, file, words)
    return claims


# A name that the file spells as the text does has to stay a name of its own
def _name(word: str, file: WorkingFile, words: Words) -> str:
    spelling = words.spellings[word]
    is_whole = words.weights[word] == NAME and file.lines_of(spelling)
    return f"`{spelling}`" if is_whole else word


# Two rare words of a sentence, or a name that several lines have with a word of this one
def _pairs(number: int, names: list[tuple[float, str]], file: WorkingFile, words: Words) -> list[Claim]:
    pairs: list[Claim] = []
    for (score, word), (other_score, other) in pairwise(names):
        is_rare = other_score >= PLAIN
        is_name = words.weights[word] >= PROPER and score < words.weights[word]
        if not words.are_together(word, other) or not (is_rare or is_name):
            continue
        if is_rare and words.weights[word] < PROPER:
            pairs.append(Claim(f"{word} {other}", number, PLAIN))
        elif is_name and len(set(file.places[word]).intersection(file.places[other])) <= _FEW_LINES:
            pairs.append(Claim(f"{word} {other}", number, score + 0.5))
    return pairs


_FEW_LINES = 2


# ``name = value`` or ``name: value``
_ASSIGNED = re.compile(r"([A-Za-z_][\w-]*)[\"']?[ \t]*(?::[^=\n]{0,80}?)?([=:])[ \t]*[\"']?(\w[\w.]*)")


def _claim_of_value(word: str, value: str, number: int, file: WorkingFile, score: float) -> Claim:
    piece = _assignment(word, value, file.lines[number - 1])
    return Claim(piece or f"{word} {value}", number, score)


def states(line: str, in_line: Collection[str], words: Words) -> bool:
    """Return whether a line states what a sentence of a text does: a value of a name, or names beside each other.

    Args:
        line: of code, or of a configuration.
        in_line: words of the text that it has.
        words: of the text.
    """
    partners = [word for word in in_line if not _is_value(word)]
    for word in in_line:
        if _is_value(word):
            near = [partner for partner in partners if words.are_together(word, partner)]
            is_clear = len(word) > 1 and any(words.weights[partner] >= PLAIN for partner in near)
            if is_clear or any(_assignment(partner, word, line) for partner in near):
                return True
        elif words.is_name(word):
            telling = [partner for partner in partners if partner != word and words.weights[partner] >= PLAIN]
            if any(words.are_together(word, partner) for partner in telling):
                return True
    return False


# The piece of a line that gives a name with this word the value; "" if there is none
def _assignment(word: str, value: str, line: str) -> str:
    for name, sign, assigned in _ASSIGNED.findall(line):
        form = number_form(assigned) if assigned[0].isdigit() else assigned.lower()
        if form == value and word in words_of_code(name) and not _PRIVATE.search(name):
            return f"`{name}{sign}{assigned}`"
    return ""


def value_of_name(line: str, name: str) -> list[str]:
    """Return a claim that a name has the value that a line gives it; none if it does not end there."""
    _, _, piece = line.strip().partition(name)
    piece = f"{name}{piece}".rstrip(" ;,")
    is_whole = "=" in piece and piece.count("(") == piece.count(")") and not piece.endswith(("{", "[", "(", "="))
    if not is_whole or len(piece) > _LONGEST_PIECE or "`" in piece or _PRIVATE.search(piece):
        return []
    return [f"`{piece}`"]


def _best(claims: list[Claim]) -> list[Claim]:
    claims.sort(key=lambda claim: (-claim.score, claim.line))
    chosen: list[Claim] = []
    for claim in claims:
        if not any(set(claim.text.split()) <= set(better.text.split()) for better in chosen):
            chosen.append(claim)
    return chosen[:_MAX_CLAIMS]
