"""Names that the hub derives from text, such as slugs, and how to find those of a text again."""

# Every function that derives a name from a text is here or listed in ``_spellings``, because a redaction of the text
# must find the name too. tests/governance/test_redaction_derived.py searches for the forms.

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Sequence

# Begins the id of a project whose name cannot be written in ASCII
DIGEST_PREFIX = "project-"
# Characters of a file's name
_LONGEST_NAME = 60
# Characters; no name is derived from more
_LONGEST_TEXT = 300
# Characters; a shorter form is a name only as a whole word: "AI" is not in "main"
_SHORTEST_PART = 4
# Letters that have no decomposition
_PLAIN_LETTERS = str.maketrans(
    {"ß": "ss", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "æ": "ae", "Æ": "AE", "đ": "d", "þ": "th"}
)
_WORD = re.compile(r"[^\W_]+")
# What a derived name has between two words, or in the place of an accent: signs of ASCII, a hyphen, an accent. Not all
# signs of Unicode, because each copy of that class takes RE2 some 50 kB.
_SIGN = r"[\x00-/:-@\[-\x60{-\x7f\x{a0}\x{2010}-\x{2015}\x{300}-\x{36f}]"
_BETWEEN, _ACCENT = _SIGN + "{1,3}", _SIGN + "{0,3}"
_UNSPACED = re.compile(r"\S+")
_PATTERN_MEMORY = 256 << 20

# Characters; less of a text at the end of a cut name may be another word
_SHORTEST_CUT = 5
# The end of a topic key or a tag that was cut
_CUT = re.compile(r"~[0-9a-f]{12}(?:~\d+)?\Z|…\Z")
_LONGEST_TAG = 64
# RE2 searches this many names as fast as one
_AT_ONCE = 1_000

Span = tuple[int, int]


def project_slug(name: str) -> str:
    """Return a name as a project id, or "" if too few of its characters can be written in ASCII."""
    plain = unicodedata.normalize("NFKD", name.translate(_PLAIN_LETTERS))
    letters = sum(char.isalnum() for char in plain)
    plain = plain.encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", plain).strip("-._")[:64].rstrip("-._")
    ascii_letters = sum(char.isalnum() for char in plain)
    return slug if ascii_letters * 2 > letters else ""


def project_id_of(name: str) -> str:
    """Return a name as a project id: its slug, or else a digest of it, as for a name in another script; "" for ""."""
    text = unicodedata.normalize("NFC", name).strip()
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    if slug := project_slug(name):
        return slug
    return f"{DIGEST_PREFIX}{digest}" if text else ""


def file_slug(title: str) -> str:
    """Return a title as the name of a file in ASCII, or ""."""
    plain = _in_ascii(title[: 4 * _LONGEST_NAME]).lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST_NAME].strip("-")


def heading_slug(heading: str) -> str:
    """Return a heading as a part of a topic key."""
    return re.sub(r"[^\w]+", "-", heading.lower()).strip("-") or "section"


def _in_ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


class DerivedNames:
    """The names that are derived from some texts: lower case, without accents, with any sign between the words."""

    def __init__(self, texts: Collection[str]) -> None:
        words = {tuple(_WORD.findall(unicodedata.normalize("NFC", text))) for text in texts if _is_short(text)}
        self._words = sorted(words - {()}, key=lambda text: (-len(text), text))
        self._names = _compiled(self._words)
        self._phrases = _compiled([text for text in self._words if len(text) > 1])
        titles = [" ".join(words) for words in self._words]
        self._slugs = {*map(file_slug, titles), *map(heading_slug, titles)}

    def __bool__(self) -> bool:
        return bool(self._words)

    @property
    def landmarks(self) -> list[str]:
        """Strings of which each text with a name has at least one."""
        longest = (max(text, key=len) for text in self._words)
        words = {max(_WORD.findall(form), key=len) for word in longest for form in _spellings(word)}
        return sorted(words | {slug[:_SHORTEST_CUT] for slug in self._slugs if slug})

    @property
    def slugs(self) -> set[str]:
        """The usual names of the texts with several words, which say enough to search files for them."""
        joined = (sign.join(words).lower() for words in self._words if len(words) > 1 for sign in " -_")
        return {name for text in joined for name in (text, _in_ascii(text)) if name}

    def spans(self, text: str, *, is_name: bool) -> list[Span]:
        """Return where the names are.

        Args:
            text: where to search.
            is_name: the text is itself a name, such as a tag or a key. In other texts, a single word counts only in the
                name of a file: "an apple" is not derived from "Apple".
        """
        if is_name:
            return _spans(self._names, text) or self._cut(text)
        spans = _spans(self._phrases, text)
        words = [span for span in _spans(self._names, text) if span not in spans] if ".md" in text else []
        if words:
            files = [match.span() for match in _UNSPACED.finditer(text) if "/" in match[0] and ".md" in match[0]]
            spans += [span for span in words if any(a <= span[0] and span[1] <= b for a, b in files)]
        return sorted(spans)

    # A long name is cut, maybe within the text
    def _cut(self, text: str) -> list[Span]:
        cut = _CUT.search(text)
        if not cut and len(text) != _LONGEST_TAG:
            return []
        end = cut.start() if cut else len(text)
        for slug in self._slugs:
            for size in range(min(len(slug), end), _SHORTEST_CUT - 1, -1):
                if text.endswith(slug[:size], 0, end):
                    return [(end - size, end)]
        return []


def _is_short(text: str) -> bool:
    return len(text) <= _LONGEST_TEXT and "\n" not in text.strip()


# Each way in which the hub writes a word
def _spellings(word: str) -> set[str]:
    lowered = word.lower()
    forms = {lowered, word.casefold(), unicodedata.normalize("NFKC", lowered)}
    forms |= {unicodedata.normalize("NFD", form) for form in forms}
    forms |= {lowered.translate(_PLAIN_LETTERS), project_slug(word)}
    plain = _in_ascii(word).lower()
    if 2 * len(plain) > len(word):
        forms.add(plain)
    return {form for form in forms if _WORD.search(form)}


def _compiled(texts: Sequence[tuple[str, ...]]) -> list[re.Pattern[str]]:
    if not texts:
        return []
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    names = [_BETWEEN.join(map(_any_form, words)) for words in texts]
    batches = (names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE))
    return [re2.compile("|".join(batch), options) for batch in batches]


def _any_form(word: str) -> str:
    import re2

    patterns = []
    for form in sorted(_spellings(word), key=lambda form: (-len(form), form)):
        # A slug has a hyphen for an accent that is a character of its own
        patterns.append("".join(_ACCENT if unicodedata.combining(char) else re2.escape(char) for char in form))
    return f"(?:{'|'.join(patterns)})"


def _spans(patterns: Sequence[re.Pattern[str]], text: str) -> list[Span]:
    matches = (match.span() for pattern in patterns for match in pattern.finditer(text))
    return [span for span in matches if _is_whole(text, *span)]


def _is_whole(text: str, start: int, end: int) -> bool:
    if end - start >= _SHORTEST_PART:
        return True
    before, after = text[start - 1 : start], text[end : end + 1]
    return not before.isalnum() and not after.isalnum()


NO_NAMES = DerivedNames(())
