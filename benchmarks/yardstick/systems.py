"""What is asked: a memory server by its adapter, and BM25 of a library; each is one door to a filled store."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.quality.references import bm25_ranking
from benchmarks.sets.model import Collection, SetDocument
from benchmarks.yardstick.adapters import ServerAdapter
from memoryhub.core.errors import Unavailable
from memoryhub.management.bench import BenchClient, peak_of

LIMIT = 10
SEARCH, CONTEXT = "search", "context"
BYTES_PER_TOKEN = 4
# A server may load a model at its first call
_PATIENCE = 300.0
# Share of documents that a server may refuse; with more, it is not measured
_REFUSED_AT_MOST = 0.05
KEY = re.compile(r"(?<![A-Za-z0-9])k(\d{5,})(?![A-Za-z0-9])")
# What an answer says beside an entry that is not to be trusted
# A field of JSON that says no is none: ``"superseded_by": null``
_MARK = re.compile(
    r"(?:supersed|outdated|obsolete|deprecated|stale|expired|amended|contradict|conflict|replaced by|rejected|disputed"
    r"|changed since|has changed|not merged|uncommitted work|not accepted|from a tool|from a web page|from an import)"
    r"\w*+(?![\"']?\s*[:=]\s*(?:null|false|none|0\b|\[\s*\]|\"\"))",
    re.IGNORECASE,
)
# Names the home in the environment of a server and of all processes that it starts, also in the background
_MARKER = "MEMORY_HUB_YARDSTICK_HOME"


@dataclass(frozen=True, slots=True)
class Answer:
    # Of the documents in it, in order of first occurrence
    keys: tuple[str, ...]
    # Those with a word that warns of them
    marked: frozenset[str]
    tokens: int


Door = Callable[[str], Answer]


@dataclass(frozen=True, slots=True)
class FilledStore:
    doors: Mapping[str, Door]
    # Documents that it did not take
    refused: int = 0


class MemorySystem(Protocol):
    """Something that can be filled and asked."""

    name: str

    def filled(self, collection: Collection) -> AbstractContextManager[FilledStore]:
        """Write a collection into an empty store, and return this."""


def answer_from(text: str, pattern: re.Pattern[str], texts: Mapping[str, tuple[str, str]]) -> Answer:
    """Recognise documents in an answer.

    Args:
        text: the answer.
        pattern: has one group, around the name of a document.
        texts: key and text of each document, by that name.
    """
    matches = [match for match in pattern.finditer(text) if match[1] in texts]
    keys = tuple(dict.fromkeys(texts[match[1]][0] for match in matches))
    marked: set[str] = set()
    # What is about an entry begins with its line, or at its key if another one is before it in that line
    begins: list[int] = []
    for match in matches:
        line = text.rfind("\n", 0, match.start()) + 1
        begins.append(line if not begins or line > begins[-1] else match.start())
    for match, start, end in zip(matches, begins, [*begins[1:], len(text)], strict=False):
        key, stored = texts[match[1]]
        if _MARK.search(_without(text[start:end], stored)):
            marked.add(key)
    return Answer(keys, frozenset(marked), len(text.encode()) // BYTES_PER_TOKEN)


# The words of the stored text itself warn of nothing
def _without(part: str, stored: str) -> str:
    words = set(re.findall(r"\w+", stored.casefold()))
    return "".join(word for word in re.findall(r"\w+|\W", part) if word.casefold() not in words)


class AdaptedServer:
    def __init__(self, adapter: ServerAdapter, programs: Path) -> None:
        self.name = adapter.name
        self.adapter = adapter
        self._programs = programs

    @contextmanager
    def home(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(prefix="yardstick-"))
        try:
            yield folder
        finally:
            end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)

    def connect(self, home: Path) -> BenchClient:
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
        environment |= {"HOME": str(home), "TMPDIR": str(home), _MARKER: str(home)}
        environment |= self.adapter.environment_in(self._programs, home)
        client = BenchClient(self.adapter.command_in(self._programs, home), home, environment, patience=_PATIENCE)
        client.name = self.name
        return client

    @contextmanager
    def opened(self, home: Path) -> Iterator[BenchClient]:
        with self.connect(home) as client:
            client.open()
            yield client

    def write(self, client: BenchClient, document: SetDocument, number: int) -> tuple[float, str]:
        """Return the seconds that a write took, and the id."""
        key = f"k{number:05}"
        time = document.time.isoformat() if document.time else ""
        values = {"key": key, "text": f"[{key}] {document.text}", "title": document.title or document.text[:60]}
        values |= {"session": document.session, "speaker": document.speaker, "time": time}
        seconds, answer = client.timed(self.adapter.write.tool, self.adapter.write.filled(values))
        if not self.adapter.write.id:
            return seconds, key
        match = re.search(self.adapter.write.id, answer)
        if match is None:
            raise Unavailable(f"{self.name} answered a write without an id: {answer[:200]!r}")
        return seconds, match[1]

    def search(self, client: BenchClient, query: str) -> tuple[float, str]:
        """Return the seconds that a search took, and its answer."""
        return client.timed(self.adapter.search.tool, self.adapter.search.filled({"query": query, "limit": LIMIT}))

    @contextmanager
    def filled(self, collection: Collection) -> Iterator[FilledStore]:
        texts = {f"{place:05}": (document.key, document.text) for place, document in enumerate(collection.documents)}
        most_refused = _REFUSED_AT_MOST * len(collection.documents)
        refused = 0
        with self.home() as home, self.opened(home) as client:
            for place, document in enumerate(collection.documents):
                try:
                    self.write(client, document, place)
                except Unavailable:  # such as one that is too long for it
                    refused += 1
                    if refused > most_refused:
                        raise

            def search(query: str) -> Answer:
                return answer_from(self.search(client, query)[1], KEY, texts)

            def context(query: str) -> Answer:
                call = self.adapter.context
                assert call  # noqa: S101 - else there is no such door
                return answer_from(client.call(call.tool, call.filled({"query": query, "limit": LIMIT})), KEY, texts)

            yield FilledStore({SEARCH: search, **({CONTEXT: context} if self.adapter.context else {})}, refused)


class LibraryBm25:
    """BM25 as the library bm25s has it, of titles and texts."""

    name = "BM25 (bm25s)"

    @contextmanager
    def filled(self, collection: Collection) -> Iterator[FilledStore]:
        texts = [f"{document.title} {document.text}".strip() for document in collection.documents]
        # The library cannot index nothing
        rank = bm25_ranking(texts) if texts else None

        def search(query: str) -> Answer:
            places = rank(query)[:LIMIT] if rank else []
            keys = tuple(collection.documents[place].key for place in places)
            return Answer(keys, frozenset(), sum(len(texts[place].encode()) for place in places) // BYTES_PER_TOKEN)

        yield FilledStore({SEARCH: search})


def processes_of(home: Path) -> list[int]:
    """Return the ids of all processes that a server in this home started; none outside Linux."""
    marker = f"{_MARKER}={home}".encode()
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker in (folder / "environ").read_bytes().split(b"\0"):
                processes.append(int(folder.name))
    return processes


def end_processes(home: Path, client: BenchClient | None = None) -> None:
    """Kill all processes of a home at once, as a power cut does."""
    for process in {*processes_of(home), *([client.process_id] if client else [])}:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def peak_memory(home: Path) -> int:
    """Return the sum of the peak resident memory of all processes of a home, in bytes."""
    peaks = 0
    for process in processes_of(home):
        with suppress(OSError, KeyError):
            peaks += peak_of(process)
    return peaks


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def sampled(items: Sequence[Any], count: int | None, chance: Any) -> list[Any]:
    """Return ``count`` of the items in their order, chosen at random; all if there are no more."""
    if count is None or len(items) <= count:
        return list(items)
    return [items[place] for place in sorted(chance.sample(range(len(items)), count))]
