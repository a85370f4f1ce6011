"""Texts that are slow to scan: a million characters of repeated beginnings of matches."""

from __future__ import annotations

SIZE = 1_000_000

_UNITS = (
    "token=",
    "key=",
    "key=a1b2 ",
    "password='x",
    "password=a1b2c3 ",
    "password is ",
    "aws_secret_access_key = ",
    "eyJ",
    "a.eyJ",
    "sk-",
    "sk-proj-",
    "ghp_",
    "AKIA",
    "1Q~",
    "-us1",
    "://a:",
    "://a:b@c ",
    "https://x:",
    "-----BEGIN PRIVATE KEY-----",
    "Bearer ",
    "<private",
    "< ",
    "[REDACTED:a]",
    '\\\\"',
    '{"key": ',
)


def adversarial_texts() -> dict[str, str]:
    texts = {unit: (unit * (SIZE // len(unit) + 1))[:SIZE] for unit in _UNITS}
    return texts | {"< and spaces": "<" + " " * (SIZE - 10) + "private>", "one word": "a1" * (SIZE // 2)}
