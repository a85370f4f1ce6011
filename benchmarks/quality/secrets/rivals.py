"""Secret scanners to compare, each as a function from text to spans."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from memoryhub.core.secrets.catalogue import lines
from memoryhub.core.secrets.engine import Detector
from memoryhub.core.secrets.rule import rule_of
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.secrets.values import entropy

Span = tuple[int, int]
_GITLEAKS = Path(__file__).parents[2] / "data" / "gitleaks.toml"


@dataclass(frozen=True, slots=True)
class Rival:
    key: str
    label: str
    find: Callable[[str], list[Span]]
    # Scans only a part of the clean texts
    slow: bool = False


def rivals() -> list[Rival]:
    found = [
        Rival("hub", "Memory Hub", _hub),
        Rival("own", "its own rules alone", _own),
        Rival("gitleaks", "gitleaks' rules in Python's re, as they are", _gitleaks, slow=True),
    ]
    return (
        [*found, Rival("detect-secrets", "detect-secrets", _detect_secrets, slow=True)]
        if has_detect_secrets()
        else found
    )


def has_detect_secrets() -> bool:
    try:
        import detect_secrets  # noqa: F401
    except ImportError:
        return False
    return True


def _hub(text: str) -> list[Span]:
    return [(finding.start, finding.end) for finding in sanitize_text(text)[1]]


@cache
def _own_rules() -> Detector:
    """Return the rules that were not taken from other projects: how general are they?"""
    return Detector(rule_of(line) for line in lines() if line.get("from", [{}])[0].get("project") == "memory-hub")


def _own(text: str) -> list[Span]:
    data = text.encode(errors="replace")
    return [
        (len(data[: hit.start].decode(errors="replace")), len(data[: hit.end].decode(errors="replace")))
        for hit in _own_rules().find(data)
    ]


@dataclass(frozen=True, slots=True)
class _Naive:
    keywords: tuple[str, ...]
    pattern: re.Pattern[str]
    group: int
    entropy: float
    allowed: tuple[re.Pattern[str], ...]


@cache
def _naive_rules() -> list[_Naive]:
    config = tomllib.loads(_GITLEAKS.read_text())
    everywhere = tuple(re.compile(_for_python(pattern)) for pattern in config["allowlist"]["regexes"])
    return [_naive(rule, everywhere) for rule in config["rules"] if "regex" in rule]


def _naive(rule: dict[str, Any], everywhere: tuple[re.Pattern[str], ...]) -> _Naive:
    own = [pattern for allowed in rule.get("allowlists", ()) for pattern in allowed.get("regexes", ())]
    return _Naive(
        tuple(rule.get("keywords", ())),
        re.compile(_for_python(rule["regex"])),
        rule.get("secretGroup", 0),
        rule.get("entropy", 0.0),
        (*everywhere, *(re.compile(_for_python(pattern)) for pattern in own)),
    )


def _for_python(pattern: str) -> str:
    """Translate a Go pattern: flags in the middle apply up to the end of their group."""
    pattern = pattern.replace(r"\z", r"\Z").replace("[[:alnum:]]", "[A-Za-z0-9]")
    at = pattern.find("(?i)", 1)
    while at > 0:
        end = _end_of_group(pattern, at + 4)
        pattern = f"{pattern[:at]}(?i:{pattern[at + 4 : end]}){pattern[end:]}"
        at = pattern.find("(?i)", at + 4)
    return pattern


def _end_of_group(pattern: str, start: int) -> int:
    depth, place = 0, start
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            place += 1
        elif char == "[":
            place = pattern.index("]", place + 2)
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                return place
        place += 1
    return len(pattern)


def _gitleaks(text: str) -> list[Span]:
    lowered = text.lower()
    return [
        span
        for rule in _naive_rules()
        if not rule.keywords or any(word in lowered for word in rule.keywords)
        for span in _matches(rule, text)
    ]


def _matches(rule: _Naive, text: str) -> list[Span]:
    spans = []
    for match in rule.pattern.finditer(text):
        group = rule.group or next((number for number, value in enumerate(match.groups(), 1) if value), 0)
        secret = match[group]
        if entropy(secret) > rule.entropy and not any(pattern.search(secret) for pattern in rule.allowed):
            spans.append(match.span(group))
    return spans


def _detect_secrets(text: str) -> list[Span]:
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    with tempfile.TemporaryDirectory() as folder, default_settings():
        file = Path(folder) / "text.txt"
        file.write_text(text, errors="replace")
        found = [(finding.line_number, finding.secret_value or "") for finding in scan_file(str(file))]
    return [span for line, value in found if (span := _place(text, starts[max(0, line - 1)], value))]


def _place(text: str, start: int, value: str) -> Span | None:
    place = text.find(value, start) if value else -1
    return (place, place + len(value)) if place >= 0 else None
