"""Run the git binary, and decode what it prints."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from memoryhub.core.errors import Unavailable

MAX_AUTHOR = 300
_TIMEOUT = 30
_CHUNK = 1 << 16
_QUIET = (
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.quotePath=false",
    "-c",
    "i18n.logOutputEncoding=UTF-8",
    "-c",
    "log.showSignature=false",
)


def _command(directory: Path, arguments: tuple[str, ...]) -> list[str]:
    return ["git", "-C", str(directory), *_QUIET, *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603  (arguments of our own, no shell)
            _command(directory, arguments), capture_output=True, check=False, timeout=_TIMEOUT, env=_environment()
        )
    except FileNotFoundError as error:
        raise Unavailable("git is not installed; install it, or put it on the PATH") from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"git cannot be started in {str(directory)[:80]!r}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"git did not answer within {_TIMEOUT} s in {directory}") from error


@contextmanager
def stream(directory: Path, *arguments: str) -> Iterator[Iterator[bytes]]:
    # Yields git's output in chunks; git's exit code is checked after the last one.
    process = subprocess.Popen(  # noqa: S603  (arguments of our own, no shell)
        _command(directory, arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    )
    output = process.stdout
    assert output is not None  # noqa: S101  (Popen was given a pipe)
    try:
        yield iter(lambda: output.read(_CHUNK), b"")
        if process.wait(_TIMEOUT):
            raise Unavailable(f"git log ended with code {process.returncode} in {directory}; try `git fsck` there")
    finally:
        output.close()
        process.kill()
        process.wait()


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


def last_line(output: bytes) -> str:
    lines = text_of(output).strip().splitlines()
    return lines[-1] if lines else "git gave no reason"
