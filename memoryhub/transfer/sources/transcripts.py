"""Build sessions from the transcripts that clients keep, within limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from governance.findings.commands import command_name
from memories.lessons.rules import LATE, cures_failure, looks, normalized_command, only_looks
from memoryhub.core.errors import Invalid
from memoryhub.core.text import first_line
from memoryhub.transfer.records import LeftOutRecord, Record, SessionRecord, Transcript
from memoryhub.transfer.sources.reading import json_objects, text_of
from sessions_app.services.capture import path_in_project
from sessions_app.services.past_sessions import PastCommand, PastEdit, PastTurn

# Turns of a session, and characters of all of them
MAX_TURNS = 10_000
MAX_CHARACTERS = 16 * 2**20
# Lines of a file that are read to learn the folder of its session
_HEAD = 100
# As several clients write it into the output of a command
EXIT_CODE = re.compile(r"\b[Ee]xit(?:ed with)? code:? (\d{1,3})\b")
EPOCH = datetime.fromtimestamp(0, UTC)
# Failures that wait for a cure, and other runs that are kept until one comes
_MOST_FAILING, _MOST_BETWEEN = 20, 8


@dataclass(slots=True)
class _TranscriptTurn:
    prompt: str
    at: datetime | None
    is_command: bool
    answers: list[str] = field(default_factory=list)
    ended: datetime | None = None
    # Edits of one file in a row are one
    actions: list[PastCommand | PastEdit] = field(default_factory=list)

    def past(self) -> PastTurn:
        return PastTurn(self.prompt, "\n\n".join(self.answers), self.at, self.ended, tuple(self.actions))


class TranscriptBuilder:
    """Collects the turns of one session, message by message, in their order.

    Of the commands it keeps those that failed, and what ran until they passed: other commands without their output.
    Paths of edited files are those in the working tree.
    """

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.folder = ""
        self.title = ""
        self.summary = ""
        # Turns that were left out because the session is too long
        self.beyond = 0
        self._turns: list[_TranscriptTurn] = []
        self._characters = 0
        # Commands that were called, by the id of the call
        self._calls: dict[str, str] = {}
        self._runs = _CommandRuns()
        self._started: datetime | None = None
        self._ended: datetime | None = None

    def note(self, at: datetime | None, folder: str = "") -> None:
        """Take the time of a message, and the folder that it was written in; the first folder counts."""
        self.folder = self.folder or folder
        self._started = self._started or at
        self._ended = at or self._ended

    def begin(self, prompt: str, at: datetime | None, *, is_command: bool = False) -> None:
        """Begin a turn with the user's words; a turn of a client's own command counts only with an answer."""
        self._characters += len(prompt)
        if self.beyond or len(self._turns) >= MAX_TURNS or self._characters > MAX_CHARACTERS:
            self.beyond += 1
        else:
            self._turns.append(_TranscriptTurn(prompt, at, is_command))

    def answer(self, text: str, at: datetime | None) -> None:
        """Add a text of the model to the turn."""
        self._characters += len(text)
        if text and self._turns and not self.beyond and self._characters <= MAX_CHARACTERS:
            self._turns[-1].answers.append(text)
            self._turns[-1].ended = at or self._turns[-1].ended

    def call(self, call_id: str, command: str) -> None:
        """Take a command that the model runs, under the id that its result names."""
        self._calls[call_id] = command

    def result(self, call_id: str, output: str, exit_code: int | None, at: datetime | None) -> None:
        self.run(self._calls.pop(call_id, ""), output, exit_code, at)

    def run(self, command: str, output: str, exit_code: int | None, at: datetime | None) -> None:
        """Take a command and its result; ``exit_code`` is None if the command did not run to its end."""
        if not command or exit_code is None or not self._turns or self.beyond:
            return
        run = self._runs.stored(PastCommand(command, output, exit_code, at))
        if run:
            self._characters += len(run.command) + len(run.output)
            self._turns[-1].actions.append(run)

    def edit(self, path: str) -> None:
        """Take a file that the model changed in the turn."""
        edit = PastEdit(path_in_project(path, self.folder))
        if path and self._turns and not self.beyond and self._turns[-1].actions[-1:] != [edit]:
            self._characters += len(path)
            self._turns[-1].actions.append(edit)

    def undo(self, count: int) -> None:
        """Remove the latest turns, which the user has taken back."""
        beyond = min(max(count, 0), self.beyond)
        self.beyond -= beyond
        if count > beyond:
            del self._turns[beyond - count :]

    def records(self, key: str, place: str, *, broken: Sequence[int] = ()) -> Iterator[Record]:
        """Yield the session, and what is left out of it; ``broken`` are the lines that were not read."""
        turns = [turn for turn in self._turns if turn.answers or not turn.is_command]
        if turns:
            yield SessionRecord(
                key=key,
                purpose=self.title or first_line(turns[0].prompt),
                turns=tuple(turn.past() for turn in turns),
                summary=self.summary,
                agent=self.agent,
                project=self.folder,
                started=self._started,
                ended=self._ended,
                place=place,
            )
        else:
            yield LeftOutRecord(place, "it has no turns")
        if broken:
            yield LeftOutRecord(f"{place}:{broken[0]}", f"lines that are cut off, too long or no JSON: {len(broken)}")
        if self.beyond:
            yield LeftOutRecord(place, f"turns after the first {len(turns):,}: {self.beyond:,}")


class _FailedRun(NamedTuple):
    steps: tuple[str, ...]
    # Among the commands of the session
    number: int


class _CommandRuns:
    """Chooses the runs of a session's commands that show what failed, and what cured it."""

    def __init__(self) -> None:
        self._number = 0
        self._failing: list[_FailedRun] = []
        # Runs that were kept since the first failure that still waits
        self._between = 0
        # Programs that passed
        self._passed: set[str] = set()

    def stored(self, run: PastCommand) -> PastCommand | None:
        """Return a run as it is stored; None for one that says nothing about a failure."""
        self._number += 1
        steps = normalized_command(run.command)
        if not steps:
            return None
        name = command_name(steps[0]) if len(steps) == 1 else ""
        if run.exit_code:
            if not only_looks(steps, {"exit_code": run.exit_code}):
                self._failing = [*self._failing[-_MOST_FAILING:], _FailedRun(steps, self._number)]
            return replace(run, passed_before=name in self._passed)
        self._passed |= {name} - {""}
        waiting = [failed for failed in self._failing if not self._is_cured(failed, steps)]
        is_cure = len(waiting) < len(self._failing)
        self._failing = [failed for failed in waiting if self._number - failed.number <= LATE]
        if is_cure:
            self._between = 0
            return run
        if not self._failing or self._between >= _MOST_BETWEEN or all(map(looks, steps)):
            return None
        self._between += 1
        return replace(run, output="")

    def _is_cured(self, failed: _FailedRun, steps: Sequence[str]) -> bool:
        return cures_failure(failed.steps, steps, self._number - failed.number)


def transcripts_of(
    entries: Iterable[Path | LeftOutRecord],
    *,
    folder: Callable[[Path], str],
    read: Callable[[Path], Iterator[Record]],
    key: Callable[[Path], str] = lambda path: path.stem,
) -> Iterator[Transcript]:
    """Yield a transcript for each file, and for what is left out, which its reading tells.

    Args:
        entries: as ``files_below`` yields them.
        folder: reads the folder in which the client worked from the head of a file.
        read: yields the records of a file.
        key: the session's name, from the file's.
    """
    for entry in entries:
        if isinstance(entry, LeftOutRecord):
            yield Transcript(entry.place, "", Path(entry.place), 0, EPOCH, partial(iter, [entry]))
            continue
        try:
            status = entry.stat()
        except OSError:
            continue  # it was deleted since
        changed = datetime.fromtimestamp(status.st_mtime, UTC)
        yield Transcript(key(entry), folder(entry), entry, status.st_size, changed, partial(read, entry))


class SessionReader(Protocol):
    """Takes the lines of a session's file one by one."""

    def read(self, line: dict[str, Any]) -> None: ...

    def records(self, place: str, broken: list[int]) -> Iterator[Record]: ...


def line_records(reader: Callable[[Path], SessionReader], path: Path) -> Iterator[Record]:
    """Yield the session of a file of JSON lines, and what is left out of it."""
    session = reader(path)
    broken = []
    for number, line in json_objects(path):
        if line is None:
            broken.append(number)
        else:
            session.read(line)
    yield from session.records(str(path), broken)


def head_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in the first lines of a file; none if it can't be read, which its reading tells."""
    try:
        for _, line in islice(json_objects(path), _HEAD):
            if line:
                yield line
    except Invalid:
        return


def folder_in(path: Path) -> str:
    """Return the folder that a session was in, or "" if the first lines of its file don't say."""
    return next(filter(None, (text_of(line.get("cwd")) for line in head_lines(path))), "")


def folder_of_project(folder: Path, pattern: str) -> str:
    """Return the folder that one of a project's transcripts names, else the name of the client's folder for it.

    That name has lost which of its characters were no letters.
    """
    return next(filter(None, map(folder_in, sorted(folder.glob(pattern)))), folder.name)
