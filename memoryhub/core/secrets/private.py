"""Find private blocks: ``<private>…</private>``, nested, unclosed or stray."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_NAME = "private"


def private_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans to remove, in order and without overlap. An unclosed block extends to the end.

    The remaining text contains no tag, not even one whose halves only join after the removal.
    """
    if "<" not in text or _NAME not in text.lower():
        return []
    reader = _Reader()
    for start, chunk in _chunks(text):
        reader.read(start, chunk)
    return reader.finish(len(text))


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for cut in _cuts(text):
        if cut > start:
            yield start, text[start:cut]
        start = cut
    if start < len(text):
        yield start, text[start:]


def _cuts(text: str) -> Iterator[int]:
    opening, closing = text.find("<"), text.find(">")
    while opening >= 0 or closing >= 0:
        if closing < 0 or 0 <= opening < closing:
            yield opening
            opening = text.find("<", opening + 1)
        else:
            yield closing + 1
            closing = text.find(">", closing + 1)


@dataclass(frozen=True, slots=True)
class _Tag:
    close: bool
    empty: bool


def _tag(text: str) -> _Tag | None:
    inner = text[1:-1].lstrip()
    close = inner.startswith("/")
    inner = inner[1:].lstrip() if close else inner
    rest = inner[len(_NAME) :]
    if inner[: len(_NAME)].lower() != _NAME or not (rest in ("", "/") or rest[0].isspace()):
        return None
    return _Tag(close, rest == "/")


# One nesting level: where its block was opened, and each ``<`` kept since with the text after it.
@dataclass(slots=True)
class _Frame:
    opened_at: int
    open_brackets: list[tuple[int, list[str]]] = field(default_factory=list)

    def keep(self, start: int, chunk: str) -> None:
        if chunk.startswith("<"):
            self.open_brackets.append((start, [chunk]))
        elif self.open_brackets:
            self.open_brackets[-1][1].append(chunk)

    def close_bracket(self) -> tuple[int, _Tag] | None:
        if not self.open_brackets:
            return None
        start, chunks = self.open_brackets.pop()
        tag = _tag("".join(chunks))
        if tag is None:
            self.open_brackets.clear()
            return None
        return start, tag


@dataclass(slots=True)
class _Reader:
    frames: list[_Frame] = field(default_factory=lambda: [_Frame(0)])
    spans: list[tuple[int, int]] = field(default_factory=list)

    def read(self, start: int, chunk: str) -> None:
        self.frames[-1].keep(start, chunk)
        tag = self.frames[-1].close_bracket() if chunk.endswith(">") else None
        if tag is not None:
            self._apply(*tag, start + len(chunk))

    def _apply(self, start: int, tag: _Tag, end: int) -> None:
        if not tag.close and not tag.empty:
            self.frames.append(_Frame(start))
        elif tag.close and len(self.frames) > 1:
            start = self.frames.pop().opened_at
        if len(self.frames) == 1:
            self._take_out(start, end)

    def _take_out(self, start: int, end: int) -> None:
        while self.spans and self.spans[-1][0] >= start:
            self.spans.pop()
        self.spans.append((start, end))

    def finish(self, end: int) -> list[tuple[int, int]]:
        if len(self.frames) > 1:
            self._take_out(self.frames[1].opened_at, end)
        return self.spans
