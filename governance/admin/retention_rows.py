"""What goes and what stays, as the rows of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from governance.retention.present import size, thing_name
from governance.retention.schemas import Going, Kept, Report

_WIDTH = 120


def going_rows(report: Report) -> list[dict[str, Any]]:
    """Return a row for each group that goes."""
    most = _most(report.going)
    return [{**_row(each, most), "rule": each.rule, "warning": each.warning} for each in report.going]


def kept_rows(report: Report) -> list[dict[str, Any]]:
    """Return a row for each group that stays; what keeps most comes first."""
    most = _most(report.kept)
    return [_row(each, most) for each in sorted(report.kept, key=lambda each: -each.things)]


def _most(shares: Sequence[Going | Kept]) -> int:
    return max((each.bytes for each in shares), default=0)


def _row(share: Going | Kept, most: int) -> dict[str, Any]:
    oldest, newest = f"{share.oldest:%Y-%m-%d}", f"{share.newest:%Y-%m-%d}"
    return {
        "name": thing_name(share),
        "things": share.things,
        "size": size(share.bytes),
        "gauge": _gauge(share.bytes, most),
        "from": oldest,
        "to": newest if newest != oldest else "",
        "says": share.says,
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
