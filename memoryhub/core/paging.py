"""Pages of results: cursors, token budgets, the ``meta`` block, and pages as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from memoryhub.core.errors import Invalid
from memoryhub.core.schemas import Listing, Meta
from memoryhub.core.text import hanging

T = TypeVar("T")
_BYTES_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimate tokens at four UTF-8 bytes each; real tokenizers differ by about a fifth."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def fit(items: Sequence[T], budget: int | None, render: Callable[[T], str]) -> list[T]:
    """Return the first ``items`` whose rendered text fits ``budget`` tokens, and always at least one."""
    if budget is None:
        return list(items)
    kept: list[T] = []
    for item in items:
        budget -= estimate_tokens(render(item)) + 1
        if budget < 0 and kept:
            break
        kept.append(item)
    return kept


def encode_cursor(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, kinds: tuple[type, ...]) -> list[Any] | None:
    if cursor is None:
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, UnicodeError):
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds):
        raise Invalid("cursor is not one that this list gave; leave it out to start from the first page")
    return parts


def page(
    items: Sequence[dict[str, Any]],
    *,
    total: int,
    more: bool,
    cursor_of: Callable[[dict[str, Any]], str],
    line: Callable[[dict[str, Any]], str],
    max_tokens: int | None,
) -> Listing:
    """Cut ``items`` to the token budget, count tokens by ``line``, and set the next cursor."""
    listing = fit_page(items, [line(item) for item in items], total=total, more=more, max_tokens=max_tokens)
    if listing.meta.has_more and listing.results:
        listing.meta.next_cursor = cursor_of(listing.results[-1])
    return listing


def fit_page(
    items: Sequence[dict[str, Any]],
    lines: Sequence[str],
    *,
    total: int,
    more: bool,
    max_tokens: int | None,
    mode: str | None = None,
    note: str | None = None,
) -> Listing:
    """Cut ``items`` to the token budget by their ``lines``; the caller sets the cursor."""
    kept = fit(list(map(hanging, lines)), max_tokens, lambda text: text)
    meta = Meta(
        total_count=total,
        returned_count=len(kept),
        truncated=len(kept) < len(items),
        estimated_tokens=sum(estimate_tokens(text) + 1 for text in kept),
        has_more=more or len(kept) < len(items),
        next_cursor=None,
        mode=mode,
        note=note,
    )
    return Listing(results=list(items[: len(kept)]), meta=meta)


def as_lines(listing: Listing, line: Callable[[dict[str, Any]], str], *, none: str) -> str:
    """Return a page as text: one item per line, with indented further lines, and a last line with counts and cursor."""
    meta = listing.meta
    if not listing.results:
        return none
    end = f"{meta.returned_count} of {meta.total_count}"
    if meta.mode == "basic":
        end += "; mode: basic (without the full-text index)"
    elif meta.note:
        end += f"; mode: {meta.mode}"
    if meta.next_cursor:
        end += f"; more: cursor={meta.next_cursor}"
    return "\n".join([*(hanging(line(item)) for item in listing.results), f"({end})"])
