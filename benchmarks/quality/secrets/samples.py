"""Labelled texts, each with a secret or without one."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from memoryhub.core.errors import Invalid
from memoryhub.core.secrets.catalogue import detector
from memoryhub.core.secrets.rule import RuleForm

_PROSE = ("It is {}.", "Use {} for now", "({})", "the token {}, please", "see `{}`")
_SHORTEST_PREFIX = 4


@dataclass(frozen=True, slots=True)
class Sample:
    text: str
    secret: str | None
    type: str
    source: str


def read_samples(file: Path) -> list[Sample]:
    """Read samples from a file of JSON lines, which may be compressed.

    Raises:
        Invalid: the file cannot be read, or a line is not a sample.
    """
    try:
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
        return [_sample(json.loads(line)) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, KeyError) as error:
        raise Invalid(f"{file} holds no labelled texts; give JSON lines with text, secret, type and source") from error


def _sample(data: dict[str, str]) -> Sample:
    return Sample(data["text"], data["secret"] or None, data["type"], data["source"])


def escaped(sample: Sample) -> Sample:
    """Return the sample as it appears in a JSON string."""
    secret = json.dumps(sample.secret or "")[1:-1]
    return Sample(json.dumps({"text": sample.text}), secret, sample.type, sample.source)


def bare_tokens(samples: list[Sample]) -> list[Sample]:
    """Return the secrets with a known prefix, each alone in a sentence."""
    prefixes = tuple(
        word.decode()
        for rule in detector().rules
        if rule.form is RuleForm.AT and not rule.any_case and not rule.inside
        for word in rule.keywords
        if len(word) >= _SHORTEST_PREFIX
    )
    secrets = sorted({sample.secret for sample in samples if sample.secret and sample.secret.startswith(prefixes)})
    return [
        Sample(_PROSE[number % len(_PROSE)].format(secret), secret, "", "prose")
        for number, secret in enumerate(secrets)
        if len(secret.split()) == 1
    ]
