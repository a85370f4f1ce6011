from __future__ import annotations

from django import template

from memoryhub.core.admin import cells
from memoryhub.core.text import capitalized

register = template.Library()

register.filter("badge", cells.badge)
register.filter("event_badge", cells.event_badge)
register.filter("code", cells.code)
register.filter("with_code", cells.with_code)
register.filter("actor", cells.actor)
register.filter("moment", cells.moment)
register.filter("counted", cells.counted)
register.filter("capitalized", capitalized)


register.simple_tag(cells.zone_mark)


@register.filter
def number(value: int) -> str:
    return f"{value:,}"


@register.filter
def signed(value: float) -> str:
    """Return a number with two decimals and its sign; 0 has none."""
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text
