"""The rule pack as data: what each rule finds, and its origin and licence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memoryhub.core.secrets.engine import Detector
from memoryhub.core.secrets.rule import rule_of

_FILE = Path(__file__).with_name("rules.jsonl")


def lines() -> Iterator[dict[str, Any]]:
    with _FILE.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


@cache
def detector() -> Detector:
    return Detector(rule_of(line) for line in lines() if "id" in line)


_MADE_HERE = "memory-hub"


@dataclass(frozen=True, slots=True)
class RuleInfo:
    id: str
    type: str
    description: str
    keywords: tuple[str, ...]
    # Empty if a value is judged by the name that it is assigned to.
    pattern: str
    # Where it was adapted from: ``gitleaks 8.30.1, github-pat (MIT)``.
    origins: tuple[str, ...]


_OTHERS = {
    "private-block": RuleInfo(
        "private-block", "private", "A private block.", ("<private>",), "", ("Memory Hub (MIT)",)
    ),
    "repeated-secret": RuleInfo(
        "repeated-secret", "secret", "A secret that was found elsewhere.", (), "", ("Memory Hub (MIT)",)
    ),
    "too-many-rounds": RuleInfo(
        "too-many-rounds", "text", "A text built to hide secrets inside secrets.", (), "", ("Memory Hub (MIT)",)
    ),
}


@cache
def catalogue() -> dict[str, RuleInfo]:
    head, *rules = lines()
    return {line["id"]: _info(line, head["sources"]) for line in rules}


@cache
def _personal() -> dict[str, RuleInfo]:
    from memoryhub.core.secrets.personal import personal_rules

    return {
        rule.id: RuleInfo(rule.id, rule.type, description, (), rule.pattern.decode("latin-1"), ("Memory Hub (MIT)",))
        for rule, description in personal_rules()
    }


def about(rule: str) -> RuleInfo | None:
    return _OTHERS.get(rule) or catalogue().get(rule) or _personal().get(rule)


def _info(line: dict[str, Any], sources: dict[str, Any]) -> RuleInfo:
    return RuleInfo(
        line["id"],
        line.get("type", line["id"]),
        line["description"],
        tuple(line["keywords"]),
        line.get("pattern", ""),
        tuple(_origin(origin, sources[origin["project"]]) for origin in line["from"]),
    )


def _origin(origin: dict[str, str], source: dict[str, str]) -> str:
    if origin["project"] == _MADE_HERE:
        documented = f", after {origin['documentation']}" if "documentation" in origin else ""
        return f"Memory Hub ({source['licence']}){documented}"
    return f"{origin['project']} {source['version']}, {origin['rule']} ({source['licence']})"
