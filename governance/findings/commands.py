"""Findings from the commands of sessions: the error met most and its cure, and the command that fails first."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from governance.findings.reading import SessionLog, evidence_of, excerpt, when
from governance.findings.schemas import LEAST_SESSIONS, MOST_EVIDENCE, FindingEvidence, FindingKind, ProjectFinding
from memories.lessons.rules import Cure, command_key, looks, normalized_command, only_looks
from memories.search.output import error_lines, without_varying
from memoryhub.core.text import counted
from sessions_app.events.client import COMMAND_RUN
from sessions_app.selectors import SessionEvent

# Sessions in which a command must fail first before that is a finding, if the same one passed later
_LEAST_FIRST = 3
# Share of the sessions that ran a command in which its first run must have failed
_LEAST_SHARE = 0.5
# Newest failed runs whose errors are compared, and lines of each
_MOST_FAILURES = 3_000
_MOST_LINES = 8
_LINE, _COMMAND, _CHANGE = 160, 100, 200
# The exit codes of a command that the person stopped, or that was killed for its time
_STOPPED = (124, 130, 143)


class Failure(NamedTuple):
    """A failed command, and what made it pass later in its session."""

    run: SessionEvent
    cure: Cure | None


@dataclass(slots=True)
class _RecurringError:
    line: str
    # Place of the line among those of its output, at first
    place: int
    failures: dict[str, list[Failure]] = field(default_factory=lambda: defaultdict(list))

    @property
    def count(self) -> int:
        return sum(map(len, self.failures.values()))

    @property
    def rank(self) -> tuple[int, int, bool, int, tuple[str, int]]:
        """Greater is worse; of several lines of the same outputs, one that names what is missing says the most."""
        newest = max(when(failure.run) for met in self.failures.values() for failure in met)
        return len(self.failures), self.count, bool(_NAMING.search(self.line)), -self.place, newest


def find_error(sessions: Sequence[SessionLog]) -> ProjectFinding | None:
    """Return the error that most sessions met, with what cured it; None if no two sessions met the same."""
    errors: dict[str, _RecurringError] = {}
    oldest_first = sorted(_failures(sessions), key=lambda met: when(met[1].run))
    for session_id, failure in oldest_first[-_MOST_FAILURES:]:
        for place, line in enumerate(error_lines(failure.run.payload["output"], _MOST_LINES)):
            if key := error_key(line):
                error = errors.setdefault(key, _RecurringError(line, place))
                error.line = _MARGIN.sub("", line)
                error.failures[session_id].append(failure)
    recurring = [error for error in errors.values() if len(error.failures) >= LEAST_SESSIONS]
    if not recurring:
        return None
    error = max(recurring, key=lambda error: error.rank)
    failures = [failure for met in error.failures.values() for failure in met]
    met = counted(len(error.failures), "session")
    if error.count > len(error.failures):
        met += f", {error.count:,} times"
    cure, passed = _cure_of(error)
    return ProjectFinding(
        kind=FindingKind.ERROR,
        subject=excerpt(error.line),
        sentence=f"“{excerpt(error.line, _LINE)}” came up in {met}. {cure}",
        count=error.count,
        sessions=len(error.failures),
        evidence=_error_evidence(error.line, failures, passed),
        advice="A guideline with the cure spares later sessions the search.",
    )


# A transcript that continues another one may repeat its runs
def _failures(sessions: Sequence[SessionLog]) -> Iterator[tuple[str, Failure]]:
    seen: set[tuple[str, str]] = set()
    for session in sessions:
        for run in filter(_is_failure, session.events):
            written_at = run.payload["written_at"]
            repeated = (run.payload["command"], written_at)
            if not written_at or repeated not in seen:
                seen.add(repeated)
                yield session.session_id, Failure(run, session.cures.get(run.position))


def _is_failure(event: SessionEvent) -> bool:
    if event.type != COMMAND_RUN.name or not event.has_failed or event.payload["exit_code"] in _STOPPED:
        return False
    return not only_looks(normalized_command(event.payload["command"]), event.payload)


# A line that says that something failed, and not what
_REPORT = re.compile(
    r"""^(?:make(?:\[\d+\])?:\ \*\*\*
      | npm\ (?:err!|error)\ (?:code|errno|path|command|syscall|location|workspace|a\ complete|lifecycle|test\ failed)
      | (?:failed|fail|error)\ ?\((?:failures|errors) | =+\ .*=+$ | \d+\ (?:failed|errors?|problems?|tests?)\b
      | tests?:?\ | test\ (?:files|suites|result)\b | found\ \d+\  | traceback\b
      | error:\ (?:could\ not\ compile|aborting|test\ failed|recipe))
    | \b(?:exit(?:ed)?(?:\ with)?\ (?:code|status)|non-zero\ exit|command\ failed|build\ failed|elifecycle)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_HASH = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{7,64}\b", re.IGNORECASE)
_NUMBER = re.compile(r"\b\d+(?:[.,:]\d+)*\b")
_MARGIN = re.compile(r"^(?:E\s{2,}|>\s+|(?:/\S{1,100}/)?(?:ba|z|da)?sh: (?:line \d+: )?)")
_WORD = re.compile(r"[^\W\d][\w-]+")
_NAME_OF_ERROR = re.compile(r"(?:error|exception|failure|panic|fault)$")
# Words that an error of any sort has
_GENERAL = frozenset(
    "err failed fail fatal panicked at assert assertion true false none null nil is not was are were be the in on of "
    "to for and or but with by from if it this that expected expect received actual got has have had no object "
    "attribute invalid unexpected value values type found equal equals than undefined".split()
)
# One more word says enough after these
_NAMING = re.compile(
    r"not found|no such|cannot find|could not find|no module named|missing|unresolved|refused|denied", re.IGNORECASE
)


@lru_cache(maxsize=4096)
def error_key(line: str) -> str:
    """Return an error as its occurrences are compared: without numbers, hashes, times and folders.

    "" if it only says that something failed, as "2 failed" or "assert 1 == 2" do.
    """
    plain = _MARGIN.sub("", line.strip())
    if _REPORT.search(plain):
        return ""
    key = _NUMBER.sub("#", _HASH.sub("#", without_varying(plain))).lower()
    words = {word for word in _WORD.findall(key) if word not in _GENERAL and not _NAME_OF_ERROR.search(word)}
    is_specific = len(words) > 1 or (words and _NAMING.search(key))
    return key if is_specific else ""


def _passed_at(cure: Cure) -> tuple[str, int]:
    return when(cure.passed)


def _cure_of(error: _RecurringError) -> tuple[str, SessionEvent | None]:
    cured: dict[str, Cure] = {}
    changes: Counter[str] = Counter()
    for session_id, met in error.failures.items():
        cures = [failure.cure for failure in met if failure.cure]
        if cures:
            # The first of several failures has all that was done between
            cured[session_id] = cures[0]
            changes.update(set(_changes_of(cures)))
    if not cured:
        return "No session shows what cured it.", None
    change, count = max(changes.items(), key=lambda item: item[1], default=("", 0))
    latest = max(cured.values(), key=_passed_at)
    if count >= LEAST_SESSIONS:
        witness = max(
            (cure for cure in cured.values() if change in _changes_of([cure])), key=_passed_at, default=latest
        )
        where = _of_all(count, len(error.failures))
        return f"It passed {change} in {where}.", witness.passed
    if changes and len(latest.change) <= _CHANGE:
        return f"The last time, it passed {latest.change}.", latest.passed
    return f"The command passed later in {_of_all(len(cured), len(error.failures))}.", latest.passed


def _of_all(part: int, whole: int) -> str:
    return f"all {whole:,}" if part == whole else f"{part:,} of them"


# What was done between, each as a clause: what ran instead, other commands, edits
def _changes_of(cures: Iterable[Cure]) -> list[str]:
    changes: list[str] = []
    for cure in cures:
        if command_key(cure.passed.payload["command"]) != command_key(cure.failed.payload["command"]):
            changes.append(f"as `{excerpt(command_key(cure.passed.payload['command']), _COMMAND)}`")
        for command in cure.commands:
            steps = [step for step in normalized_command(command) if not looks(step)]
            changes += [f"after `{excerpt(step, _COMMAND)}`" for step in steps]
        changes += [f"after edits of `{excerpt(path, _COMMAND)}`" for path in cure.edited]
    return changes


def _error_evidence(line: str, failures: Sequence[Failure], passed: SessionEvent | None) -> list[FindingEvidence]:
    evidence = [evidence_of(passed, "command", f"passed: {passed.payload['command']}")] if passed else []
    sessions: set[str] = set()
    for run in sorted((failure.run for failure in failures), key=when, reverse=True):
        if run.session_id not in sessions and len(evidence) < MOST_EVIDENCE:
            sessions.add(run.session_id)
            text = f"{excerpt(run.payload['command'], _COMMAND)} failed with {run.payload['exit_code']}: {line}"
            evidence.append(evidence_of(run, "command", text))
    return evidence


@dataclass(slots=True)
class _FirstRuns:
    """The first runs of a command in the sessions that ran it."""

    failed: list[SessionEvent] = field(default_factory=list)
    passed: int = 0
    # What passed after a failed first run, by session, "" for the same command
    cures: dict[str, str] = field(default_factory=dict)

    @property
    def instead(self) -> tuple[str, int]:
        """The other command that passed in most sessions, and in how many."""
        commands = Counter(filter(None, self.cures.values()))
        return max(commands.items(), key=lambda item: item[1], default=("", 0))

    @property
    def is_telling(self) -> bool:
        count = len(self.failed)
        # Tests fail first whenever someone is at work; that another command passed says more
        least = LEAST_SESSIONS if self.instead[1] >= LEAST_SESSIONS else _LEAST_FIRST
        return count >= least and count >= _LEAST_SHARE * (count + self.passed)


def find_first_failure(sessions: Sequence[SessionLog]) -> ProjectFinding | None:
    """Return the command whose first run in a session fails most often; None if no command does so repeatedly."""
    commands: dict[str, _FirstRuns] = defaultdict(_FirstRuns)
    for session in sessions:
        _add_first_runs(session, commands)
    telling = {name: runs for name, runs in commands.items() if runs.is_telling}
    if not telling:
        return None
    name = max(telling, key=lambda name: (len(telling[name].failed) + telling[name].instead[1], name))
    runs = telling[name]
    count, (instead, times) = len(runs.failed), runs.instead
    sentence = f"`{excerpt(name, _COMMAND)}` failed on its first run in {counted(count, 'session')}."
    advice = "A guideline that names the command to run, or what it needs first, spares the failed attempt."
    if times >= LEAST_SESSIONS:
        sentence += f" `{excerpt(instead, _COMMAND)}` passed after it in {_of_all(times, count)}."
    elif runs.cures:
        sentence += f" It passed later in {_of_all(len(runs.cures), count)}."
    else:
        sentence += " It did not pass later in any of them."
    evidence = []
    for run in sorted(runs.failed, key=when, reverse=True)[:MOST_EVIDENCE]:
        lines = error_lines(run.payload["output"], 1)
        text = f"{excerpt(run.payload['command'], _COMMAND)} failed with {run.payload['exit_code']}"
        evidence.append(evidence_of(run, "command", ": ".join([text, *lines])))
    return ProjectFinding(
        kind=FindingKind.COMMAND,
        subject=excerpt(name),
        sentence=sentence,
        count=count,
        sessions=count,
        evidence=evidence,
        advice=advice,
    )


def _add_first_runs(session: SessionLog, commands: dict[str, _FirstRuns]) -> None:
    seen: set[str] = set()
    for run in session.events:
        if run.type != COMMAND_RUN.name or run.payload["exit_code"] in (None, *_STOPPED):
            continue
        steps = normalized_command(run.payload["command"])
        # Nothing says which of several steps failed
        name = command_name(steps[0]) if len(steps) == 1 else ""
        if not name or looks(steps[0]) or name in seen:
            continue
        seen.add(name)
        if not run.has_failed or run.payload.get("passed_before"):
            commands[name].passed += 1
            continue
        commands[name].failed.append(run)
        if cure := session.cures.get(run.position):
            last = normalized_command(cure.passed.payload["command"])[-1]
            other = command_name(last) or last
            commands[name].cures[session.session_id] = "" if other == name else other


# Programs whose first argument is a script, or a module after -m
_INTERPRETERS = re.compile(r"(?:python[\d.]*|node|ruby|perl|php|bash|sh|zsh|deno|bun|ts-node|tsx)(?:\.exe)?$")
_SCRIPT = re.compile(r"-m$|[\w./-]+\.(?:py|js|ts|mjs|rb|sh|pl|php)$")
# Words after which the next one names what is done
_RUNNERS = frozenset("run exec compose x tool -m manage.py task".split())
_SUBCOMMAND = re.compile(r"[a-z][\w:-]*$")
_MOST_WORDS = 5


def command_name(step: str) -> str:
    """Return what a step of a command runs: its program, script and subcommand, such as ``npm run build``.

    "" for code on the command line, which has no name.
    """
    words = step.split()
    name = words[:1]
    for word in words[1:_MOST_WORDS]:
        last = name[-1].rpartition("/")[2]
        pattern = _SUBCOMMAND
        if _INTERPRETERS.match(last):
            pattern = _SCRIPT
        elif len(name) > 1 and last not in _RUNNERS:
            break
        if not pattern.match(word):
            break
        name.append(word)
    is_nameless = not name or _INTERPRETERS.match(name[-1].rpartition("/")[2])
    return "" if is_nameless else " ".join(name)
