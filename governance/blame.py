"""Blame: from a line of a file to its commit, the decision, the session, the prompt and the guidelines of that time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, Field

from decisions.models import CommitLink, Decision
from governance.staleness.governed_files import governing
from memories.models import ContextPack, Memory, ReviewState
from memoryhub.config.identity import bound_folders
from memoryhub.core import log
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.events.event_types import Speech, names_of_speech
from memoryhub.core.foreign_files import read_foreign
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.schemas import Command, Line, self_evident, unlisted
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.stores.dialect import has_part
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import first_line, flat
from sessions_app import git
from sessions_app.models import Commit, Session
from sessions_app.selectors import root_of_project


class BlameRequest(Command):
    """Explain lines of a file."""

    file: Line = Field(min_length=1, max_length=4_000, description="path from the repository's top")
    first: int = Field(1, ge=1, le=10_000_000, description="first line", json_schema_extra=self_evident)
    last: int | None = Field(None, ge=1, le=10_000_000, description="last line; default: the file's end")
    limit: int = Field(20, ge=1, le=10_000, description="most ranges of lines", json_schema_extra=unlisted)


class BlamedCommit(BaseModel):
    """The commit that lines come from."""

    sha: str
    # None if it is not recorded in the hub
    id: int | None = None
    author: str = ""
    committed_at: datetime | None = None
    summary: str = ""
    # The file's path in that commit, if it was another one
    path: str = ""


class BlamedDecision(BaseModel):
    """A decision that the commit is linked to."""

    id: int
    title: str
    status: str
    # How the commit is linked: ``implements``, ``refers_to``, …
    link: str


class BlamedSession(BaseModel):
    """The session in which the commit was recorded; if there was none, that of its decision."""

    id: int
    session_id: str
    title: str
    agent: str


class BlamedPrompt(BaseModel):
    """The prompt of the turn in which that happened."""

    # Position of its event
    id: int
    text: str


class BlamedGuideline(BaseModel):
    """A guideline that was in force at the time of the commit."""

    id: int
    title: str
    priority: int | None = None
    # Whether a context pack of the session had it
    given: bool = False


class BlamedRange(BaseModel):
    """Adjacent lines of one commit, with what led to it as far as is known."""

    first: int
    last: int
    commit: BlamedCommit | None = None
    decisions: list[BlamedDecision] = Field(default_factory=list)
    session: BlamedSession | None = None
    prompt: BlamedPrompt | None = None
    guidelines: list[BlamedGuideline] = Field(default_factory=list)
    # How many more guidelines were in force
    more_guidelines: int = 0
    # Where the trail ends, and what would continue it; "" if it is complete
    ends: str = ""


class KnownEntry(BaseModel):
    """A memory or decision about the file."""

    type: str
    id: int
    title: str
    kind: str = ""
    # ``governs`` or ``mentions``
    how: str


class BlameView(BaseModel):
    """What is known about lines of a file."""

    file: str
    first: int
    last: int
    ranges: list[BlamedRange]
    # Ranges beyond ``limit``
    more_ranges: int = 0
    known: list[KnownEntry]


_NOT_RECORDED = "the commit is not recorded here; `memory-hub import git` records it"
_MAX_BYTES = 8 * 2**20
_MAX_LINES = 10_000
# Guidelines of a time that are named, by priority; memories that mention the file
_GUIDELINES, _MENTIONS = 5, 20
# Characters of a prompt, and of a line
_PROMPT, _MAX_LINE = 200, 1_000


@dataclass(frozen=True, slots=True)
class Blame:
    """The view, and the lines of the file, with secrets masked."""

    view: BlameView
    lines: list[git.Line]


def blame(*, command: BlameRequest, folder: Path | None = None) -> Blame:
    """Explain lines of a file, with a number of queries that does not depend on them.

    Args:
        command: file and lines.
        folder: the top of a working tree; default: the folder that is recorded for the project.

    Raises:
        NotFound: no folder of the project is known here, or the file does not exist.
        Invalid: the path leads out of the folder, or git cannot blame the file or the lines.
    """
    top = folder or _folder_of_project()
    path = _path_in(top, command.file)
    if command.last is not None and command.last < command.first:
        raise Invalid(f"line {command.last} is before line {command.first}; write the smaller number first")
    content = _content(top, path)
    last = min(command.last or command.first + _MAX_LINES - 1, command.first + _MAX_LINES - 1)
    lines = git.blame(top, path, content, first=command.first, last=last)
    groups = [list(group) for _, group in groupby(lines, key=lambda line: (line.sha, line.path))]
    trail = _Trail(path, [line for group in groups[: command.limit] for line in group])
    view = BlameView(
        file=path,
        first=command.first,
        last=lines[-1].number if lines else command.first,
        ranges=[trail.range_of(group) for group in groups[: command.limit]],
        more_ranges=max(0, len(groups) - command.limit),
        known=known_about(path),
    )
    return Blame(view, [replace(line, text=sanitize_text(line.text[:_MAX_LINE])[0]) for line in lines])


def _folder_of_project() -> Path:
    folders = [*map(str, bound_folders(current_store().name)), root_of_project()]
    for folder in folders:
        if folder and Path(folder).is_dir():
            return Path(folder)
    raise NotFound("no folder of this project is known on this machine; run `memory-hub blame` in its repository")


def _path_in(top: Path, name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute():
        if not path.is_relative_to(top):
            raise Invalid(f"{flat(name)[:200]} is not in the project's folder {top}")
        path = path.relative_to(top)
    if ".." in path.parts or "\0" in name or not path.parts:
        raise Invalid(f"{flat(name)[:200]} is no path of a file from the top of the project's folder")
    return str(path)


def _content(top: Path, name: str) -> bytes:
    path = top / name
    try:
        if path.is_symlink():
            raise Invalid(f"{path.name} is a link; name the file that it leads to")
        if path.is_dir():
            raise Invalid(f"{path.name} is a folder; name a file")
        if not path.is_file():
            raise NotFound(f"there is no file {path.name} in {path.parent}")
        if not path.resolve().is_relative_to(top.resolve()):
            raise Invalid(f"{name} leads out of the project's folder {top}")
        content = read_foreign(path, limit=_MAX_BYTES, follows_links=False)
    except OSError as error:
        raise Invalid(f"can't read {path.name}: {error.strerror}") from error
    if b"\0" in content[:8_000]:
        raise Invalid(f"{path.name} is a binary file, which has no lines")
    if not content:
        raise Invalid(f"{path.name} is empty")
    return content


class _Trail:
    """Follows the commits of lines through the store: one query for each kind of thing."""

    def __init__(self, path: str, lines: Sequence[git.Line]) -> None:
        self._path = path
        shas = {line.sha for line in lines if line.sha}
        recorded = outside_quarantine(Commit.objects.filter(sha__in=shas))
        self._commits: dict[str, int] = dict(recorded.values_list("sha", "id"))
        self._decisions = _decisions_of(self._commits.values())
        ids = set(self._commits.values())
        for decisions in self._decisions.values():
            ids.update(decision.id for decision in decisions)
        headers = log.events().at(ids).exclude(session_id="")
        self._written_in: dict[int, tuple[str, str]] = {}
        for position, session, turn in headers.values_list("position", "session_id", "turn_id"):
            self._written_in[position] = (session, turn)
        names = {session for session, _ in self._written_in.values()}
        self._sessions = _sessions(names)
        self._prompts = _prompts(self._written_in.values())
        self._in_packs = _guidelines_in_packs(names)
        self._guidelines = _guidelines() if self._commits else []

    def range_of(self, lines: Sequence[git.Line]) -> BlamedRange:
        line = lines[0]
        first, last = line.number, lines[-1].number
        if not line.sha:
            return BlamedRange(first=first, last=last, ends="the lines are not committed")
        commit = BlamedCommit(
            sha=line.sha,
            id=self._commits.get(line.sha),
            author=line.author,
            committed_at=line.committed_at,
            summary=sanitize_text(line.summary)[0],
            path=line.path if line.path != self._path else "",
        )
        trail = self._from(commit) if commit.id else {"ends": _NOT_RECORDED}
        return BlamedRange(first=first, last=last, commit=commit, **trail)

    def _from(self, commit: BlamedCommit) -> dict[str, Any]:
        decisions = self._decisions.get(commit.id or 0, [])
        # A commit that was imported from git was in no session, and its decision may have been in one
        evidence = (commit.id, *(decision.id for decision in decisions))
        written_in = next((self._written_in[number] for number in evidence if number in self._written_in), ("", ""))
        session, prompt = self._sessions.get(written_in[0]), self._prompts.get(written_in)
        guidelines = self._in_force(commit.committed_at, written_in[0])
        return {
            "decisions": decisions,
            "session": session,
            "prompt": prompt,
            "guidelines": guidelines[:_GUIDELINES],
            "more_guidelines": max(0, len(guidelines) - _GUIDELINES),
            "ends": _end_of(decisions, session, prompt),
        }

    def _in_force(self, when: datetime | None, session: str) -> list[BlamedGuideline]:
        if not when:
            return []
        in_packs = self._in_packs.get(session, set())
        in_force = []
        for memory in self._guidelines:
            if memory.created_at <= when and (memory.deleted_at is None or memory.deleted_at > when):
                is_given = memory.id in in_packs
                in_force.append(
                    BlamedGuideline(id=memory.id, title=memory.title, priority=memory.priority, given=is_given)
                )
        return sorted(in_force, key=lambda guideline: (not guideline.given, -(guideline.priority or 0), guideline.id))


def _end_of(decisions: Sequence[BlamedDecision], session: BlamedSession | None, prompt: BlamedPrompt | None) -> str:
    missing = []
    if not decisions:
        missing.append("no decision is linked to the commit")
    if session is None:
        missing.append("it was recorded in no session")
    elif prompt is None:
        missing.append("the session has no prompt for it")
    return "; ".join(missing)


def _decisions_of(commits: Iterable[int]) -> dict[int, list[BlamedDecision]]:
    links = CommitLink.objects.filter(commit_id__in=list(commits))
    rows = sorted(links.values_list("commit_id", "decision_id", "link_type"))
    decisions = outside_quarantine(Decision.objects.filter(id__in={decision for _, decision, _ in rows}))
    by_id = decisions.only("title", "status").in_bulk()
    by_commit: dict[int, list[BlamedDecision]] = {}
    for commit, number, link in rows:
        if number in by_id:
            decision = by_id[number]
            by_commit.setdefault(commit, []).append(
                BlamedDecision(id=number, title=decision.title, status=decision.status, link=link.replace("_", " "))
            )
    return by_commit


def _sessions(names: Iterable[str]) -> dict[str, BlamedSession]:
    sessions = {}
    for session in outside_quarantine(Session.objects.filter(session_id__in=list(names))):
        title = first_line(session.purpose) or session.session_id
        sessions[session.session_id] = BlamedSession(
            id=session.id, session_id=session.session_id, title=title, agent=session.agent
        )
    return sessions


# The first prompt of each turn
def _prompts(turns: Iterable[tuple[str, str]]) -> dict[tuple[str, str], BlamedPrompt]:
    pairs = {pair for pair in turns if pair[1]}
    events = outside_quarantine(
        log.events()
        .of_session(*{session for session, _ in pairs})
        .filter(turn_id__in={turn for _, turn in pairs})
        .of_type(*names_of_speech(Speech.PROMPT))
        .readable()
        .without_undone()
    )
    prompts: dict[tuple[str, str], BlamedPrompt] = {}
    for event in events:
        pair = (event.session_id, event.turn_id)
        if pair in pairs:
            text = first_line(json.loads(event.payload_json or "{}").get("content", ""), _PROMPT)
            prompts.setdefault(pair, BlamedPrompt(id=event.position, text=text))
    return prompts


# Guidelines in the packs of sessions
def _guidelines_in_packs(sessions: Iterable[str]) -> dict[str, set[int]]:
    by_session: dict[str, set[int]] = {}
    packs = ContextPack.objects.filter(session_id__in=list(sessions))
    for session, marks in packs.values_list("session_id", "marks"):
        numbers = by_session.setdefault(session, set())
        for key in marks:
            number = key.rpartition("#")[2]
            if key.startswith("guidelines #") and number.isdecimal():
                numbers.add(int(number))
    return by_session


def _guidelines() -> list[Memory]:
    guidelines = Memory.objects.filter(kind="guideline", review=ReviewState.ACCEPTED, ephemeral=False)
    return list(outside_quarantine(guidelines).only("id", "title", "priority", "created_at", "deleted_at"))


def known_about(path: str) -> list[KnownEntry]:
    """Return the memories and decisions that govern a file, then the memories that mention it."""
    mentions = outside_quarantine(Memory.objects.live().filter(has_part("content", path), review=ReviewState.ACCEPTED))
    latest = mentions.exclude(scope="session").order_by("-updated_at", "-id")
    how = dict.fromkeys(latest.values_list("id", flat=True)[:_MENTIONS], "mentions")
    for number, thing in governing().items():
        if any(path == governed or path.startswith(f"{governed}/") for governed in thing.paths):
            how[number] = "governs"
    entries = []
    for number, entity in find_entities(list(how)).items():
        entry = KnownEntry(type=entity.type, id=number, title=entity.title, kind=entity.kind, how=how[number])
        entries.append(entry)
    return sorted(entries, key=lambda entry: (entry.how, entry.id))
