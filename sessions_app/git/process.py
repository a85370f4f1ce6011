"""Run the git binary so that a repository of someone else can start no program with it, and fetch nothing."""

from __future__ import annotations

import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from memoryhub.config.repository import find_repository, is_folder, resolved
from memoryhub.core.errors import Invalid, Unavailable

MAX_AUTHOR = 300
# Seconds that one call waits for git, without the time in which its reader works
SECONDS = 30.0
# The same for the whole history of a repository, and for one part of it
STREAM_SECONDS, SILENCE_SECONDS = 1_800.0, 60.0
# Bytes of an answer that is read whole, and of git's own reason
MAX_OUTPUT = 64 * 2**20
_MAX_REASON = 8_192
# Bytes that git may allocate; files that it maps, such as packs, do not count
_MAX_MEMORY = 2**30
_CHUNK = 1 << 16
# Exit codes that are an answer, yes or no; with any other, git could not tell
_ANSWERS = (0, 1)
_NO_REPOSITORY = b"not a git repository"
_NO_WORKTREE = b"must be run in a work tree"
# A repository's configuration names programs for all of these, and files that git reads whole. What git offers no
# setting for, an option of the command switches off: see the callers. The test of hostile repositories tries each.
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "core.quotePath": "false",
    "blame.ignoreRevsFile": "",
    # "log" and "diff" run git in submodules, without the options of this command
    "diff.submodule": "short",
    "diff.renameLimit": "1000",
    "i18n.logOutputEncoding": "UTF-8",
    "log.showSignature": "false",
    "mailmap.blob": "",
    "mailmap.file": "",
    # A clone may track a folder that git takes for a bare repository, with a configuration of its own (git 2.38)
    "safe.bareRepository": "explicit",
    "submodule.recurse": "false",
}
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",  # what git older than 2.39.4 heeds instead of the next one
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def run(
    directory: Path,
    *arguments: str,
    standard_input: bytes = b"",
    max_output: int = MAX_OUTPUT,
    seconds: float = SECONDS,
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder and return its exit code, its output and its reason.

    Raises:
        Unavailable: git is not installed, does not answer in time, or prints more than ``max_output`` bytes.
    """
    with _started(directory, arguments, standard_input) as process:
        output = bytearray()
        answer = _GitOutput(process, directory, seconds=seconds, silence=seconds)
        for chunk in answer.chunks():
            output += chunk
            if len(output) > max_output:
                raise Unavailable(f"git prints more than {max_output // 2**20} MB in {directory}")
        return subprocess.CompletedProcess(process.args, answer.exit_code(), bytes(output), bytes(answer.reason))


def run_in_repository(directory: Path, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    """Run git in a folder, as ``run``; None if it is in no repository, or needs a working tree that there is not.

    Raises:
        Unavailable: the folder is in a repository, and git is not installed, refuses it or cannot read it.
    """
    try:
        answer = run(directory, *arguments)
    except Unavailable:
        if _is_in_repository(directory):
            raise
        return None
    if answer.returncode in _ANSWERS:
        return answer
    if _NO_WORKTREE in answer.stderr or (_NO_REPOSITORY in answer.stderr and not _is_in_repository(directory)):
        return None
    raise Unavailable(f"git cannot read the repository of {directory}: {reason_of(answer.stderr)}")


# As git, from the folder without symbolic links
def _is_in_repository(directory: Path) -> bool:
    folder = resolved(directory)
    has_git = any(os.path.lexists(above / ".git") for above in (folder, *folder.parents))
    return has_git or find_repository(folder) is not None


@contextmanager
def stream(directory: Path, *arguments: str) -> Iterator[Iterator[bytes]]:
    """Yield git's output in chunks; after the last one, they raise git's reason if it failed.

    Raises:
        Unavailable: as ``run``, and if git fails.
    """
    with _started(directory, arguments) as process:
        answer = _GitOutput(process, directory, seconds=STREAM_SECONDS, silence=SILENCE_SECONDS)
        yield answer.checked_chunks()


class _GitOutput:
    def __init__(self, process: subprocess.Popen[bytes], directory: Path, *, seconds: float, silence: float) -> None:
        self.reason = bytearray()
        self._process = process
        self._directory = directory
        self._seconds = seconds
        self._silence = silence

    def chunks(self) -> Iterator[bytes]:
        assert self._process.stdout is not None  # noqa: S101  (it was started with pipes)
        assert self._process.stderr is not None  # noqa: S101
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            selector.register(self._process.stderr, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in self._ready(selector):
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._process.stdout:
                        yield chunk
                    else:
                        self.reason = (self.reason + chunk)[-_MAX_REASON:]

    def checked_chunks(self) -> Iterator[bytes]:
        yield from self.chunks()
        if code := self.exit_code():
            reason = reason_of(bytes(self.reason))
            raise Unavailable(
                f"git ended with code {code} in {self._directory}: {reason}; try `git fsck` there", exit_code=code
            )

    def exit_code(self) -> int:
        try:
            return self._process.wait(SECONDS)
        except subprocess.TimeoutExpired as error:
            raise self._too_late() from error

    def _ready(self, selector: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]]:
        before = time.monotonic()
        ready = selector.select(min(self._seconds, self._silence))
        self._seconds -= time.monotonic() - before
        if not ready or self._seconds <= 0:
            raise self._too_late()
        return ready

    def _too_late(self) -> Unavailable:
        return Unavailable(f"git did not answer in time in {self._directory}; try `git fsck` there")


# In a session of its own, git has no terminal to ask on, and can be ended with all that it started.
@contextmanager
def _started(
    directory: Path, arguments: tuple[str, ...], standard_input: bytes = b""
) -> Iterator[subprocess.Popen[bytes]]:
    environment = _environment()
    try:
        with _input_file(standard_input) as source:
            process = subprocess.Popen(  # noqa: S603  (arguments of our own, no shell)
                _git_command(directory, arguments, environment["PATH"]),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise Unavailable(f"git cannot be started in {str(directory)[:80]!r}: {error}") from error
    with process:
        try:
            # A system without prlimit, such as macOS, relies on the time limit alone
            if hasattr(resource, "prlimit"):
                with suppress(ProcessLookupError):  # it has ended already
                    resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MAX_MEMORY, _MAX_MEMORY))
            yield process
        finally:
            # Until it is waited for, the process keeps its id, so the group is its own
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


# A file and no pipe: git may print more than a pipe holds before it has read all
@contextmanager
def _input_file(content: bytes) -> Iterator[int]:
    if not content:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile(prefix="memory-hub-") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def _git_command(directory: Path, arguments: tuple[str, ...], path: str) -> list[str]:
    program = shutil.which("git", path=path)
    if program is None:
        raise Unavailable("git is not installed; install it, or put it on the PATH")
    words = [program, "-C", str(directory), "--no-pager"]
    for name, value in _SETTINGS.items():
        words += ["-c", f"{name}={value}"]
    repository = find_repository(directory)
    if repository and repository.is_bare:
        words.append(f"--git-dir={repository.common_dir}")
    return [*words, *arguments]


def _environment() -> dict[str, str]:
    # The caller's GIT_DIR, GIT_CONFIG_COUNT or GIT_EXTERNAL_DIFF are meant for another command. A relative folder of
    # the PATH can lie in the repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]  # noqa: PTH117
    return {**inherited, **_ENVIRONMENT, "PATH": os.pathsep.join(folders)}


# Old commits may be in Latin-1 without declaring an encoding.
def text_of(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


# git accepts times outside the range of datetime; these become 1970.
def moment_of(seconds: bytes) -> datetime:
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def reason_of(errors: bytes) -> str:
    """Return git's own reason in one sentence, with the command that it names for a cure."""
    lines = [line.strip() for line in text_of(errors).splitlines() if line.strip()]
    fatal = next((number for number, line in enumerate(lines) if line.startswith("fatal: ")), len(lines) - 1)
    reason = "; ".join(lines[max(fatal, 0) :]).replace(":; ", ": ").removeprefix("fatal: ")
    return reason or "git gave no reason"


# Where a folder is outside git, and where git cannot tell, are two answers: the second one is an error, because the
# caller would otherwise read the files that the repository ignores.


def list_files(directory: Path) -> list[str] | None:
    """Return the files below a folder that git tracks or does not ignore, relative to it.

    None outside git, and for a folder that is ignored itself: git does not look into it.

    Raises:
        Unavailable: the folder is in a repository that git cannot read.
    """
    answer = run_in_repository(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if answer is None:
        return None
    if not answer.stdout:
        ignored = run_in_repository(directory, "check-ignore", "--quiet", ".")
        if ignored is not None and ignored.returncode == 0:
            return None
    return sorted(set(map(os.fsdecode, filter(None, answer.stdout.split(b"\0")))))


def path_in_worktree(directory: Path) -> str:
    """Return the folder's path in its worktree, such as ``docs/``; "" at the top and outside git.

    Raises:
        Unavailable: the folder is in a repository that git cannot read.
    """
    answer = run_in_repository(directory, "rev-parse", "--show-prefix")
    return "" if answer is None else os.fsdecode(answer.stdout.removesuffix(b"\n"))


def top_of_worktree(directory: Path) -> Path:
    """Return the top folder of the working tree that contains a folder.

    Raises:
        Invalid: there is no such folder, or it is in no working tree.
        Unavailable: it is in a repository that git cannot read.
    """
    if not is_folder(directory):
        raise Invalid(f"{directory} is not a folder")
    answer = run_in_repository(directory, "rev-parse", "--show-toplevel")
    if answer is None or not answer.stdout.strip():
        raise Invalid(f"{directory} is in no working tree of git")
    top = Path(os.fsdecode(answer.stdout.removesuffix(b"\n"))).resolve()
    if not directory.resolve().is_relative_to(top):
        raise Invalid(f"{directory} is not in {top}, the working tree that its repository names (core.worktree)")
    return top


MAIN_BRANCHES = ("main", "master", "trunk", "develop")
# Commits of a branch that are looked at, and seconds for each question: a session waits for them
_MOST_AHEAD, _WORK_SECONDS = 5, 0.3


def branch_work(directory: Path) -> list[str]:
    """Return the name of the current branch, the subjects of its commits and the files that are staged.

    Empty outside git, without what git fails to tell in time; a main branch has only staged files. The working tree is
    not compared: git would run its files through the filters that the repository names.
    """
    work: list[str] = []
    if not _is_in_repository(directory):
        return work
    ask = partial(run, directory, seconds=_WORK_SECONDS)
    main = [option for name in MAIN_BRANCHES for option in (f"--branches={name}", f"--remotes=*/{name}")]
    options = (f"--max-count={_MOST_AHEAD}", "--no-merges", "--format=%s")
    with suppress(Unavailable):
        branch = text_of(ask("symbolic-ref", "--quiet", "--short", "HEAD").stdout).strip()
        if branch not in MAIN_BRANCHES:
            work.append(" ".join(re.split(r"[\W_]+", branch)))
        work += text_of(ask("log", *options, "HEAD", "--not", *main).stdout).splitlines()
        staged = ask("diff-index", "--cached", "--name-only", "-z", "--ignore-submodules", "HEAD", "--")
        work += text_of(staged.stdout).split("\0")
    return list(filter(None, work))
