"""The load: clients that write, search and read at their own pace, a person in the admin, and a hub that is killed."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from asgiref.sync import sync_to_async

from benchmarks.load.client import HttpClient, Refused
from benchmarks.speed.bench import Progress
from benchmarks.speed.corpus import arguments, question
from benchmarks.speed.processes import Era, HttpServer
from memories.models import Memory
from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.registry.tokens import TokenCreate, create_token
from memoryhub.web.signin import create_link_token, ensure_owner

WRITE, SEARCH, READ, PAGE = "write", "search", "get", "admin page"
# What a client does: an agent reads more than it writes
_MIX = (WRITE, SEARCH, SEARCH, READ, READ)
_PAGES = ("admin/", "admin/memories/memory/", "admin/sessions_app/session/", "admin/core/rawevent/")
_PAGE_EVERY = 1.0
_SAMPLE_EVERY = 1.0
_BATCH = 500
_LOOK_SECONDS = 0.05
# How long a run may go on after its time, where a hub is slow to start again
_MOST_LATE_SECONDS = 120.0
_ID = re.compile(r"^#(\d+) (?!session|message|commit)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Plan:
    projects: int = 20
    clients: int = 50
    seconds: float = 600.0
    # Calls a second of each client
    rate: float = 1.0
    # Memories in each project before the load
    memories: int = 500
    # Seconds between two kills of the hub; 0: none
    kill_every: float = 0.0

    @property
    def names(self) -> list[str]:
        return [f"team-{number:02}" for number in range(self.projects)]


@dataclass
class Outcome:
    """What the clients of one server saw: seconds of each call, by act and by project, and errors by their text."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    writes_of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    # Titles of the writes that were acknowledged, by project
    acknowledged: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    peak_bytes: int = 0
    kills: int = 0
    # Whether the clients go on, after their time, until a kill was noticed
    must_be_killed: bool = False

    def is_over(self, ends: float) -> bool:
        late = time.monotonic() - ends
        noticed = bool(self.kills and self.errors)
        return late >= _MOST_LATE_SECONDS or (late >= 0 and (noticed or not self.must_be_killed))

    @property
    def calls(self) -> int:
        return sum(map(len, self.seconds.values()))

    @property
    def writes(self) -> int:
        return len(self.seconds[WRITE])


class Load:
    def __init__(self, home: Path, plan: Plan, progress: Progress) -> None:
        self._home = home
        self._plan = plan
        self._progress = progress
        self._tokens: list[str] = []

    def prepare(self) -> None:
        """Fill the projects, and create a token for each client."""
        for done, project in enumerate(self._plan.names):
            self._progress("fill the projects", done, self._plan.projects)
            with use_store(project_store(project), create=True):
                made = [MemoryWrite(**arguments(number)) for number in range(self._plan.memories)]
                for start in range(0, len(made), _BATCH):
                    write_memories(commands=made[start : start + _BATCH])
        for number in range(self._plan.clients):
            command = TokenCreate(name=f"client-{number}", projects=[self._project_of(number)], verbs=["write"])
            self._tokens.append(create_token(command=command, by="bench")[1])
        # The server of one project gets the same clients, so each has a token for it too
        first = self._plan.names[0]
        self._first = create_token(command=TokenCreate(name="first", projects=[first], verbs=["write"]), by="bench")[1]

    async def on_the_hub(self) -> Outcome:
        server = HttpServer.hub(self._home)
        await asyncio.to_thread(server.start)
        link = await sync_to_async(lambda: create_link_token(username=ensure_owner().username))()
        clients = [
            (self._project_of(number), f"{server.origin}/p/{self._project_of(number)}/mcp", token)
            for number, token in enumerate(self._tokens)
        ]
        return await self._run("the hub", server, clients, link=link, kill_every=self._plan.kill_every)

    async def on_one_project(self, seconds: float) -> Outcome:
        project = self._plan.names[0]
        server = HttpServer(self._home, "mcp", "--project", project, "--http")
        await asyncio.to_thread(server.start)
        clients = [(project, f"{server.origin}/mcp", self._first)] * self._plan.clients
        return await self._run("mcp --http", server, clients, seconds=seconds)

    def lost(self, outcome: Outcome) -> int:
        """Count the acknowledged writes that the stores don't have."""
        missing = 0
        for project, titles in outcome.acknowledged.items():
            with use_store(project_store(project)):
                missing += len(set(titles) - set(Memory.objects.values_list("title", flat=True)))
        return missing

    def _project_of(self, client: int) -> str:
        return self._plan.names[client % self._plan.projects]

    async def _run(
        self,
        what: str,
        server: HttpServer,
        clients: Sequence[tuple[str, str, str]],
        *,
        seconds: float | None = None,
        link: str = "",
        kill_every: float = 0.0,
    ) -> Outcome:
        outcome = Outcome(must_be_killed=kill_every > 0)
        length = self._plan.seconds if seconds is None else seconds
        ends = time.monotonic() + length
        eras = tuple(Era)
        work = [
            _Agent(number, project, HttpClient(address, token, eras[number % len(eras)]), self._plan, outcome).work(
                ends
            )
            for number, (project, address, token) in enumerate(clients)
        ]
        work.append(_every(_SAMPLE_EVERY, ends, server.measure, lambda: self._report(what, length, ends)))
        if link:
            work.append(_read_pages(server.origin, link, self._plan.names, ends, outcome))
        if kill_every:
            work.append(_kill(server, kill_every, ends, outcome))
        try:
            await asyncio.gather(*work)
        finally:
            server.stop()
        outcome.peak_bytes = server.peak_bytes
        return outcome

    def _report(self, what: str, length: float, ends: float) -> None:
        self._progress(f"load on {what}", round(length - max(0.0, ends - time.monotonic())), round(length))


class _Agent:
    """A client with its own pace, which reads what it has found."""

    def __init__(self, number: int, project: str, client: HttpClient, plan: Plan, outcome: Outcome) -> None:
        self._number = number
        self._project = project
        self._client = client
        self._plan = plan
        self._outcome = outcome
        self._source = random.Random(number)  # noqa: S311 - the same calls on every run
        self._known: list[str] = []
        self._writes = 0

    async def work(self, ends: float) -> None:
        """Make each call once, however slow the server is, and then calls at random until the time is up."""
        try:
            for act in dict.fromkeys(_MIX):
                await self._call(act, ends)
            while not self._outcome.is_over(ends):
                await self._call(self._source.choice(_MIX), ends)
        finally:
            await self._client.close()

    async def _call(self, act: str, ends: float) -> None:
        # Exponential gaps: calls come at random, also several at once
        gap = self._source.expovariate(self._plan.rate)
        await asyncio.sleep(min(gap, max(_LOOK_SECONDS, ends - time.monotonic())))
        await self._measure(act)

    async def _measure(self, act: str) -> None:
        started = time.perf_counter()
        try:
            await self._act(act)
        except Refused as refusal:
            self._outcome.errors[f"{act}: {str(refusal)[:120]}"] += 1
            return
        took = time.perf_counter() - started
        self._outcome.seconds[act].append(took)
        if act == WRITE:
            self._outcome.writes_of[self._project].append(took)

    async def _act(self, act: str) -> None:
        if act == WRITE:
            self._writes += 1
            made = arguments(self._plan.memories + 100_000 * self._number + self._writes)
            await self._client.call("memory_write", made)
            self._outcome.acknowledged[self._project].append(made["title"])
        elif act == READ and self._known:
            await self._client.call("memory_get", {"ids": [int(self._source.choice(self._known))]})
        else:
            asked = question(self._source.randrange(self._plan.memories))
            self._known = _ID.findall(await self._client.call("memory_search", {"query": asked})) or self._known


async def _every(seconds: float, ends: float, *acts: Callable[[], None]) -> None:
    while time.monotonic() < ends:
        for act in acts:
            act()
        await asyncio.sleep(seconds)


async def _read_pages(origin: str, link: str, projects: Sequence[str], ends: float, outcome: Outcome) -> None:
    source = random.Random(0)  # noqa: S311 - the same pages on every run
    async with httpx2.AsyncClient(base_url=origin, follow_redirects=True, timeout=60) as person:
        await person.get(f"/signin/{link}")
        reading = True
        while reading:
            page = f"/p/{source.choice(projects)}/{source.choice(_PAGES)}"
            started = time.perf_counter()
            try:
                response = await person.get(page)
                if response.status_code != httpx2.codes.OK or "/admin/login/" in str(response.url):
                    raise Refused(f"{response.status_code} of {response.url.path}")
                outcome.seconds[PAGE].append(time.perf_counter() - started)
            except (httpx2.HTTPError, Refused) as error:
                outcome.errors[f"{PAGE}: {type(error).__name__} {error}"[:120]] += 1
            await asyncio.sleep(_PAGE_EVERY)
            reading = time.monotonic() < ends


async def _kill(server: HttpServer, every: float, ends: float, outcome: Outcome) -> None:
    while not outcome.is_over(ends - every):
        written = outcome.writes
        await asyncio.sleep(every)
        while outcome.writes == written:  # a hub that has acknowledged nothing can lose nothing
            if outcome.is_over(ends):
                return
            await asyncio.sleep(_LOOK_SECONDS)
        server.kill()
        outcome.kills += 1
        await asyncio.to_thread(server.start)
