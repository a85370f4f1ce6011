from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.secrets.adversarial import adversarial_texts
from benchmarks.quality.secrets.clean_texts import clean_texts
from benchmarks.quality.secrets.measures import (
    Found,
    Mistakes,
    Recall,
    mistakes_of,
    recall_of,
    share_of,
    window_times,
    worst_times,
)
from benchmarks.quality.secrets.rivals import Rival, has_detect_secrets, rivals
from benchmarks.quality.secrets.samples import bare_tokens, escaped, read_samples


@dataclass(frozen=True, slots=True)
class RivalResult:
    rival: Rival
    recall: Recall
    mistakes: list[Mistakes]


@dataclass(frozen=True, slots=True)
class SecretsResult:
    samples: int
    results: list[RivalResult]
    # The hub on all secrets
    raw: Found
    # The hub on the secrets that it found, after JSON escaping
    escaped: Found
    # Tokens with a known prefix, alone in a sentence
    bare: Found
    windows: list[float]
    worst: dict[str, float]
    with_detect_secrets: bool


def measure_secrets(file: Path, progress: Callable[[str], None] = lambda _: None) -> SecretsResult:
    """Measure the hub and the other scanners.

    Raises:
        Invalid: the file has no labelled texts.
    """
    samples = read_samples(file)
    hub, *_ = scanners = rivals()
    clean = clean_texts()
    results = []
    for rival in scanners:
        progress(rival.label)
        results.append(RivalResult(rival, recall_of(rival, samples), mistakes_of(rival, clean)))
    progress("escaped, short and slow texts")
    secret = [sample for sample in samples if sample.secret]
    found = [sample for sample in secret if share_of(hub, [sample]).found]
    return SecretsResult(
        samples=len(samples),
        results=results,
        raw=Found(len(found), len(secret)),
        escaped=share_of(hub, [escaped(sample) for sample in found]),
        bare=share_of(hub, bare_tokens(secret)),
        windows=window_times(clean),
        worst=worst_times(adversarial_texts()),
        with_detect_secrets=has_detect_secrets(),
    )
