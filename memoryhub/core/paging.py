"""Pages of results: cursors, token budgets, the ``meta`` block, and pages as text."""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from typing import Any

from memoryhub.core.errors import Invalid
from memoryhub.core.schemas import Listing, Meta, Paging
from memoryhub.core.text import compact_json, hanging

BYTES_PER_TOKEN = 4
# By what a search ranks in each mode
SEARCH_MODES = {"basic": "words, without the full-text index", "fts5": "words", "hybrid": "words and meaning"}
# First line of an answer to a question that nothing stored is about
ABSENT = "nothing stored is about this; these are only the nearest"
# Stands for the count while its digits are counted too
_MOST_TOKENS = 99_999_999


def estimate_tokens(text: str) -> int:
    """Estimate tokens at four UTF-8 bytes each; real tokenizers differ by about a fifth."""
    return -(-size_of(text) // BYTES_PER_TOKEN)


_is_json: ContextVar[bool] = ContextVar("answer_is_json", default=False)


@contextmanager
def answering(*, as_json: bool) -> Iterator[None]:
    """Count token budgets of the answers inside as JSON or, by default, as text: the form that is sent."""
    token = _is_json.set(as_json)
    try:
        yield
    finally:
        _is_json.reset(token)


def answers_json() -> bool:
    return _is_json.get()


def size_of(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def fit(sizes: Sequence[int], frame: Callable[[int], int], max_tokens: int | None) -> tuple[int, int]:
    """Return how many of the first items fit the budget, and always at least one, with the tokens of the answer.

    Args:
        sizes: bytes of each item with its separator.
        frame: bytes of the rest of the answer, given the number of items.
        max_tokens: the budget of the whole answer.
    """
    sums = [0, *accumulate(sizes)]
    count = len(sizes)
    if max_tokens is not None:
        count = min(count, max(bisect_right(sums, max_tokens * BYTES_PER_TOKEN) - 1, 1))
    while True:
        tokens = -(-(sums[count] + frame(count)) // BYTES_PER_TOKEN)
        if max_tokens is None or tokens <= max_tokens or count <= 1:
            return count, tokens
        count -= 1


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
    """Cut ``items`` to the token budget, count tokens, and set the next cursor."""
    return fit_page(
        items,
        line,
        total=total,
        more=more,
        max_tokens=max_tokens,
        cursor_after=lambda count: cursor_of(items[count - 1]),
    )


def fit_page(
    items: Sequence[dict[str, Any]],
    line: Callable[[dict[str, Any]], str],
    *,
    total: int,
    more: bool,
    max_tokens: int | None,
    cursor_after: Callable[[int], str],
    mode: str | None = None,
    note: str | None = None,
    absent: bool | None = None,
) -> Listing:
    """As ``page``; ``cursor_after`` returns the cursor after the first items, given their number."""

    def meta_of(count: int) -> Meta:
        has_more = more or count < len(items)
        next_cursor = None
        if has_more and count:
            next_cursor = cursor_after(count)
        return Meta(
            total_count=total,
            returned_count=count,
            truncated=count < len(items),
            estimated_tokens=_MOST_TOKENS,
            has_more=has_more,
            next_cursor=next_cursor,
            mode=mode,
            note=note,
            absent=absent,
        )

    texts = list(map(compact_json if answers_json() else line, items))
    sizes = [size_of(hanging(text)) + 1 for text in texts]
    fitting, tokens = fit(sizes, lambda count: _frame(meta_of(count)), max_tokens)
    meta = meta_of(fitting)
    meta.estimated_tokens = tokens
    if max_tokens is not None and tokens > max_tokens:
        meta.truncated = True
    listing = Listing(results=list(items[:fitting]), meta=meta)
    if not answers_json():
        listing.keep_texts(texts[:fitting], line)
    return listing


def _frame(meta: Meta) -> int:
    if not answers_json():
        return size_of("\n".join([*_first_lines(meta), _last_line(meta)]))
    return size_of(compact_json(Listing(results=[], meta=meta).model_dump(mode="json")))


def _first_lines(meta: Meta) -> list[str]:
    return [f"{ABSENT}:"] if meta.absent else []


def _last_line(meta: Meta) -> str:
    end = f"{meta.returned_count} of {meta.total_count}"
    if meta.mode:
        end += f"; {_mode(meta.mode)}"
    if meta.next_cursor:
        end += f"; more: cursor={meta.next_cursor}"
    return f"({end})"


def _mode(mode: str) -> str:
    return f"mode: {mode} ({SEARCH_MODES[mode]})"


def as_lines(listing: Listing, line: Callable[[dict[str, Any]], str], *, none: str) -> str:
    """Return a page as text: one item per line, with indented further lines, and a last line with counts and cursor."""
    if not listing.results:
        mode = _mode(listing.meta.mode) if listing.meta.mode else ""
        explanation = "; ".join(filter(None, [mode, listing.meta.note]))
        return f"{none} ({explanation})" if explanation else none
    lines = map(hanging, listing.texts_by(line))
    return "\n".join([*_first_lines(listing.meta), *lines, _last_line(listing.meta)])


def newest_first(
    matching: Any, command: Paging, views: Callable[[Sequence[Any]], Iterable[Any]], line: Callable[[Any], str]
) -> Listing:
    """Return a page of rows by id, the greatest first; concurrent writes neither skip nor repeat any.

    Args:
        matching: a query set.
        command: limit, cursor and budget.
        views: returns rows as JSON data, each with its ``id``.
        line: returns such data as text.
    """
    before = decode_cursor(command.cursor, (int,))
    following = matching.filter(id__lt=before[0]) if before else matching
    entries = list(following.order_by("-id")[: command.limit + 1])
    return page(
        list(views(entries[: command.limit])),
        total=matching.count(),
        more=len(entries) > command.limit,
        cursor_of=lambda item: encode_cursor(item["id"]),
        line=line,
        max_tokens=command.max_tokens,
    )
