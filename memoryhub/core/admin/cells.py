"""HTML of table cells, shared by lists and detail pages; all text is escaped."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import slugify

from memoryhub.core import clock
from memoryhub.core import text as wording
from memoryhub.core.events import event_types
from memoryhub.core.kinds import KINDS
from memoryhub.core.origin import AGENT_PREFIX

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TITLES = ("title", "purpose", "message", "summary", "reason")
counted = wording.counted
NONE = format_html('<span class="none" aria-label="none">{}</span>', "–")


def badge(value: str, label: str = "") -> SafeString:
    # The style sheet has the colours, by value or by the tone of a kind.
    tone = ""
    if value in KINDS:
        tone = f" tone-{KINDS[value].tone}"
        label = label or KINDS[value].label
    return format_html('<span class="badge badge-{}{}">{}</span>', slugify(value), tone, label or value)


def event_badge(event_type: str) -> SafeString:
    type_ = event_types.event_type(event_type)
    return format_html(
        '<span class="badge badge-{}" title="{}">{}</span>',
        slugify(event_type.partition(".")[0]),
        type_.label if type_ else "",
        event_type,
    )


def code(text: str) -> SafeString:
    return format_html('<code class="id">{}</code>', text) if text else NONE


# What is between two backquotes as code
def with_code(sentence: str) -> SafeString:
    parts = sentence.split("`")
    # An odd one out is a character like others
    if len(parts) % 2 == 0:
        parts[-2:] = ["`".join(parts[-2:])]
    marked = []
    for number, part in enumerate(parts):
        form = "<code>{}</code>" if number % 2 else "{}"
        marked.append((format_html(form, part),))
    return format_html_join("", "{}", marked)


def split_actor(name: str) -> tuple[str, str]:
    """Split the actor of a person's token, such as ``ann/laptop``; the client of all others is empty."""
    person, _, client = name.partition("/")
    if not person or name.startswith(AGENT_PREFIX):
        return name, ""
    return (person, client) if client else (name, "")


def actor(name: str) -> SafeString | str:
    """Return the name of an actor; of a person's token, the person and their client."""
    person, client = split_actor(name)
    if not client:
        return name
    return format_html(
        '<span class="actor" data-initial="{}">{} {}</span>', person[0].upper(), person, badge("client", client)
    )


def link(url: str, text: Any, css: str = "") -> SafeString:
    return format_html('<a href="{}" class="{}">{}</a>', url, css, text)


def zone_mark() -> str:
    """Return `` UTC`` where times are shown in UTC, as before the viewer's zone is known; else nothing."""
    return " UTC" if timezone.get_current_timezone_name() == "UTC" else ""


def moment(value: datetime | str | None) -> SafeString:
    """Return a time's age and the time in the viewer's zone; the tooltip has it in UTC."""
    if not value:
        return NONE
    if isinstance(value, str):
        value = clock.from_text(value)
    exact = value.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{} <span class="date">{}{}</span></time>',
        exact.isoformat(),
        exact.strftime("%Y-%m-%d %H:%M:%S"),
        ago(exact),
        timezone.localtime(exact).strftime("%Y-%m-%d %H:%M"),
        zone_mark(),
    )


def ago(value: datetime) -> str:
    seconds = int((clock.now() - value).total_seconds())
    if seconds < _MINUTE:
        return "just now" if seconds > -_MINUTE else "in the future"
    for size, name in ((365 * _DAY, "year"), (30 * _DAY, "month"), (_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= size:
            return f"{counted(seconds // size, name)} ago"
    raise AssertionError("unreachable: a minute or more has passed")


def lasted(start: datetime, end: datetime | None) -> str:
    """Return a duration in at most two units, up to now if ``end`` is None."""
    seconds = max(0, int(((end or clock.now()) - start).total_seconds()))
    days, hours, minutes = seconds // _DAY, seconds % _DAY // _HOUR, seconds % _HOUR // _MINUTE
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def tag_links(tags: list[str], url: str) -> SafeString:
    if not tags:
        return NONE
    links = ((f"{url}?{urlencode({'tag': tag})}", tag) for tag in tags)
    return format_html('<span class="tags">{}</span>', format_html_join(" ", '<a class="tag" href="{}">{}</a>', links))


def event_title(payload_json: str | None) -> str:
    """Return an event's title from its payload: one line, or ""."""
    payload = json.loads(payload_json or "{}")
    text = next((payload[name] for name in _TITLES if payload.get(name)), "")
    return wording.first_line(text, 160)
