"""Checks that prove an entry: their text, and running them in a working tree.

A command is started without a shell, in a process group of its own, with a time limit. A pattern is an expression of
RE2, which takes linear time, and is tried on one file of the tree.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from memories.search.output import error_lines, for_reading
from memoryhub.config.repository import resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.foreign_files import read_foreign
from memoryhub.core.text import flat
from sessions_app.git.process import list_files
from sessions_app.git.worktree import working_tree_at

# Seconds that a command may take
SECONDS = 600.0
# Bytes of a file, and of the end of an output, that patterns are tried on
MAX_FILE, MAX_OUTPUT = 4 * 2**20, 256 * 1024
_MOST_LINES, _LONGEST_LINE = 5, 200
_PATTERN_MEMORY = 8 * 2**20
# Seconds in which the output is read that others still hold when the command has ended
_GRACE = 1.0
_CHUNK = 1 << 16
_COMMAND = re.compile(r"`(?P<command>[^`]+)`(?: exits (?P<exits>\d{1,3}))?(?:(?: and)? prints (?P<prints>.+))?")
_FILE = re.compile(r"(?P<file>`[^`]+`|\S+) (?P<verb>matches|lacks) (?P<pattern>.+)")
_FORMS = 'write "`make test` exits 0", "pyproject.toml matches `asyncpg`" or "pyproject.toml lacks `psycopg2`"'
# Variables that a command does not get: the hub's, the database's, and those that look like a secret
_HUBS_VARIABLES = ("MEMORY_HUB_", "DJANGO_", "PG", "GIT_")
_SECRET_VARIABLE = re.compile(r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|_?KEY$|DATABASE_URL|DSN$")


@dataclass(frozen=True, slots=True)
class Check:
    """A command with its expected exit code and output, or a file with patterns that it matches or lacks."""

    command: str = ""
    exits: int = 0
    prints: str = ""
    file: str = ""
    matches: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        if self.command:
            prints = f" and prints `{self.prints}`" if self.prints else ""
            return flat(f"`{self.command}` exits {self.exits}{prints}")
        patterns = [f"matches `{pattern}`" for pattern in self.matches]
        patterns += [f"lacks `{pattern}`" for pattern in self.lacks]
        file = f"`{self.file}`" if " " in self.file else self.file
        return flat(f"{file} {' and '.join(patterns)}")

    @property
    def digest(self) -> str:
        """Return the SHA-256 by which a permission and a result belong to exactly this check."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def require_runnable(self) -> None:
        """Raise Invalid unless the command can be split into words, the file is in the tree, and the patterns are."""
        for pattern in filter(None, (self.prints, *self.matches, *self.lacks)):
            _compiled(pattern)
        if self.command:
            _words(self.command)
            return
        path = PurePosixPath(self.file)
        if not self.file or path.is_absolute() or ".." in path.parts:
            raise Invalid(f"{self.file!r} is no path inside the working tree; give one from its top")
        if not self.matches and not self.lacks:
            raise Invalid(f"the check of {self.file} has no pattern; {_FORMS}")


def parse_check(line: str) -> Check:
    """Return the check that one line describes.

    Raises:
        Invalid: it describes none, or one that cannot run.
    """
    text = line.strip()
    described = _COMMAND.fullmatch(text)
    if described:
        prints = _bare(described["prints"] or "")
        check = Check(command=described["command"].strip(), exits=int(described["exits"] or 0), prints=prints)
    else:
        described = _FILE.fullmatch(text)
        if not described:
            raise Invalid(f"{text[:80]!r} is no check; {_FORMS}")
        patterns = (_bare(described["pattern"]),)
        check = Check(file=_bare(described["file"]), matches=patterns)
        if described["verb"] == "lacks":
            check = Check(file=check.file, lacks=patterns)
    check.require_runnable()
    return check


def _bare(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] == "`"
    return text[1:-1] if quoted else text


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"the command `{command[:80]}` cannot be split into words: {error}") from error
    if not words:
        raise Invalid(f"the command is empty; {_FORMS}")
    return words


# ``^`` and ``$`` match at line breaks
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        return re2.compile(f"(?m){pattern}", options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise Invalid(f"`{pattern[:80]}` is not a valid RE2 expression: {reason}") from error


class CheckedTree:
    """The working tree in which checks run: the top of the repository that contains a folder, or the folder."""

    def __init__(self, folder: Path) -> None:
        tree = working_tree_at(folder)
        self.folder = resolved(tree.top if tree else folder)
        # The hash of HEAD; "" outside git and where it is not known
        self.commit = tree.head if tree else ""
        self._is_repository = tree is not None

    @cached_property
    def _paths(self) -> frozenset[str] | None:
        listed = list_files(self.folder) if self._is_repository else None
        return None if listed is None else frozenset(listed)

    def read(self, name: str) -> str:
        """Return the text of a file of the tree.

        Raises:
            Invalid: it is absent, too large, ignored by git, or a link to what is.
        """
        path = resolved(self.folder / name)
        if not path.is_relative_to(self.folder):
            raise Invalid(f"{name} is a link out of the working tree")
        if self._paths is not None and path.relative_to(self.folder).as_posix() not in self._paths:
            raise Invalid(f"there is no {name} among the files that git does not ignore")
        try:
            return read_foreign(path, limit=MAX_FILE, follows_links=False).decode(errors="replace")
        except OSError as error:
            raise Invalid(f"can't read {name}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class CheckResult:
    # Why it failed; empty if it passed
    fault: str
    # None for a pattern, and for a command that did not end
    exit_code: int | None = None
    seconds: float = 0.0
    # The end of what a failed command printed, or the lines that name an error
    lines: list[str] = field(default_factory=list)


def run_check(check: Check, tree: CheckedTree, *, seconds: float = SECONDS) -> CheckResult:
    """Run a check in a working tree. Whether its command may run is the caller's matter."""
    try:
        check.require_runnable()
        if check.command:
            return _run_command(check, tree.folder, seconds)
        text = tree.read(check.file)
    except Invalid as error:
        return CheckResult(error.message)
    return CheckResult("; ".join(_pattern_faults(check, text)))


def _pattern_faults(check: Check, text: str) -> Iterator[str]:
    for pattern in check.matches:
        if not _compiled(pattern).search(text):
            yield f"{check.file} does not match `{pattern}`"
    for pattern in check.lacks:
        if _compiled(pattern).search(text):
            yield f"{check.file} matches `{pattern}`"


def _run_command(check: Check, folder: Path, seconds: float) -> CheckResult:
    began = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603  (a person allowed this command; no shell)
            _words(check.command),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return CheckResult(f"the command cannot be started: {reason}")
    with process:
        try:
            output, is_late = _output_of(process, seconds)
        finally:
            _kill_group(process)
        exit_code = process.wait()
    took = round(time.monotonic() - began, 3)
    text = for_reading(output.decode(errors="replace"))
    if is_late:
        return CheckResult(f"it had not ended after {seconds:g} seconds", None, took, _last_lines(text))
    fault = ""
    if exit_code != check.exits:
        fault = f"it exits {exit_code}, not {check.exits}"
    elif check.prints and not _compiled(check.prints).search(text):
        fault = f"it does not print `{check.prints}`"
    return CheckResult(fault, exit_code, took, _last_lines(text) if fault else [])


# The end of the output, and whether the time was over before the command ended. What the command has left behind may
# hold the pipe open, so the end of the command counts, not that of the output.
def _output_of(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, bool]:
    assert process.stdout is not None  # noqa: S101  (it was started with a pipe)
    pipe = process.stdout.fileno()
    output = bytearray()
    deadline = time.monotonic() + seconds
    has_ended = False
    is_open = True
    while time.monotonic() < deadline:
        if not has_ended and _has_ended(process):
            has_ended = True
            deadline = min(deadline, time.monotonic() + _GRACE)
        ready = is_open and select.select([pipe], [], [], 0 if has_ended else 0.05)[0]
        if not is_open and not has_ended:
            time.sleep(0.05)
        if ready:
            chunk = os.read(pipe, _CHUNK)
            is_open = bool(chunk)
            output += chunk
            if len(output) > 2 * MAX_OUTPUT:
                del output[:-MAX_OUTPUT]
        elif has_ended:
            break
    return bytes(output[-MAX_OUTPUT:]), not has_ended


# Without waiting for it: until then the process keeps its id, so the group is its own
def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    secrets = {name for name in os.environ if name.startswith(_HUBS_VARIABLES) or _SECRET_VARIABLE.search(name.upper())}
    environment = {name: value for name, value in os.environ.items() if name not in secrets}
    # A relative folder of the PATH can lie in the tree
    folders = [folder for folder in os.get_exec_path() if Path(folder).is_absolute()]
    return {**environment, "PATH": os.pathsep.join(folders)}


def _last_lines(text: str) -> list[str]:
    lines = error_lines(text, _MOST_LINES) or [line.strip() for line in text.splitlines() if line.strip()]
    return [flat(line)[:_LONGEST_LINE] for line in lines[-_MOST_LINES:]]
