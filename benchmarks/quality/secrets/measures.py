"""Recall, false positives and speed of secret detection."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks.quality.secrets.clean_texts import CleanTexts
from benchmarks.quality.secrets.rivals import Rival, Span
from benchmarks.quality.secrets.samples import Sample
from memoryhub.core.secrets.sanitize import sanitize_text

WINDOW = 65_536
# Characters of clean text per kind for slow scanners
_SLOW_PART = 300_000

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    found: int
    all: int

    @property
    def share(self) -> float:
        return self.found / self.all if self.all else 1.0


@dataclass(slots=True)
class Recall:
    by_source: dict[str, Found] = field(default_factory=dict)
    by_type: dict[str, Found] = field(default_factory=dict)
    # Clean texts with a finding, by source
    flagged: dict[str, Found] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mistakes:
    label: str
    files: int
    megabytes: float
    findings: int
    megabytes_a_second: float

    @property
    def a_megabyte(self) -> float:
        return self.findings / self.megabytes if self.megabytes else 0.0


def recall_of(rival: Rival, samples: Iterable[Sample]) -> Recall:
    """Count the secrets that are gone from the text after its findings are removed."""
    found: Counter[tuple[str, str]] = Counter()
    every: Counter[tuple[str, str]] = Counter()
    for sample in samples:
        spans = rival.find(sample.text)
        hit = is_gone(sample, spans) if sample.secret else bool(spans)
        kinds = (("source", sample.source), ("type", sample.type)) if sample.secret else (("clean", sample.source),)
        every.update(kinds)
        found.update(kinds if hit else ())
    by = {kind: {name: Found(found[kind, name], n) for (k, name), n in every.items() if k == kind} for kind, _ in every}
    return Recall(by.get("source", {}), by.get("type", {}), by.get("clean", {}))


def is_gone(sample: Sample, spans: list[Span]) -> bool:
    """Return whether the text without the spans no longer contains the secret."""
    pieces, done = [], 0
    for start, end in sorted(spans):
        pieces.append(sample.text[done : max(done, start)])
        done = max(done, end)
    return bool(sample.secret) and str(sample.secret) not in "\0".join([*pieces, sample.text[done:]])


def share_of(rival: Rival, samples: list[Sample]) -> Found:
    return Found(sum(is_gone(sample, rival.find(sample.text)) for sample in samples), len(samples))


def mistakes_of(rival: Rival, kinds: list[CleanTexts]) -> list[Mistakes]:
    """Count findings in clean texts, and measure the speed in CPU time."""
    return [_mistakes(rival, kind) for kind in kinds]


def _mistakes(rival: Rival, kind: CleanTexts) -> Mistakes:
    texts = list(kind.texts.values())
    if rival.slow:
        texts = ["\n".join(texts)[:_SLOW_PART]]
    findings, began = 0, time.process_time()
    for text in texts:
        findings += len(rival.find(text))
    seconds = max(time.process_time() - began, 1e-6)
    size = sum(len(text.encode()) for text in texts) / 1e6
    return Mistakes(kind.label, len(kind.texts), size, findings, size / seconds)


def window_times(kinds: list[CleanTexts]) -> list[float]:
    """Return the milliseconds per piece of 64 KB, sorted."""
    text = "\n".join(text for kind in kinds for text in kind.texts.values())
    return sorted(_milliseconds(text[at : at + WINDOW]) for at in range(0, max(1, len(text) - WINDOW), WINDOW))


def worst_times(texts: dict[str, str]) -> dict[str, float]:
    """Return the milliseconds per text, slowest first."""
    times = {name: _milliseconds(text) for name, text in texts.items()}
    return dict(sorted(times.items(), key=lambda pair: -pair[1]))


def _milliseconds(text: str) -> float:
    began = time.process_time()
    sanitize_text(text)
    return (time.process_time() - began) * 1000
