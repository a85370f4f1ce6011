from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.speed.figures import Amount, Figure, Results
from benchmarks.speed.goals import targets_of, verdict_of


def as_data(results: Results) -> dict[str, Any]:
    return {
        "machine": results.machine,
        "figures": [_figure(figure) for figure in results.figures],
        "failures": [asdict(failure) for failure in results.failures],
        "profile": [asdict(row) for row in results.profile],
    }


def _figure(figure: Figure) -> dict[str, Any]:
    found = {
        "key": figure.key,
        "label": figure.label,
        "size": figure.size,
        "unit": str(figure.unit),
        **_amount(figure.amount),
        "baseline": {"what": figure.baseline_label, **_amount(figure.baseline)} if figure.baseline else None,
        "ratio": figure.ratio,
        "targets": [asdict(target) for target in targets_of(figure)],
        "verdict": verdict_of(figure),
    }
    return {name: value for name, value in found.items() if value is not None}


def _amount(amount: Amount) -> dict[str, float]:
    if amount.p95 is None or amount.p99 is None or amount.best is None:
        return {"value": amount.value, "samples": amount.samples}
    percentiles = {"best": amount.best, "p50": amount.value, "p95": amount.p95, "p99": amount.p99}
    return {**percentiles, "samples": amount.samples}
