"""Make text fit to be kept: private blocks out, secrets masked, unstorable characters replaced.

Everything that is appended to a log passes here, and nowhere else. Sanitising what is sanitised
already changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .detectors import DETECTORS, Detector, Hit
from .detectors.assignments import is_secret_name, is_secret_value
from .detectors.private import private_spans
from .detectors.trace import TracedText

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_TAG = re.compile(r"\[REDACTED:[a-z0-9-]{1,40}\]")
_MAX_ROUNDS = 12
_REPEATED = 32
"""Texts up to this length (keys, tags, names, kinds) come again and again; their answers are remembered."""
_SHORTEST = 7  # a password in a URL: ://:p@h


@dataclass(frozen=True, slots=True)
class Finding:
    """What was taken out: its type, the rule that found it, and its place in the original text."""

    type: str
    rule: str
    start: int
    end: int


def sanitize_text(text: str) -> tuple[str, list[Finding]]:
    """Return the text fit to be kept, and what was taken out of it, in the order of its places.

    What is left is read again until nothing is found in it. A text that is still not clean after
    a dozen rounds was made to be so, and is masked whole.
    """
    if len(text) > _REPEATED:
        return _sanitized(text)
    clean, findings = _remembered(text)
    return clean, list(findings)


@lru_cache(maxsize=4096)
def _remembered(text: str) -> tuple[str, tuple[Finding, ...]]:
    clean, findings = _sanitized(text)
    return clean, tuple(findings)


def _sanitized(text: str) -> tuple[str, list[Finding]]:
    traced = TracedText([(0, _UNSTORABLE.sub("\ufffd", text))])
    findings: list[Finding] = []
    for _ in range(_MAX_ROUNDS):
        traced, found = _round(traced)
        findings += found
        if not found:
            return traced.text, sorted(findings, key=lambda finding: finding.start)
    return _tag("text"), [Finding("text", "too-many-rounds", 0, len(text))]


def sanitize(value: Any) -> tuple[Any, list[Finding]]:
    """Return a clean copy of a JSON value, keys included, and what was taken out of its strings.

    A string under a key that names a secret (``{"password": "…"}``) is judged by that name too.
    The places of findings are those in the string that held them.
    """
    findings: list[Finding] = []
    return _walk(value, findings, ""), findings


def _tag(kind: str) -> str:
    return f"[REDACTED:{kind}]"


def _round(traced: TracedText) -> tuple[TracedText, list[Finding]]:
    """Take out private blocks, then apply each set of rules to what the one before has left."""
    spans = private_spans(traced.text)
    findings = [_finding(traced, "private", "private-block", span) for span in spans]
    traced = traced.edited((start, end, "") for start, end in spans) if spans else traced
    for detector in DETECTORS if len(traced.text) >= _SHORTEST else ():
        hits = list(_hits(traced.text, detector))
        findings += [_finding(traced, hit.rule.type, hit.rule.id, (hit.start, hit.end)) for hit in hits]
        traced = traced.edited((hit.start, hit.end, _tag(hit.rule.type)) for hit in hits) if hits else traced
    return traced, findings


def _finding(traced: TracedText, kind: str, rule: str, span: tuple[int, int]) -> Finding:
    return Finding(kind, rule, traced.origin(span[0]), traced.origin(span[1] - 1) + 1)


def _hits(text: str, detector: Detector) -> Iterator[Hit]:
    """Yield the secrets of each stretch between tags; what a tag parts is never read together."""
    start = 0
    for tag in _TAG.finditer(text):
        yield from _hits_of_stretch(text[start : tag.start()], start, detector)
        start = tag.end()
    yield from _hits_of_stretch(text[start:] if start else text, start, detector)


def _hits_of_stretch(stretch: str, offset: int, detector: Detector) -> Iterator[Hit]:
    for hit in detector.find(stretch):
        yield Hit(hit.rule, hit.start + offset, hit.end + offset)


def _walk(value: Any, findings: list[Finding], name: str) -> Any:
    if isinstance(value, str):
        return _clean_string(value, findings, name)
    if isinstance(value, dict):
        return _clean_object(value, findings)
    if isinstance(value, list | tuple):
        return [_walk(item, findings, name) for item in value]
    return value


def _clean_string(text: str, findings: list[Finding], name: str) -> str:
    clean, found = sanitize_text(text)
    findings += found
    if name and is_secret_name(name) and is_secret_value(name, clean):
        findings.append(Finding("secret", "named-secret", 0, len(text)))
        return _tag("secret")
    return clean


def _clean_object(value: dict[Any, Any], findings: list[Finding]) -> dict[Any, Any]:
    clean: dict[Any, Any] = {}
    for key, item in value.items():
        clean_key = _clean_string(key, findings, "") if isinstance(key, str) else key
        clean_key = _unused(clean_key, clean)
        clean[clean_key] = _walk(item, findings, clean_key if isinstance(key, str) else "")
    return clean


def _unused(key: Any, taken: dict[Any, Any]) -> Any:
    """Number a key that has become equal to another, so that neither value is lost."""
    number, unique = 2, key
    while unique in taken:
        unique, number = f"{key} {number}", number + 1
    return unique
