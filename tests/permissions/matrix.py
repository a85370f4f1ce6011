"""The base of the matrix: every request by every caller, and what may come of it.

The quick form, which ``make test`` runs, sends each request by one caller of each group that is treated alike: of
those who do not see the place, of those who see it with the same rights, and of those who have just the right that it
needs. The callers of a group take turns with the requests. The whole form has more groups and runs with the attacks;
``MEMORY_HUB_TORTURE=long`` sends everything by everybody.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from django.db import connections
from django_q.models import Schedule

from memoryhub.core.backends.selected import stores
from memoryhub.core.permissions import Act
from memoryhub.core.stores.store_id import Scope
from tests.databases import at_home, on_postgresql, remove_home
from tests.home import run_home
from tests.permissions.callers import Caller, nobodies, people, tokens
from tests.permissions.world import GLOBAL, NOWHERE, PLACES, World
from tests.support import HubTestCase, forget_all_stores, share_template
from tests.torture.rounds import is_long

# What differs between two answers to the same request
_MOMENTARY = re.compile(
    r'(name="csrfmiddlewaretoken" value=")\w+|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?|(?<="confirm_token": ")\w+'
)
_HEADERS_OF_A_MOMENT = {"Content-Length", "Date", "Expires", "Last-Modified", "Set-Cookie"}

# Those who may send a request besides, or alone
Who = Literal["", "anyone", "known", "people", "whole"]


@dataclass(frozen=True)
class Request:
    """A request, and what it needs: ``act`` in ``place``, the name of a place, or empty for the hub."""

    label: str
    method: str
    path: str
    act: Act = Act.VIEW
    place: str = ""
    # Fields of a form, a body of JSON, or the parameters of a method of MCP
    body: Any = None
    writes: bool = False
    # The place in the address, if it is not the one that it changes
    address: str | None = None
    who: Who = ""
    # It shows which places there are to those who manage people.
    lists_places: bool = False

    def asked(self, caller: Caller) -> str:
        """Return what the caller knows from sending it: only texts of a hidden place count then."""
        names = PLACES if self.lists_places and Act.ADMINISTER in caller.hub else ()
        is_named = self.is_hidden_from(caller) or not caller.is_known or self.lists_places
        return " ".join([*names, self.path if is_named else ""])

    @property
    def where(self) -> str:
        return self.place if self.address is None else self.address

    def is_for(self, caller: Caller) -> bool:
        if self.who in ("anyone", "known"):
            return self.who == "anyone" or caller.is_known
        if self.who == "people" and Act.ADMINISTER in caller.hub:
            return True
        has_rights = self.act in caller.acts(self.place) and bool(caller.acts(self.where))
        return has_rights and (self.who != "whole" or caller.is_whole)

    def is_hidden_from(self, caller: Caller) -> bool:
        return bool(self.where) and not caller.acts(self.where) and not self.is_for(caller)

    def elsewhere(self) -> Request:
        """Return the same request to a place that does not exist."""
        return replace(self, path=self.path.replace(self.where, NOWHERE.get(self.where, self.where)))


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
        for name in filter(None, names):
            text, head = text.replace(name, "…"), head.replace(name, "…")
        return status, text, head

    def names(self, hidden: frozenset[str], asked: str = "") -> list[str]:
        """Return the hidden names in it; of a name that the caller sent, only its texts count."""
        answer = f"{self.text} {self.head}".lower()
        return sorted(name for name in hidden if name in answer and _pattern(name, asked).search(answer))


def _pattern(name: str, asked: str) -> re.Pattern[str]:
    # Texts of a place are its name and a blank; the name alone is what was asked for.
    return re.compile(rf"{name} (?:memory|text|rule|decision|purpose|commit|prompt|tag)" if name in asked else name)


class Home:
    """A folder of its own for a class, and what a write changes in it and in ``hub.db``."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="matrix-", dir=run_home()))
        # A connection to each store, with the number of its file
        self._readers: dict[Path, tuple[int, sqlite3.Connection]] = {}
        self._heads: dict[str, Any] = {}
        self._rows: dict[str, Any] = {}
        # Of the connection to hub.db, which all doors share: while it is the same, so are the rows.
        self._written = -1

    def look(self) -> None:
        """Read everything again, as after a transaction that was rolled back."""
        self._written = -1
        self.changes()

    def remove(self) -> None:
        for _, reader in self._readers.values():
            reader.close()
        remove_home(self.path)

    def changes(self) -> list[str]:
        """Return the logs and tables that have changed since the last call."""
        before = self._heads | self._rows
        self._heads = self._read_heads()
        written = -1 if on_postgresql() else connections["default"].connection.total_changes
        if written != self._written or written < 0:
            self._written, self._rows = written, _rows()
        return [name for name, found in (self._heads | self._rows).items() if found != before.get(name)]

    def _read_heads(self) -> dict[str, Any]:
        if not on_postgresql():
            folders = ("projects/*", "orgs/*", "global")
            paths = (path for folder in folders for path in self.path.glob(f"{folder}/events.db"))
            return {str(path.relative_to(self.path)): self._head(path) for path in paths}
        from memoryhub.core.backends.postgresql.locations import direct

        empty = {f"{scope}:{name}": 0 for scope in (Scope.PROJECT, Scope.ORG) for name in stores.names(scope)}
        return empty | dict(direct().rows("SELECT store, position FROM heads.anchors"))

    def _head(self, path: Path) -> int:
        inode = path.stat().st_ino
        known = self._readers.get(path)
        if known is None or known[0] != inode:
            self._readers[path] = known = inode, sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        return int(known[1].execute("SELECT max(position) FROM raw_events").fetchone()[0] or 0)


# What every request may write: the sessions of browsers, and when a token or a link was used. Leases are processes'.
_OF_USE = {"django_session": None, "leases": None, "memoryhub_agenttoken": ("last_used_at", "last_used_from")}


def _rows() -> dict[str, Any]:
    rows = {}
    with connections["default"].cursor() as cursor:
        for table, columns in _kept_columns().items():
            cursor.execute(f"SELECT {columns} FROM {table} ORDER BY 1")
            rows[table] = cursor.fetchall()
    return rows


@cache
def _kept_columns() -> dict[str, str]:
    kept = {}
    with connections["default"].cursor() as cursor:
        for table in connections["default"].introspection.table_names(cursor):
            spare = _OF_USE.get(table, ("last_login",))
            if spare is not None:
                columns = connections["default"].introspection.get_table_description(cursor, table)
                kept[table] = ", ".join(f'"{column.name}"' for column in columns if column.name not in spare)
    return kept


class MatrixTestCase(HubTestCase):
    """A home with all places, and all callers, made once for a class; a subclass has a door to send through."""

    is_whole: ClassVar[bool] = False
    world: ClassVar[World]
    callers: ClassVar[list[Caller]]
    folder: ClassVar[Home]
    _made: ClassVar[list[tuple[World, list[Caller]]]]
    # How many requests the test has judged: whose turn it is in each group of callers
    _turn: int

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Home()
        cls.addClassCleanup(cls.folder.remove)
        cls.addClassCleanup(forget_all_stores)
        cls.enterClassContext(at_home(cls.folder.path))
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
        callers = [*people(), *tokens(), *nobodies()]
        for caller in callers:
            assert caller.client  # signed in for the whole class
        cls._made.append((world, callers))
        forget_all_stores()  # or Django would begin a transaction in each, too

    def setUp(self) -> None:
        """Keep the home of the class, and leave no store open for Django to roll back."""
        self.addCleanup(forget_all_stores)
        self._turn = 0
        self.folder.look()

    def send(self, request: Request, caller: Caller) -> Reply:
        raise NotImplementedError

    def check_allowed(self, reply: Reply, request: Request, caller: Caller) -> None:
        raise NotImplementedError

    def check_denied(self, reply: Reply, request: Request, caller: Caller) -> None:
        raise NotImplementedError

    def judge(self, make: Callable[[], Request]) -> None:
        """Send a request by the chosen callers; fail once, with all for whom it went wrong.

        A write that was denied to the others is then sent by the first who may, so it was a real one.
        """
        request = make()
        denied, allowed = self.chosen(request)
        self._turn += 1
        self.folder.changes()
        with self.row(request) as wrong:
            for caller in denied:
                with wrong.of(caller):
                    self.assert_denied(request, caller)
            for number, caller in enumerate(allowed):
                with wrong.of(caller):
                    own = make() if number and request.writes else request
                    self.folder.changes()
                    self.assert_allowed(own, caller)

    def judge_naming(self, request: Request, place: str, other: Request, callers: Iterable[Caller]) -> list[Reply]:
        """Send a request that names a place to callers who do not see it; return their answers."""
        self._turn += 1
        replies = []
        with self.row(request) as wrong:
            for caller in callers if is_long() else self.one_of_each(request, callers):
                with wrong.of(caller):
                    replies.append(self.assert_nowhere(request, place, other, caller))
        return replies

    def caller(self, name: str) -> Caller:
        return next(caller for caller in self.callers if caller.name == name)

    @contextmanager
    def row(self, request: Request) -> Iterator[Wrong]:
        wrong = Wrong()
        with self.subTest(request=request.label):
            yield wrong
            if wrong.callers:
                self.fail(f"{request.label}: {wrong}")

    def chosen(self, request: Request) -> tuple[list[Caller], list[Caller]]:
        """Return those who may not send a request and those who may, of each group one or all."""
        allowed = [caller for caller in self.callers if request.is_for(caller)]
        denied = [caller for caller in self.callers if caller not in allowed]
        if is_long():
            return denied, allowed
        if not self.is_whole and allowed:
            fewest = min(len(caller.acts(request.place)) for caller in allowed)
            allowed = [caller for caller in allowed if len(caller.acts(request.place)) == fewest]
        return self.one_of_each(request, denied), self.one_of_each(request, allowed)

    def one_of_each(self, request: Request, callers: Iterable[Caller]) -> list[Caller]:
        groups: dict[Hashable, list[Caller]] = defaultdict(list)
        for caller in callers:
            rights = caller.acts(request.where), caller.acts(request.place)
            details = (caller.is_known, caller.is_person, caller.hub, caller.is_whole) if self.is_whole else ()
            groups[rights, details].append(caller)
        return [group[self._turn % len(group)] for group in groups.values()]

    def assert_allowed(self, request: Request, caller: Caller) -> None:
        reply = self.send(request, caller)
        changes = self.folder.changes()
        self.check_allowed(reply, request, caller)
        self.assert_keeps(reply, caller, request.asked(caller))
        if request.writes and not changes:
            self.fail(f"it changed nothing: {_main_text(reply)}")

    def assert_denied(self, request: Request, caller: Caller) -> None:
        """Check that nothing is seen or changed, and that a hidden place is answered as one that does not exist."""
        is_hidden = request.is_hidden_from(caller)
        reply = self.send(request, caller)
        elsewhere = self.send(request.elsewhere(), caller) if is_hidden and request.where != GLOBAL else None
        self.assert_unchanged(reply)
        self.check_denied(reply, request, caller)
        self.assert_keeps(reply, caller, request.asked(caller))
        if elsewhere:
            self.assert_same(reply, request.where, elsewhere, NOWHERE[request.where])

    def assert_nowhere(self, request: Request, name: str, other: Request, caller: Caller) -> Reply:
        """Check that a request that names a hidden place is answered as the other, which names none that exists."""
        self.folder.changes()
        reply, elsewhere = self.send(request, caller), self.send(other, caller)
        self.assert_unchanged(reply)
        self.assert_same(reply, name, elsewhere, NOWHERE[name])
        self.assert_keeps(reply, caller, f"{request.path} {request.body}")
        return reply

    def assert_unchanged(self, reply: Reply) -> None:
        if changes := self.folder.changes():
            self.fail(f"it changed {', '.join(changes)}: {reply.status} {_main_text(reply)}")

    def assert_same(self, reply: Reply, name: str, elsewhere: Reply, nowhere: str) -> None:
        found, expected = reply.without(name), elsewhere.without(nowhere)
        if found != expected:
            pairs = enumerate(zip(found[1], expected[1], strict=False))
            at = next((number for number, pair in pairs if pair[0] != pair[1]), 0)
            parts = [answer[1][max(at - 40, 0) : at + 80] for answer in (found, expected)]
            self.fail(f"the answer tells {name} from {nowhere}: {found[0]}, {expected[0]}; {parts[0]!r}, {parts[1]!r}")

    def assert_keeps(self, reply: Reply, caller: Caller, asked: str = "") -> None:
        if names := reply.names(caller.hidden, asked):
            at = reply.text.lower().find(names[0])
            self.fail(f"the answer names {', '.join(names)}: {reply.status} {reply.text[max(at - 60, 0) : at + 60]!r}")

    def assert_status(self, reply: Reply, *statuses: int) -> None:
        if reply.status not in statuses:
            self.fail(f"status {reply.status} instead of {statuses}: {_main_text(reply)}")


class Wrong:
    """What went wrong with one request, by the caller."""

    def __init__(self) -> None:
        self.callers: dict[str, list[str]] = defaultdict(list)

    @contextmanager
    def of(self, caller: Caller) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            self.callers[str(error)].append(caller.name)

    def __str__(self) -> str:
        names = ", ".join(name for callers in self.callers.values() for name in callers)
        reasons = "\n".join(f"{reason} ({', '.join(callers)})" for reason, callers in self.callers.items())
        return f"wrong for {names}: {reasons}"


def _main_text(reply: Reply) -> str:
    main = reply.text.partition("<main")[2] or reply.text
    return " ".join(re.sub(r"<[^>]+>", " ", main).split())[:300]
