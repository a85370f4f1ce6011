"""The base of the matrix: every request by every caller, and what may come of it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from django_q.models import Schedule

from tests.permissions.callers import Caller, people, tokens
from tests.permissions.home_state import Home
from tests.permissions.world import World
from tests.support import HubTestCase, forget_all_stores, share_template

# What differs between two answers to the same request
_MOMENTARY = re.compile(
    r'(name="csrfmiddlewaretoken" value=")\w+|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?|(?<="confirm_token": ")\w+'
)
_HEADERS_OF_A_MOMENT = {"Content-Length", "Date", "Expires", "Last-Modified", "Set-Cookie"}


@dataclass(frozen=True)
class Reply:
    status: int
    text: str
    # Headers, as one text
    head: str

    @classmethod
    def of(cls, answer: Any) -> Reply:
        raw = b"".join(answer.streaming_content) if answer.streaming else answer.content
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        head = {name: value for name, value in answer.headers.items() if name not in _HEADERS_OF_A_MOMENT}
        return cls(answer.status_code, raw.decode("utf-8", "replace"), repr(sorted(head.items())))

    def without(self, *names: str) -> tuple[int, str, str]:
        """Return the answer with the names that were asked for, and what changes with the moment, left out."""
        status, text, head = self.status, _MOMENTARY.sub(r"\1", self.text), self.head
        for name in names:
            text, head = text.replace(name, "…"), head.replace(name, "…")
        return status, text, head

    def names(self, hidden: frozenset[str], asked: str = "") -> list[str]:
        """Return the hidden names in it; of a name that the caller sent, only its texts count."""
        answer = f"{self.text} {self.head}".lower()
        return sorted(name for name in hidden if _pattern(name, asked).search(answer))


def _pattern(name: str, asked: str) -> re.Pattern[str]:
    # Texts of a place are its name and a blank; the name alone is what was asked for.
    return re.compile(rf"{name} (?:memory|text|rule|decision|purpose|commit|prompt|tag)" if name in asked else name)


class MatrixTestCase(HubTestCase):
    """A home with all places, and all callers, made once for a class."""

    world: ClassVar[World]
    callers: ClassVar[list[Caller]]
    folder: ClassVar[Home]
    _made: ClassVar[list[tuple[World, list[Caller]]]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Home()
        cls.addClassCleanup(cls.folder.remove)
        cls.addClassCleanup(forget_all_stores)
        cls.enterClassContext(cls.folder.patched())
        share_template(cls.folder.path)
        made: list[tuple[World, list[Caller]]] = []
        cls._made = made
        super().setUpClass()
        # Not in setUpTestData, whose attributes are copied for each test
        [(cls.world, cls.callers)] = made

    @classmethod
    def setUpTestData(cls) -> None:
        world = World()
        world.build()
        Schedule.objects.all().delete()  # no worker runs here, and what it would do falls due as the tests go on
        callers = [*people(), *tokens()]
        for caller in callers:
            assert caller.client  # signed in for the whole class
        cls._made.append((world, callers))
        forget_all_stores()  # or Django would begin a transaction in each, too

    def setUp(self) -> None:
        """Keep the home of the class, and leave no store open for Django to roll back."""
        self.addCleanup(forget_all_stores)

    def unchanged(self, *sends: Callable[[], Reply]) -> list[Reply]:
        """Return the answers to some requests, and check that they changed nothing."""
        replies: list[Reply] = []
        with self.unchanging(replies):
            replies += [send() for send in sends]
        return replies

    @contextmanager
    def unchanging(self, replies: Sequence[Reply] = ()) -> Iterator[None]:
        """Check that nothing inside changes anything."""
        before = self.folder.state()
        yield
        self.assertEqual(self.changed_since(before), [], [reply.text[:300] for reply in replies])

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Check that what is inside changes something."""
        before = self.folder.state()
        yield
        self.assertNotEqual(self.changed_since(before), [], "the request changed nothing")

    def changed_since(self, before: dict[str, Any]) -> list[str]:
        return [name for name, found in self.folder.state().items() if found != before.get(name)]

    def assert_keeps(self, reply: Reply, caller: Caller, asked: str = "") -> None:
        self.assertEqual(reply.names(caller.hidden, asked), [], f"{reply.status} {reply.text[:600]}")
