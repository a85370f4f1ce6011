"""What a server costs, and what it keeps: times, memory, disk, secrets, and writes before a kill."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.sets.model import SetDocument
from benchmarks.speed.figures import Amount, latency
from benchmarks.yardstick.systems import AdaptedServer, end_processes, peak_memory, size_of
from memoryhub.management.bench import BenchClient, generated_memory

_FIRST_OF_SECRETS, _FIRST_OF_KILLS, _FIRST_OF_DELETIONS = 50_000, 60_000, 70_000
# How long a written text may take to be found
_PATIENCE, _POLL_SECONDS = 10.0, 0.2

_LETTERS = string.ascii_letters + string.digits
# Known forms of secrets, filled with characters that no service has issued
_FORMS: tuple[tuple[str, str, str, int], ...] = (
    ("the deploy key is {}", "AKIA", string.ascii_uppercase + "234567", 16),
    ("git clone https://{}@github.com/a/b", "ghp_", _LETTERS, 36),
    ("curl --header 'PRIVATE-TOKEN: {}' https://gitlab.example", "glpat-", _LETTERS, 20),
    ("SLACK_TOKEN={}", "xoxb-123456789012-1234567890123-", _LETTERS, 24),
    ("stripe.api_key = '{}'", "sk_live_", _LETTERS, 24),
    ("OPENAI_API_KEY={}", "sk-proj-", _LETTERS, 48),
    ("maps key: {}", "AIza", _LETTERS, 35),
    ("export DB_PASSWORD={}", "", _LETTERS, 18),
    ("psql postgres://ada:{}@db.example/x", "", _LETTERS, 16),
    ("npm login with {}", "npm_", _LETTERS, 36),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of each is measured."""

    writes: int = 300
    searches: int = 100
    starts: int = 5
    secrets: int = 20
    kills: int = 10
    deletions: int = 5


@dataclass(slots=True)
class ServerResult:
    """The costs of a server; what could not be measured is None, with the reason in ``failures``."""

    system: str
    start: Amount | None = None
    write: Amount | None = None
    search: Amount | None = None
    peak_bytes: int | None = None
    disk_bytes: int | None = None
    # Secrets that an answer or a file has
    secrets: int = 0
    secrets_in_answers: int | None = None
    secrets_in_files: int | None = None
    kills: int = 0
    lost: int | None = None
    deletions: int = 0
    still_given: int | None = None
    failures: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def measure_server(server: AdaptedServer, effort: Effort, progress: Callable[[str], object]) -> ServerResult:
    """Take all measures; one that fails is left out with its reason, and the others go on."""
    result = ServerResult(server.name)
    for what, measure in (
        ("starts", _measure_starts),
        ("calls", _measure_calls),
        ("secrets", _measure_secrets),
        ("deletions", _measure_deletions),
        ("kills", _measure_kills),
    ):
        progress(f"{server.name}: {what}")
        try:
            with server.home() as home:
                measure(server, home, effort, result)
        except Exception as error:  # noqa: BLE001 - a cell with the reason, whatever failed in another's program
            result.failures.append(f"{what}: {' '.join(f'{error}'.split())[:300] or type(error).__name__}")
    return result


def _measure_starts(server: AdaptedServer, home: Path, effort: Effort, result: ServerResult) -> None:
    seconds = []
    for _ in range(effort.starts + 1):
        started = time.perf_counter()
        with server.opened(home) as client:
            client.ask("tools/list")
            seconds.append(time.perf_counter() - started)
    result.start = latency(seconds[1:])  # the first may compile or download


def _measure_calls(server: AdaptedServer, home: Path, effort: Effort, result: ServerResult) -> None:
    documents = [_memory(number) for number in range(effort.writes)]
    with server.opened(home) as client:
        seconds = [server.write(client, document, number)[0] for number, document in enumerate(documents)]
        result.write = latency(seconds)
        chosen = random.Random(0).choices(documents, k=effort.searches + 1)  # noqa: S311 - the same on every run
        seconds = [server.search(client, document.title)[0] for document in chosen]
        result.search = latency(seconds[1:])
        result.peak_bytes = peak_memory(home) or client.peak_resident_bytes()
    result.disk_bytes = size_of(home)


def _measure_secrets(server: AdaptedServer, home: Path, effort: Effort, result: ServerResult) -> None:
    chance = random.Random(2026)  # noqa: S311 - the same on every run
    answers: list[str] = []
    values: list[str] = []
    with server.opened(home) as client:
        for number in range(effort.secrets):
            text, prefix, alphabet, size = _FORMS[number % len(_FORMS)]
            values.append(prefix + "".join(chance.choice(alphabet) for _ in range(size)))
            subject = _memory(_FIRST_OF_SECRETS + number)
            document = SetDocument("", f"{subject.title}: {text.format(values[-1])}", subject.title)
            server.write(client, document, number)
            answers.append(server.search(client, subject.title)[1])
    stored = [path.read_bytes() for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    result.secrets = len(values)
    result.secrets_in_answers = sum(value in answer for value, answer in zip(values, answers, strict=True))
    result.secrets_in_files = sum(any(value.encode() in content for content in stored) for value in values)


def _measure_deletions(server: AdaptedServer, home: Path, effort: Effort, result: ServerResult) -> None:
    call = server.adapter.delete
    if call is None:
        return
    still_given = 0
    with server.opened(home) as client:
        for number in range(effort.deletions):
            document = _memory(_FIRST_OF_DELETIONS + number)
            _, name = server.write(client, document, number)
            client.call(call.tool, call.filled({"id": name, "key": f"k{number:05}"}))
            still_given += f"k{number:05}" in server.search(client, document.title)[1]
    result.deletions, result.still_given = effort.deletions, still_given


def _measure_kills(server: AdaptedServer, home: Path, effort: Effort, result: ServerResult) -> None:
    """Kill all processes right after a write was acknowledged, start again, and search for the text."""
    lost = 0
    for number in range(effort.kills):
        document = _memory(_FIRST_OF_KILLS + number)
        with server.opened(home) as client:
            server.write(client, document, number)
            end_processes(home, client)
        with server.opened(home) as client:
            lost += not _is_found(server, client, document.title, number)
    result.kills, result.lost = effort.kills, lost


# Some index a text some time after they acknowledged it
def _is_found(server: AdaptedServer, client: BenchClient, title: str, number: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while f"k{number:05}" not in server.search(client, title)[1]:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _memory(number: int) -> SetDocument:
    memory = generated_memory(number)
    return SetDocument(f"{number}", f"{memory['title']}: {memory['content']}", memory["title"])
