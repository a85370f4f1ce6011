"""What goes and what stays, as the rows of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from governance.admin.retention_words import rules_in_words, share_words
from governance.retention.present import size
from governance.retention.schemas import Going, Kept, Report

_WIDTH = 120


def going_rows(report: Report) -> list[dict[str, Any]]:
    """Return a row for each group that goes."""
    most, words = _most(report.going), rules_in_words()
    return [
        {**_row(each, most), "says": _says(f"{each.rule}: {each.says}", words), "warning": each.warning}
        for each in report.going
    ]


def kept_rows(report: Report) -> list[dict[str, Any]]:
    """Return a row for each group that stays; what keeps most comes first."""
    most, words = _most(report.kept), rules_in_words()
    return [
        {**_row(each, most), "says": _says(each.says, words)}
        for each in sorted(report.kept, key=lambda each: -each.things)
    ]


def rule_rows() -> list[dict[str, str]]:
    """Return today's rules in order, each in words and as the settings call it."""
    return [{"says": said, "name": named.partition(":")[0]} for named, said in rules_in_words().items()]


def _says(named: str, words: dict[str, str]) -> str:
    """Return a rule in words; one of a run that has long been changed, and what is no rule, as it was told."""
    return words.get(named, named)


def _most(shares: Sequence[Going | Kept]) -> int:
    return max((each.bytes for each in shares), default=0)


def _row(share: Going | Kept, most: int) -> dict[str, Any]:
    oldest, newest = f"{share.oldest:%Y-%m-%d}", f"{share.newest:%Y-%m-%d}"
    return {
        "name": share_words(share),
        "things": share.things,
        "size": size(share.bytes),
        "gauge": _gauge(share.bytes, most),
        "from": oldest,
        "to": newest if newest != oldest else "",
        "samples": share.samples,
    }


def _gauge(value: int, most: int) -> SafeString:
    """Return a bar that is as long as the share of the largest."""
    return format_html(
        '<svg class="share" height="6" viewBox="0 0 {} 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="gauge-ground" width="{}" height="6"/><rect class="gauge-fill" width="{}" height="6"/></svg>',
        _WIDTH,
        _WIDTH,
        round(max(2.0, _WIDTH * value / most) if most else 0, 1),
    )
