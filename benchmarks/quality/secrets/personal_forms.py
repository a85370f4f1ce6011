"""Generated personal data in sentences, logs and configuration, and numbers that only look like it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from benchmarks.quality.secrets.samples import Sample

_SEED = 54
_EACH = 60
_SENTENCES = (
    "{}",
    "Contact: {}.",
    "({})",
    "Die Nummer ist {}, bitte notieren.",
    "El dato es {} y nada más",
    'value: "{}"',
    '{{"customer": "{}"}}',
    "2026-11-23 12:00:01 INFO saved {} for order 4711",
    "| Ann | {} | active |",
    "客户：{}。",
)
_PHONE_SENTENCES = ("Tel. {}", "phone: {}", "Mobil: {}", "Téléphone : {}", "call {}", "电话：{}")


def _number(chance: random.Random, size: int) -> str:
    return "".join(str(chance.randrange(10)) for _ in range(size))


def _with_luhn(digits: str) -> str:
    total = sum(sum(divmod(int(d) * (2 if place % 2 == 0 else 1), 10)) for place, d in enumerate(reversed(digits)))
    return digits + str(-total % 10)


def _email(chance: random.Random) -> str:
    name = chance.choice(("ann", "j.smith", "maria_lopez", "li+news", "o'neill", "x99"))
    return f"{name}@{chance.choice(('example.org', 'mail.example.co.uk', 'firma.example.de', 'sub.example.museum'))}"


def _card(chance: random.Random) -> str:
    number = _with_luhn(chance.choice(("4", "51", "55", "2221")).ljust(6, "3") + _number(chance, 9))
    sign = chance.choice(("", " ", "-"))
    return sign.join(number[at : at + 4] for at in range(0, 16, 4))


def _iban(chance: random.Random) -> str:
    country, size = chance.choice((("DE", 18), ("FR", 23), ("ES", 20), ("NL", 0), ("CH", 17)))
    account = _number(chance, size) if size else f"ABNA{_number(chance, 10)}"
    checked = "".join(str(int(c, 36)) for c in f"{account}{country}00")
    iban = f"{country}{98 - int(checked) % 97:02}{account}"
    return iban if chance.random() < 0.5 else " ".join(iban[at : at + 4] for at in range(0, len(iban), 4))


def _phone(chance: random.Random) -> str:
    forms = (
        "+49 30 {4}{3}",
        "+1 ({3}) {3}-{4}",
        "+33 6 {2} {2} {2} {2}",
        "+86 138 {4} {4}",
        "+44 20 {4} {4}",
        "+4479{4}{4}",
    )
    text = chance.choice(forms)
    for size in (2, 3, 4):
        while f"{{{size}}}" in text:
            text = text.replace(f"{{{size}}}", str(chance.randrange(10 ** (size - 1) * 2, 10**size)), 1)
    return text


def _national_phone(chance: random.Random) -> str:
    return chance.choice(("030 {}", "0171-{}", "06 {}", "(030) {}", "138{}")).format(_number(chance, 8))


def _social_security(chance: random.Random) -> str:
    return f"{chance.randrange(100, 665)}-{chance.randrange(10, 99)}-{chance.randrange(1000, 9999)}"


def _dni(chance: random.Random) -> str:
    number = chance.randrange(10_000_000, 99_999_999)
    return f"{number}{'TRWAGMYFPDXBNJZSQVHLCKE'[number % 23]}"


def _cpf(chance: random.Random) -> str:
    digits = [int(c) for c in _number(chance, 8)] + [7]
    for first in (10, 11):
        total = sum(digit * weight for digit, weight in zip(digits, range(first, 1, -1), strict=False))
        digits.append(total * 10 % 11 % 10)
    text = "".join(map(str, digits))
    return f"{text[:3]}.{text[3:6]}.{text[6:9]}-{text[9:]}"


def _resident(chance: random.Random) -> str:
    born = f"{chance.randrange(1950, 2005)}{chance.randrange(1, 13):02}{chance.randrange(1, 29):02}"
    body = f"110105{born}{_number(chance, 3)}"
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return body + "10X98765432"[sum(int(d) * w for d, w in zip(body, weights, strict=True)) % 11]


def _nir(chance: random.Random) -> str:
    number = f"{chance.choice('12')}{_number(chance, 2)}{chance.randrange(1, 13):02}75{_number(chance, 6)}"
    return f"{number}{97 - int(number) % 97:02}"


_MAKERS: tuple[tuple[str, Callable[[random.Random], str], tuple[str, ...]], ...] = (
    ("email", _email, _SENTENCES),
    ("phone", _phone, _SENTENCES),
    ("phone after its name", _national_phone, _PHONE_SENTENCES),
    ("card", _card, _SENTENCES),
    ("iban", _iban, _SENTENCES),
    ("national id: US", _social_security, _SENTENCES),
    ("national id: ES", _dni, _SENTENCES),
    ("national id: BR", _cpf, _SENTENCES),
    ("national id: CN", _resident, _SENTENCES),
    ("national id: FR", _nir, _SENTENCES),
)
_LOOK_ALIKES: tuple[Callable[[random.Random], str], ...] = (
    lambda chance: f"{chance.randrange(10**15, 10**16 - 1)}0",
    lambda chance: f"{chance.random():.14f}",
    lambda chance: f"@@ -{_number(chance, 3)},20 +{_number(chance, 3)},20 @@",
    lambda chance: f"2026-{chance.randrange(1, 13):02}-23T12:{chance.randrange(10, 60)}:01.{_number(chance, 6)}Z",
    lambda chance: f"{chance.randbytes(20).hex()}",
    lambda chance: f"v{_number(chance, 1)}.{_number(chance, 2)}.{_number(chance, 3)}",
    lambda chance: f"10.{_number(chance, 2)}.0.{_number(chance, 2)}:8080",
    lambda chance: f"17{_number(chance, 8)}",
    lambda chance: f"17{_number(chance, 11)}",
    lambda chance: (
        f"user@host{chance.randrange(9)}, @decorator, left-pad@1.{chance.randrange(9)}.0, git@github.com:a/b.git"
    ),
    lambda chance: f"{chance.randrange(1000):03}-{chance.randrange(100)}",
    lambda chance: f"sha256:{chance.randbytes(32).hex()}",
)


def personal_samples() -> Iterator[Sample]:
    """Yield texts with personal data, and texts without."""
    for name, make, sentences in _MAKERS:
        chance = random.Random(f"{_SEED} {name}")  # noqa: S311 - the same values in each run
        for number in range(_EACH):
            value = make(chance)
            yield Sample(sentences[number % len(sentences)].format(value), value, name, "generated")
    for place, make_other in enumerate(_LOOK_ALIKES):
        chance = random.Random(f"{_SEED} other {place}")  # noqa: S311 - the same values in each run
        for number in range(_EACH):
            yield Sample(_SENTENCES[number % len(_SENTENCES)].format(make_other(chance)), None, "other", "generated")
