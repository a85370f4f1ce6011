"""Find secret values that are already known again: in the same text, in its event, and in later events of a store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from memoryhub.core.secrets.plausible import is_identifier, is_mixed, is_sample, looks_random, matches, reads_as_words
from memoryhub.core.secrets.value_rules import is_plain

RULE = "repeated-secret"
_SHORTEST, _LONGEST = 8, 200
# From this length on, a value is masked also inside a longer word.
_INSIDE_WORDS = 16
# With more values than this, whole words are compared instead of searching the text for each value.
_MOST_SEARCHED = 64
_DIGEST_BYTES = 16
# Signs of passwords, which names do not have.
_TYPED = rb"[!$%^&*]"
# Letters and digits in a row, from which on a value that is no words is generated.
_UNBROKEN = 14
_APART = b"\"'`<>,;(){}[]\\|\t\r\n" + bytes(range(128, 256))
_PARTS = b"=:/@&?#"
# Between a name and its value, which may have slashes
_SIGNS = b"=&?"
_ENDS = b".,;:!?*_"
_DIGITS = b"0123456789"


def _spaced_out(signs: bytes) -> bytes:
    return bytes.maketrans(signs, b" " * len(signs))


_SPLITS = [_spaced_out(_APART + signs) for signs in (b"", _SIGNS, _PARTS)]

Place = tuple[int, int, str]


# The values to find again, each with its type: as they are, or by their keyed digest. Equal only to itself.
@dataclass(frozen=True, slots=True, eq=False)
class Known:
    values: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    key: bytes = b""

    def type_of(self, value: str) -> str | None:
        found = self.values.get(value)
        return found or (self.digests.get(digest(value, self.key)) if self.digests else None)


NOTHING_KNOWN = Known()


def digest(value: str, key: bytes) -> str:
    """Return the keyed digest under which a store remembers a secret."""
    return hashlib.blake2b(value.encode(), key=key, digest_size=_DIGEST_BYTES, person=b"secret").hexdigest()


def is_repeatable(value: str) -> bool:
    """Return whether a value is so unlikely by chance that it is the same secret wherever it occurs."""
    if not _may_repeat(value) or any(c.isspace() for c in value):
        return False
    made = is_mixed(value) or not value.isalnum() or (looks_random(value) and not reads_as_words(value))
    return made and not is_plain(value) and not is_sample(value)


def is_memorable(value: str) -> bool:
    """Return whether a store remembers the value: no digest, UUID or name such as ``gpt-4o-mini`` or ``Python3.11``."""
    return is_repeatable(value) and not is_identifier(value) and not _may_be_name(value)


def _may_be_name(value: str) -> bool:
    # Names of models, versions and hosts are a few words and numbers; generated values change after a letter or two.
    if matches(_TYPED, value) and is_mixed(value):
        return False
    pieces, size = sum(_begins_piece(before, c) for before, c in pairwise(" " + value)), len(value)
    if pieces * 5 >= size * 3 or (pieces > 5 and pieces * 2 >= size):
        return False
    shortest = _UNBROKEN if pieces < 5 else _SHORTEST
    parts = "".join(c if c.isalnum() else " " for c in value).split()
    return not any(len(part) >= shortest and looks_random(part) and not reads_as_words(part) for part in parts)


def _begins_piece(before: str, c: str) -> bool:
    if c.isdigit():
        return not before.isdigit()
    return c.isalpha() and (not before.isalpha() or (c.isupper() and before.islower()))


def _may_repeat(value: str) -> bool:
    return _SHORTEST <= len(value) <= _LONGEST and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def repeats(text: str, known: Known, values: Mapping[str, str]) -> Iterator[Place]:
    """Yield where known values occur in the text, with their types; places may overlap.

    Args:
        text: the text to search.
        known: values of the event and of the store.
        values: the values found in the text itself.
    """
    searched = {**known.values, **values}
    if len(searched) > _MOST_SEARCHED or known.digests:
        wanted = Known(searched, known.digests, known.key)
        searched = {**(searched if len(searched) <= _MOST_SEARCHED else {}), **_among_words(text, wanted)}
    for value, kind in searched.items():
        yield from ((start, start + len(value), kind) for start in _places(text, value))


def _among_words(text: str, known: Known) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in _candidates(text):
        kind = known.type_of(word)
        if kind is not None:
            found[word] = kind
    return found


def _candidates(text: str) -> Iterator[str]:
    # On bytes and without a call per character: this reads every text of a store that has seen a secret.
    data = text.encode()
    words = {word for split in _SPLITS for word in data.translate(split).split()}
    likely = [word for word in words if _SHORTEST <= len(word) <= _LONGEST and _is_mixture(word)]
    return (word.decode() for word in {*likely, *(word.strip(_ENDS) for word in likely)})


def _is_mixture(word: bytes) -> bool:
    rest = word.translate(None, _DIGITS)
    return len(rest) < len(word) and rest.lower() != rest.upper()


def _places(text: str, value: str) -> Iterator[int]:
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        if len(value) >= _INSIDE_WORDS or not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum()):
            yield start
        start = text.find(value, end)
