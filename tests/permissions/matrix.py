"""The base of the matrix: every request by every caller, and what may come of it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.test import Client

from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.registry.tokens import TokenCreate, create_token
from memoryhub.web.signin import ensure_owner
from tests.permissions.world import (
    ALL,
    NOWHERE,
    OTHER,
    OWN,
    PLACES,
    REVIEW,
    SISTER,
    VIEW,
    WRITE,
    Caller,
    Home,
    World,
)
from tests.support import HubTestCase, forget_all_stores, share_template

_VERBS = {"read": VIEW, "write": WRITE, "admin": ALL}
_ROLES = {"viewer": VIEW, "reviewer": REVIEW, "owner": ALL}
# What differs between two answers to the same request
_MOMENTARY = re.compile(
    r'(name="csrfmiddlewaretoken" value=")\w+|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?|(?<="confirm_token": ")\w+'
)
_HEADERS_OF_A_MOMENT = {"Content-Length", "Date", "Set-Cookie"}


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
        said = f"{self.text} {self.head}".lower()
        return sorted(name for name in hidden if _pattern(name, asked).search(said))


def _pattern(name: str, asked: str) -> re.Pattern[str]:
    # Texts of a place are its name and a blank; the name alone is what was asked for.
    return re.compile(rf"{name} (?:memory|text|rule|decision|purpose|commit|said|tag)" if name in asked else name)


class MatrixTestCase(HubTestCase):
    """A home with all places, and all callers, made once for a class."""

    world: ClassVar[World]
    callers: ClassVar[list[Caller]]
    folder: ClassVar[Home]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Home()
        cls.addClassCleanup(cls.folder.remove)
        cls.addClassCleanup(forget_all_stores)
        cls.enterClassContext(cls.folder.patched())
        share_template(cls.folder.path)
        super().setUpClass()
        cls.world = World()  # after the transaction of the class has begun; test data would be copied for each test
        cls.world.build()
        cls.callers = [*people(), *tokens()]
        forget_all_stores()  # or Django would begin a transaction in each, too

    def setUp(self) -> None:
        """Keep the home of the class, and leave no store open for Django to roll back."""
        self.addCleanup(forget_all_stores)

    def caller(self, name: str) -> Caller:
        return next(caller for caller in self.callers if caller.name == name)

    def each(self, callers: list[Caller] | None = None) -> Iterator[Caller]:
        for caller in callers or self.callers:
            with self.subTest(caller=caller.name):
                yield caller

    def unchanged(self, ask: Callable[[], Reply]) -> Reply:
        before = self.folder.state()
        reply = ask()
        after = self.folder.state()
        self.assertEqual([key for key in after if after[key] != before.get(key)], [], f"it wrote: {reply.text[:300]}")
        return reply

    def assert_keeps(self, reply: Reply, caller: Caller, asked: str = "") -> None:
        self.assertEqual(reply.names(caller.hidden, asked), [], f"{reply.status} {reply.text[:600]}")


def people() -> list[Caller]:
    """Return a person of each role of the hub, signed in."""
    made: list[tuple[str, User]] = [
        ("viewer", add_person(command=PersonAdd(name="vic", role="viewer"))),
        ("reviewer", add_person(command=PersonAdd(name="rea", role="reviewer"))),
        ("owner", ensure_owner()),
    ]
    return [
        Caller(role, dict.fromkeys(PLACES, _ROLES[role]), _ROLES[role], browser=browser_of(user)) for role, user in made
    ]


def tokens() -> list[Caller]:
    """Return a token of each verb for the whole hub, for the project, and for another one."""
    found = []
    for verb, acts in _VERBS.items():
        for label, projects in (("hub", None), ("own", [OWN]), ("other", [OTHER]), ("both", [SISTER, OTHER])):
            if label == "both" and verb != "write":
                continue
            name = f"{label}-{verb}"
            command = TokenCreate.model_validate({"name": name, "projects": projects, "verbs": [verb]})
            at = dict.fromkeys(projects if projects is not None else PLACES, acts)
            text = create_token(command=command, by="owner")[1]
            found.append(Caller(name, at, acts if projects is None else frozenset(), text))
    return found


def browser_of(user: User | None) -> Client:
    browser = Client(headers={"host": "localhost"}, raise_request_exception=False)
    if user is not None:
        browser.force_login(user)
    return browser


def nobodies() -> list[Caller]:
    """Return callers whom the hub does not know: without a token, with a made up one, and not signed in."""
    browser = browser_of(None)
    return [
        Caller("nobody", browser=browser),
        Caller("a made up token", token=f"mh_{'0' * 8}_{'x' * 43}"),
    ]


def nowhere(name: str) -> str:
    return NOWHERE[name]
