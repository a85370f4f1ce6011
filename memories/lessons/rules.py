"""The rules that propose memories from the events of a session. They read events only, and write nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import PurePath
from typing import Any, NamedTuple

from memories.lessons.corrections import correction_of
from memories.search.output import error_lines, without_varying
from memoryhub.core.events.event_types import Speech, names_of_speech
from memoryhub.core.text import counted, first_of, one_line
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED
from sessions_app.selectors import SessionEvent


@dataclass(frozen=True, slots=True)
class Lesson:
    """A memory that a rule proposes."""

    # The rule that found it
    rule: str
    kind: str
    type: str
    title: str
    content: str
    # By which the same lesson is recognised in another session
    subject: str
    # Positions of the events that show it
    events: tuple[int, ...]
    # Greater is better; among all rules
    worth: float
    attributes: Mapping[str, Any] = field(default_factory=dict)


_TITLE = 120
_QUOTE = 600
_COMMAND = 300
_MOST_FILES = 5


def lessons_of(events: Sequence[SessionEvent]) -> list[Lesson]:
    """Return the lessons that one session shows, the best first."""
    lessons = [*corrections(events), *cures(events)]
    return sorted(lessons, key=lambda lesson: (-lesson.worth, -lesson.events[0]))


class Correction(NamedTuple):
    """A prompt that corrects the agent, with the files edited in the turn before it, and in the turn that it begins."""

    prompt: SessionEvent
    # In the person's words
    text: str
    edited: list[str]
    redone: list[str]


def corrected_turns(events: Sequence[SessionEvent]) -> Iterator[Correction]:
    """Yield what the person corrected. Only prompts are read: a tool's output is written by anyone."""
    prompts, answers = names_of_speech(Speech.PROMPT), names_of_speech(Speech.ANSWER)
    is_answered = True
    is_first = True
    edited: list[str] = []
    correction: Correction | None = None
    for event in events:
        if event.type == FILE_EDITED.name:
            edited.append(event.payload["path"])
        elif event.type in answers:
            is_answered = True
        elif event.type in prompts:
            if correction:
                yield correction._replace(redone=edited)
            text = "" if is_first else correction_of(event.payload["content"], is_interrupted=not is_answered)
            correction = Correction(event, text, edited, []) if text else None
            is_first = is_answered = False
            edited = []
    if correction:
        yield correction._replace(redone=edited)


def corrections(events: Sequence[SessionEvent]) -> Iterator[Lesson]:
    """Yield a lesson for each correction by the person."""
    for correction in corrected_turns(events):
        yield _correction(correction.prompt, correction.text, correction.edited)


def _correction(event: SessionEvent, text: str, edited: Sequence[str]) -> Lesson:
    quote = one_line(text, _QUOTE)
    content = f"The user corrected the agent: “{quote}”"
    if edited:
        content += f"\nBefore, it had edited {_listed(edited)}."
    # Short corrections can be read as rules
    worth = 3.0 if len(quote) < _QUOTE / 2 else 2.5
    title = one_line(text, _TITLE)
    return Lesson("correction", "guideline", "correction", title, content, quote, (event.position,), worth)


# A step of a shell line: what stands between `&&`, `;` and line ends that are not quoted
_STEP = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|(?<!&)&(?!&)|[^&;\n\\])+""", re.DOTALL)
# What only changes how the output is shown, and where a command runs
_SHOWN = re.compile(
    r"\s*(?:\|\s*(?:tail|head|grep|tee|cat|less|sort|wc|awk|sed|cut|uniq)\b[^|]*|\d?>&\d|\d?>>?\s*\S+)\s*"
)
_PLACE = re.compile(r"(?:cd|pushd|source|\.|export)\s|(?:echo|sleep|true|set|popd|pwd)\b")
_VARIABLES = re.compile(r"^(?:\w+=\S*\s+|(?:time|nice|sudo)\s+)+")
_LONGEST_KEY = 500
# Programs that look at things: that they fail, or are run again and again, says nothing
_LOOKING = frozenset(
    "cat ls cd pwd echo find grep rg ag sed awk head tail wc sort diff stat file which type tree less du df ps env "
    "date sleep test [ true read printf jq sqlite3 curl open kill pkill lsof mkdir rm cp mv touch chmod xargs".split()
)
_GIT_LOOKING = frozenset("status diff log show branch add commit push pull fetch checkout stash rev-parse".split())


def normalized_command(command: str) -> tuple[str, ...]:
    """Return the steps of a command, without where it runs and how its output is shown."""
    return _cached_steps(command) if len(command) <= _CACHED_LENGTH else _steps_of(command)


def _steps_of(command: str) -> tuple[str, ...]:
    steps = []
    for step in _STEP.findall(command):
        # One space each: a long run of spaces would be tried from each of them
        plain = _SHOWN.sub(" ", " ".join(step.split())).strip()
        plain = " ".join(_VARIABLES.sub("", plain).split())
        if plain and not _PLACE.match(plain):
            steps.append(plain)
    return tuple(steps)


# The same short commands are run again and again
_CACHED_LENGTH = 500
_cached_steps = lru_cache(maxsize=4096)(_steps_of)


def command_key(command: str) -> str:
    """Return a command as its runs are compared: its steps on one line."""
    return (" && ".join(normalized_command(command)) or " ".join(command.split()))[:_LONGEST_KEY]


class Cure(NamedTuple):
    """A command that failed, a later one of the session that passed, and what was done between."""

    failed: SessionEvent
    passed: SessionEvent
    # Files that were edited, and commands that were run, other than to look at something
    edited: list[str]
    commands: list[str]

    @property
    def instead(self) -> str:
        """The command that passed, "" if it is as the one that failed."""
        failed, passed = (one_line(event.payload["command"], _COMMAND) for event in (self.failed, self.passed))
        return "" if passed == failed else passed

    @property
    def change(self) -> str:
        """What was done, such as "after edits of `queue.py`, as `make tests`"; "" if it was only run again."""
        parts = []
        if self.edited:
            parts.append(f"after edits of {_listed(self.edited)}")
        if self.commands:
            parts.append(f"after {_listed(self.commands, 3)}")
        if self.instead:
            parts.append(f"as `{self.instead}`")
        return ", ".join(parts)


# Commands after a failure among which a variant of it counts as its cure
_SOON = 4
# Commands after which a failure is no longer looked at
LATE = 60
_LEAST_SHARE = 0.5


class _Failure(NamedTuple):
    # Places in the list of events, and among the commands
    place: int
    number: int
    event: SessionEvent
    steps: tuple[str, ...]


def cured_failures(events: Sequence[SessionEvent]) -> Iterator[Cure]:
    """Yield the failed commands of one session that passed later, in the order in which they passed."""
    failures: list[_Failure] = []
    number = 0
    for place, event in enumerate(events):
        if event.type != COMMAND_RUN.name:
            continue
        number += 1
        steps = normalized_command(event.payload["command"])
        if event.has_failed:
            if steps and not only_looks(steps, event.payload):
                failures = [*failures[-LATE:], _Failure(place, number, event, steps)]
            continue
        waiting: list[_Failure] = []
        for failure in failures:
            if cures_failure(failure.steps, steps, number - failure.number):
                yield _cure(failure.event, event, events[failure.place + 1 : place])
            elif number - failure.number <= LATE:
                waiting.append(failure)
        failures = waiting


def _cure(failed: SessionEvent, passed: SessionEvent, between: Sequence[SessionEvent]) -> Cure:
    edited = [event.payload["path"] for event in between if event.type == FILE_EDITED.name]
    passed_runs = [event for event in between if event.type == COMMAND_RUN.name and not event.has_failed]
    commands = [run.payload["command"] for run in passed_runs]
    commands = [command for command in commands if not all(map(looks, normalized_command(command)))]
    return Cure(failed, passed, edited, commands)


def cures(events: Sequence[SessionEvent]) -> Iterator[Lesson]:
    """Yield commands that failed and later passed, with what changed between."""
    cured: set[int] = set()
    for cure in cured_failures(events):
        errors = error_lines(cure.failed.payload.get("output", ""))
        # The first of several failures has the whole error, and all that was done between is the cure
        if errors and cure.passed.position not in cured:
            cured.add(cure.passed.position)
            yield _lesson_of(cure, errors)


def only_looks(steps: Sequence[str], payload: Mapping[str, Any]) -> bool:
    """Return whether a failed command may only have looked for something: grep and others exit with 1 then."""
    programs = {_program(step) for step in steps}
    return payload["exit_code"] == 1 and bool(programs & {"grep", "rg", "find", "ls", "diff", "test", "[", "which"})


def _program(step: str) -> str:
    return step.split(" ", 1)[0].rstrip("/").rpartition("/")[2]


def cures_failure(failed: Sequence[str], passed: Sequence[str], age: int) -> bool:
    """Return whether a passed command cures a failed one: it has all of its steps, or is a variant soon after.

    Args:
        failed: steps of the failed command.
        passed: steps of the passed one.
        age: how many commands later it ran.
    """
    if set(failed) <= set(passed):
        return True
    is_soon = age <= _SOON and bool(passed) and not looks(failed[-1])
    return is_soon and _is_variant(failed[-1], passed[-1])


# The same program with other arguments, the same command within another, or other programs with the same arguments
def _is_variant(failed: str, passed: str) -> bool:
    before, after = failed.split(), passed.split()
    if before[:2] == after[:2] or set(before) <= set(after):
        return True
    common = Counter(before) & Counter(after)
    return common.total() >= _LEAST_SHARE * max(len(before), len(after))


def _lesson_of(cure: Cure, errors: Sequence[str]) -> Lesson:
    command = one_line(cure.failed.payload["command"], _COMMAND)
    step = normalized_command(cure.failed.payload["command"])[-1]
    # Few changes say more about the cure than many
    worth = 2.0 / (1 + len(set(cure.edited)) / 4) if cure.change else 0.5
    return Lesson(
        "cure",
        "failure",
        "error",
        one_line(f"{one_line(step, 50)} failed: {errors[0]}", _TITLE),
        f"`{command}` failed, and passed later in the session.",
        f"{step} {without_varying(errors[0])}",
        (cure.failed.position, cure.passed.position),
        worth,
        {"error": "\n".join(errors), "command": command, "instead": f"It passed {cure.change or _AGAIN}."},
    )


_AGAIN = "when it was run again"


def looks(step: str) -> bool:
    """Return whether a step only looks at something, such as `git status`."""
    name, arguments = _program(step), step.partition(" ")[2]
    return name in _LOOKING or (name == "git" and arguments.split(" ", 1)[0] in _GIT_LOOKING)


def _listed(names: Iterable[str], most: int = _MOST_FILES) -> str:
    return first_of([f"`{one_line(name, _TITLE)}`" for name in dict.fromkeys(names)], most)


# So many sessions run a command that is the project's, and so often in all
_LEAST_SESSIONS = 3
_LEAST_RUNS = 5
# How often one of two files was changed, and the share with the other
_LEAST_CHANGES = 4
_ALWAYS = 0.9
# Changes of more files, such as a rename in the whole tree, say nothing about two of them
_MOST_CHANGED = 20


def repeated_commands(runs: Iterable[tuple[int, str, str]], session_id: str) -> Iterator[Lesson]:
    """Yield commands of a session that several sessions run.

    Args:
        runs: position, session and command of passed commands.
        session_id: the session.
    """
    sessions: dict[str, set[str]] = {}
    positions: dict[str, list[int]] = {}
    for position, session, command in runs:
        for step in dict.fromkeys(normalized_command(command)):
            if not looks(step) and len(step) <= _TITLE:
                sessions.setdefault(step, set()).add(session)
                positions.setdefault(step, []).append(position)
    for step, where in sessions.items():
        count = len(positions[step])
        if session_id in where and len(where) >= _LEAST_SESSIONS and count >= _LEAST_RUNS:
            text = f"`{step}` was run {counted(count, 'time')} in {counted(len(where), 'session')} of this project."
            worth = 1.0 + count / 1_000
            yield Lesson("command", "tool", "cli", step, text, step, tuple(positions[step][-3:]), worth)


def files_together(changes: Sequence[tuple[int, frozenset[str]]], edited: Iterable[str]) -> Iterator[Lesson]:
    """Yield the files that are always changed with an edited one.

    Args:
        changes: position and files of each change: a commit, or a session's edits.
        edited: paths of the files that the session edited.
    """
    current = set(edited)
    alone: Counter[str] = Counter()
    both: Counter[tuple[str, str]] = Counter()
    latest: dict[tuple[str, str], list[int]] = {}
    for position, files in changes:
        alone.update(files)
        if len(files) <= _MOST_CHANGED:
            for pair in combinations(sorted(files), 2):
                if not current.isdisjoint(pair):
                    both[pair] += 1
                    latest.setdefault(pair, []).append(position)
    for (first, second), count in both.most_common():
        rarer, other = sorted((first, second), key=lambda path: alone[path])
        is_always = count >= _LEAST_CHANGES and count >= _ALWAYS * alone[rarer]
        if not is_always or rarer not in current or _same_name(first, second):
            continue
        text = f"Whenever `{rarer}` changed, `{other}` changed with it: {count} of {alone[rarer]} times."
        title = f"{one_line(rarer, 80)} changes with {one_line(other, 80)}"
        events = tuple(latest[first, second][-3:])
        yield Lesson("files", "knowledge", "fact", title, text, f"{rarer} {other}", events, 0.8 + count / 1_000)


# A file and its test: anyone expects that
def _same_name(first: str, second: str) -> bool:
    stems = [re.sub(r"(?:^test_?|[_.-]?(?:test|spec)s?$)", "", PurePath(path).stem.lower()) for path in (first, second)]
    return stems[0] == stems[1]
