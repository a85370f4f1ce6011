"""The first sections of a session's opening: what it was doing before its context was lost, from its own events.

Each line is of one event, so that a replay leaves out exactly what was erased since.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import PurePosixPath

from memories.lessons.rules import normalized_command
from memories.models import ContextPack
from memories.pack.outcomes import activity_of
from memories.pack.sections import (
    GatherRequest,
    PackItem,
    SectionDefinition,
    define_section,
    recallable_sources,
    reference,
    without_repeats,
)
from memories.pack_sorts import local_id
from memories.search.output import error_lines, for_reading
from memoryhub.core import clock, log
from memoryhub.core.events.event_types import Speech, names_of_speech
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import has_part
from memoryhub.core.text import one_line, shortened
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED, TOOL_MESSAGE
from sessions_app.models import Session
from sessions_app.selectors import SessionEvent, read_events

# The newest events that are read, and the first prompts: a client's own messages may come before the user's
_MOST_EVENTS, _FIRST = 400, 5
# How many lines of each kind, and the characters of a text
_EARLIER_PROMPTS, _FILES, _COMMANDS, _OPEN_TASKS, _ENTRIES, _GIVEN, _LINES = 5, 8, 3, 4, 4, 3, 4
_TASK, _PROMPT, _ANSWER, _FAILURE, _COMMAND, _RESULT, _SHORT = 400, 160, 320, 320, 100, 80, 110
# An earlier prompt that is shorter answers a question, such as "yes"
LEAST_CHARS = 12
# A command that failed before so many of the last prompts is no longer what the session is about
_RECENT_PROMPTS = 3

_ACTIONS = [COMMAND_RUN.name, FILE_EDITED.name]
_WRITTEN = (
    "SELECT stream_id, max(position) FROM raw_events WHERE session_id = %s "
    "AND (stream_id LIKE 'memory:%%' OR stream_id LIKE 'decision:%%') GROUP BY stream_id ORDER BY 2 DESC"
)

# What clients put in place of a prompt: a command of their own, its output, a notice
_NO_PROMPT = re.compile(r"\s*(?:<[a-z]+-[a-z-]+>|\[Request interrupted|/[\w:-]+\s*$)")
# An output without an exit code tells of a failure by such a line
_IS_FAILURE = re.compile(
    r"^\s*(?:---? )?FAIL(?:ED)?\b|^Traceback|^E   |\berror TS\d+|^npm (?:error|ERR!)|^error(?:\[\w+\])?:|^panic:"
)
# Programs whose exit code answers a question
_LOOKUPS = frozenset("grep rg ls cat find test [ which diff head tail sed awk wc stat tree file".split())
_LEADING_CD = re.compile(r"^\s*cd [^;&\n]+(?:&&|;)\s*")


def _has_failed(command: SessionEvent) -> bool:
    if command.payload.get("exit_code") is not None:
        return command.has_failed
    return any(map(_IS_FAILURE.search, command.payload.get("output", "").splitlines()))


def _command_of(event: SessionEvent) -> str:
    command: str = event.payload["command"]
    return _LEADING_CD.sub("", command) or command


# The steps of a command, each as its program and two arguments, such as ``npm run build``
def _programs_of(command: SessionEvent) -> set[tuple[str, ...]]:
    steps = normalized_command(command.payload["command"])
    return {tuple([word for word in step.split() if not word.startswith("-")][:3]) for step in steps}


def _is_lookup(command: SessionEvent) -> bool:
    return all(program[:1] and program[0] in _LOOKUPS for program in _programs_of(command))


def has_progress(session_id: str) -> bool:
    """Return whether a session has prompts, commands or edits of its own."""
    types = (*names_of_speech(Speech.PROMPT), *_ACTIONS)
    return any(read_events(log.events().of_session(session_id).of_type(*types), 1))


class _SessionWork:
    """What a session's events tell of its work, newest first."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id
        self._stored = log.events().of_session(session_id)
        self._prompt_types = names_of_speech(Speech.PROMPT)
        types = [*self._prompt_types, *names_of_speech(Speech.ANSWER), *_ACTIONS]
        self._events = list(read_events(self._stored.of_type(*types).order_by("-position"), _MOST_EVENTS))

    @cached_property
    def folder(self) -> str:
        """The folder in which the session began, without the machine that a team's client names before it."""
        folders = Session.objects.filter(session_id=self._session).values_list("directory", flat=True)
        return next(iter(folders), "").rpartition(":")[2]

    def shortened(self, text: str) -> str:
        """Return a text without colours, and with paths from the session's folder."""
        text = for_reading(text)
        return text.replace(f"{self.folder}/", "") if self.folder else text

    @cached_property
    def prompts(self) -> list[SessionEvent]:
        return [event for event in self._events if event.type in self._prompt_types and _is_of_user(event)]

    @cached_property
    def first_prompt(self) -> SessionEvent | None:
        return next(filter(_is_of_user, read_events(self._stored.of_type(*self._prompt_types), _FIRST)), None)

    @cached_property
    def commands(self) -> list[SessionEvent]:
        return [event for event in self._events if event.type == COMMAND_RUN.name and not _is_lookup(event)]

    @cached_property
    def edits(self) -> list[SessionEvent]:
        """The last edit of each file."""
        edits: dict[str, SessionEvent] = {}
        for event in self._events:
            if event.type == FILE_EDITED.name:
                edits.setdefault(event.payload["path"], event)
        return list(edits.values())

    @property
    def answer(self) -> SessionEvent | None:
        answers = names_of_speech(Speech.ANSWER)
        return next((event for event in self._events if event.type in answers), None)

    @property
    def task_list(self) -> SessionEvent | None:
        """The last list of tasks, whatever its client calls it."""
        calls = self._stored.of_type(TOOL_MESSAGE).filter(has_part("payload_json", '"status":"'))
        return next(read_events(calls.order_by("-position"), 1), None)

    @property
    def failure(self) -> SessionEvent | None:
        """The last command that failed and has not succeeded since."""
        since = self.prompts[:_RECENT_PROMPTS][-1].position if self.prompts else 0
        succeeded: set[tuple[str, ...]] = set()
        for command in self.commands:
            if command.position < since:
                break
            if not _has_failed(command):
                succeeded |= _programs_of(command)
            elif not succeeded & _programs_of(command):
                return command
        return None


def _is_of_user(event: SessionEvent) -> bool:
    return is_prompt(event.payload["content"])


def is_prompt(content: str) -> bool:
    """Return whether a message is the user's own, not a client's in place of a prompt."""
    return not _NO_PROMPT.match(content)


def _progress(request: GatherRequest) -> list[PackItem]:
    if not request.progress_of:
        return []
    work = _SessionWork(request.progress_of)
    lines = chain(
        _of_session_before(request), _of_prompts(work), _of_tasks(work), _of_failure(work), _of_edits(work),
        _of_commands(work),
    )  # fmt: skip
    items = [PackItem(f"#{position}", f"- #{position} {line}", f"#{position}") for position, line in lines]
    items += _of_entries(request, work)
    if answer := work.answer:
        text = f"- #{answer.position} answered: {one_line(answer.payload['content'], _ANSWER)}"
        items.append(PackItem(f"#{answer.position}", text))
    return without_repeats(items)


Lines = Iterator[tuple[int, str]]


# After a clear, the client goes on in another session
def _of_session_before(request: GatherRequest) -> Lines:
    if request.progress_of != request.session_id:
        for position in Session.objects.filter(session_id=request.progress_of).values_list("id", flat=True):
            yield position, "is the session whose context the user cleared; this is what it was about"


def _of_prompts(work: _SessionWork) -> Lines:
    first, prompts = work.first_prompt, work.prompts
    if first:
        yield first.position, f"asked first: {one_line(first.payload['content'], _TASK)}"
    if prompts and prompts[0] != first:
        yield prompts[0].position, f"asked last, {clock.minute(prompts[0].occurred_at)}: {_cut(prompts[0], _TASK)}"
    earlier = [prompt for prompt in prompts[1:] if prompt != first and len(prompt.payload["content"]) >= LEAST_CHARS]
    for prompt in earlier[:_EARLIER_PROMPTS]:
        yield prompt.position, f"asked: {_cut(prompt, _PROMPT)}"


# The beginning and the end: a long prompt may end with the question
def _cut(prompt: SessionEvent, longest: int) -> str:
    text = " ".join(prompt.payload["content"].split())
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]} … {text[head - longest + 3 :]}"


def _of_tasks(work: _SessionWork) -> Lines:
    task_list = work.task_list
    tasks = _tasks_in(task_list.payload.get("input")) if task_list else []
    if task_list is None or not tasks:
        return
    begun = [text for text, status in tasks if status.startswith("in")]
    waiting = [text for text, status in tasks if status in ("pending", "not_started", "not-started", "todo")]
    if begun or waiting:
        parts = [*(f"now {text}" for text in begun), *waiting][:_OPEN_TASKS]
        finished = len(tasks) - len(begun) - len(waiting)
        yield task_list.position, f"to do ({finished} of {len(tasks)} done): {'; '.join(parts)}"


# The texts and statuses of the first list of such in a tool's input
def _tasks_in(value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return next(filter(None, map(_tasks_in, value.values())), [])
    if not isinstance(value, list):
        return []
    tasks: list[tuple[str, str]] = []
    for task in value:
        if isinstance(task, Mapping) and isinstance(task.get("status"), str):
            texts = [str(task[name]) for name in ("content", "step", "title", "description") if task.get(name)]
            tasks.append((one_line(next(iter(texts), ""), _SHORT), task["status"].lower()))
    return tasks


def _of_failure(work: _SessionWork) -> Lines:
    if failure := work.failure:
        code = failure.payload.get("exit_code")
        how = f" (exit code {code})" if code else ""
        output = _failure_lines(work.shortened(failure.payload.get("output", "")))
        yield failure.position, f"fails: `{one_line(work.shortened(_command_of(failure)), _COMMAND)}`{how}: {output}"


# Without any that say what failed, the last ones
def _failure_lines(output: str) -> str:
    lines = error_lines(output, _LINES) or [line for line in output.splitlines() if line.strip()][-2:]
    return shortened(" / ".join(one_line(line, _FAILURE // 2) for line in lines), _FAILURE)


def _of_edits(work: _SessionWork) -> Lines:
    for edit in work.edits[:_FILES]:
        yield edit.position, f"edited {within_folder(edit.payload['path'], work.folder)}"


def within_folder(path: str, folder: str) -> str:
    """Return a path below a folder without the folder, another one as it is."""
    if folder and PurePosixPath(path).is_relative_to(folder):
        return str(PurePosixPath(path).relative_to(folder))
    return path


def _of_commands(work: _SessionWork) -> Lines:
    commands: dict[str, SessionEvent] = {}
    for command in work.commands:
        commands.setdefault(_command_of(command), command)
    for command in islice(commands.values(), _COMMANDS):
        text = one_line(work.shortened(_command_of(command)), _COMMAND)
        yield command.position, f"ran `{text}`: {_result(work, command)}"


def _result(work: _SessionWork, command: SessionEvent) -> str:
    output = [line for line in work.shortened(command.payload.get("output", "")).splitlines() if line.strip()]
    code = command.payload.get("exit_code")
    status = "failed" if _has_failed(command) else "ok"
    parts = [f"exit code {code}" if code else status, one_line(output[-1], _RESULT) if output else ""]
    return ", ".join(filter(None, parts))


# What the session wrote; then what it was given, if it used that or if it is about the files that it edits
def _of_entries(request: GatherRequest, work: _SessionWork) -> list[PackItem]:
    streams = [stream.partition(":")[2] for stream, _ in rows.fetch(_WRITTEN, [request.progress_of])]
    written = [int(entry) for entry in streams if entry.isdecimal()]
    items = _entries(request, written[:_MOST_EVENTS])
    ours = [items[entry] for entry in written if entry in items][:_ENTRIES]
    return [*ours, *_entries_in_use(request, work, set(written))]


def _entries_in_use(request: GatherRequest, work: _SessionWork, written: Collection[int]) -> list[PackItem]:
    session = Session.objects.filter(session_id=request.progress_of).first()
    if session is None:
        return []
    packs = ContextPack.objects.filter(session_id=request.progress_of).values_list("marks", flat=True)
    sent = {local_id(key) for key in chain.from_iterable(packs)} - {0} - set(written)
    activity = activity_of({session.session_id: session})[session.session_id]
    names = {PurePosixPath(edit.payload["path"]).name for edit in work.edits[:_FILES]}
    ranked: list[tuple[int, int, PackItem]] = []
    for entry, item in _entries(request, sorted(sent)).items():
        is_about = any(name in item.text or name in item.line for name in names if len(name) > _SHORTEST_NAME)
        rank = 2 * (entry in activity.cited) + (entry in activity.read) + is_about
        if rank:
            ranked.append((-rank, -entry, item))
    return [item for *_, item in sorted(ranked, key=lambda entry: entry[:2])][:_GIVEN]


_SHORTEST_NAME = 4


def _entries(request: GatherRequest, ids: Sequence[int]) -> dict[int, PackItem]:
    level = request.chain[0]
    items: dict[int, PackItem] = {}
    if ids:
        for items_of_source in recallable_sources().values():
            for entry, item in items_of_source(level, ids, request.now, {}).items():
                line = one_line(item.line, _PROMPT)
                items[entry] = PackItem(reference(level, entry), line, item.text, is_checked=True)
    return items


define_section(SectionDefinition("progress", "In progress", 5, 1.0, 500, _progress, "", most_tokens=600))
