"""Forms in which people write secrets, each filled with generated values: labelled texts from a fixed seed.

``python -m benchmarks.quality.secrets.forms`` prints them as JSON lines for ``benchmarks quality --secrets``.

The forms follow documentation, configuration files, shell sessions and chats in public repositories; the text is our
own. ``half`` splits them by a checksum of the form, so all values of a form are in one half. Rules may be changed after
the misses of the half ``a``; of the half ``b``, only the totals are read.
"""

from __future__ import annotations

import base64
import json
import random
import string
import sys
import zlib
from collections.abc import Callable, Iterator

from benchmarks.quality.secrets.form_lines import FORMS
from benchmarks.quality.secrets.samples import Sample

_SEED = 53
_VALUES_OF_A_FORM = 5
_WORDS = "river maple stone winter amber falcon harbor meadow copper violet thunder pixel garden silver rocket".split()
_SIGNS = "!@#$%^&*(-_=+)"


def _made(chance: random.Random, alphabet: str, size: int) -> str:
    return "".join(chance.choice(alphabet) for _ in range(size))


def _token(chance: random.Random) -> str:
    return _made(chance, string.ascii_letters, 3) + _made(chance, string.ascii_letters + string.digits, 26) + "7Qz"


def _password(chance: random.Random) -> str:
    head = chance.choice(("", "", "Tz4", "k9", "Pq"))
    word = chance.choice(_WORDS).capitalize()
    return head + word + str(chance.randrange(10, 9999)) + chance.choice("!#$_-+") + chance.choice(("", "x", "Rv"))


def _words(chance: random.Random) -> str:
    return "-".join([*chance.sample(_WORDS, 3), str(chance.randrange(100, 9999))])


def _address_password(chance: random.Random) -> str:
    parts = [_made(chance, string.ascii_letters + string.digits, 4) for _ in range(3)]
    return chance.choice("#?/@").join(parts[:2]) + parts[2]


def _base64(chance: random.Random) -> str:
    return base64.urlsafe_b64encode(chance.randbytes(32)).decode()


def _uuid(chance: random.Random) -> str:
    return "-".join(_made(chance, "0123456789abcdef", size) for size in (8, 4, 4, 4, 12))


_KINDS: dict[str, Callable[[random.Random], str]] = {
    "t": _token,
    "h": lambda chance: _made(chance, "0123456789abcdef", 31) + "7",
    "w": _password,
    "l": lambda chance: _made(chance, string.ascii_letters, 24),
    "m": lambda chance: _made(chance, string.ascii_lowercase, 16),
    "n": lambda chance: _made(chance, string.ascii_lowercase, 32),
    "s": lambda chance: _made(chance, string.ascii_lowercase + string.digits + _SIGNS, 50),
    "b": _base64,
    "d": _words,
    "r": _address_password,
    "u": _uuid,
}


def half(form: str) -> str:
    return "ab"[zlib.crc32(form.encode()) % 2]


def form_samples() -> Iterator[tuple[str, Sample]]:
    """Yield the half and a labelled text; its type is the kind of form, its source the form."""
    for group, lines in FORMS.items():
        for line in lines.strip("\n").split("\n"):
            chance = random.Random(f"{_SEED} {line}")  # noqa: S311 - the same values in each run
            kind, form = line.split("|", 1)
            form = form.replace("⏎", "\n")
            for _ in range(_VALUES_OF_A_FORM):
                value = _KINDS[kind](chance)
                count = form.count("{}")
                yield half(line), Sample(form.format(*[value] * max(count, 1)), value, group, line)


def _write() -> None:
    for part, sample in form_samples():
        line = {"text": sample.text, "secret": sample.secret, "type": sample.type, "source": f"forms {part}"}
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    _write()
