"""Start modules of the hub as processes, and the hub itself in the background for a client that needs it."""

from __future__ import annotations

import os
import sys

from memoryhub.core import home_database
from memoryhub.core.file_locks import is_locked, try_lock
from memoryhub.core.foreign_files import CONFIG_BYTES, is_off, read_text, switch_in
from memoryhub.env import CONFIG_FILE, SERVE_LOCK, DatabaseUrlError, home_text, make_home

VARIABLE = "MEMORY_HUB_AUTOSTART"
SETTING = "autostart"
# A hub that fails to start is tried again after so many seconds, not at every event of every client.
_PAUSE_SECONDS = 30.0
# Has content from the start of a hub until it serves. The hub holds its lock for as long as it runs.
_MARK = "run/autostart"


def is_allowed() -> bool:
    """Return whether the hub may start by itself: the environment decides, else ``config.toml``; the default is yes."""
    value = os.environ.get(VARIABLE)
    if value is not None:
        return not is_off(value)
    return switch_in(read_text(f"{home_text()}/{CONFIG_FILE}", limit=CONFIG_BYTES), SETTING) is not False


def start_hub() -> bool:
    """Start the hub, and return whether it was started.

    It is not if one runs, one was started a moment ago, ``autostart`` is off, or the home works with another database.
    """
    if not is_allowed() or is_locked(f"{home_text()}/{SERVE_LOCK}"):
        return False
    import time

    try:
        home_database.require_own(by_client=True)
    except DatabaseUrlError:
        return False
    os.makedirs(f"{make_home()}/run", mode=0o700, exist_ok=True)  # noqa: PTH103
    descriptor = os.open(f"{home_text()}/{_MARK}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(descriptor):
            return False
        if is_locked(f"{home_text()}/{SERVE_LOCK}"):
            return False  # one has started, and noted it, since the look before
        status = os.fstat(descriptor)
        if status.st_size and abs(time.time() - status.st_mtime) < _PAUSE_SECONDS:
            return False
        os.pwrite(descriptor, b"started\n", 0)  # until it serves
        os.utime(descriptor)
        start_in_background("serve", "--on-demand", folder=home_text(), locked=descriptor)
    finally:
        os.close(descriptor)
    return True


def is_starting() -> bool:
    """Return whether a hub that a client started runs, though it may not serve yet."""
    return is_locked(f"{home_text()}/{_MARK}")


def note_started() -> None:
    """Note that the hub serves: if it ends, the next client starts another one at once."""
    if os.path.exists(mark := f"{home_text()}/{_MARK}"):  # noqa: PTH110
        os.truncate(mark, 0)


def start_in_background(*arguments: str, folder: str, locked: int | None = None) -> None:
    """Start a command of the hub in a folder as a process that outlives this one; nobody reads what it prints.

    A lock that this process holds through the descriptor ``locked`` is the command's, too, until it ends.
    """
    import subprocess

    # What a client or this process set for itself is not the command's.
    inherited = {
        name: value for name, value in module_environment().items() if not name.startswith(("GIT_", "DJANGO_"))
    }
    # In a session of its own, so that what ends the client's processes does not end it.
    process = subprocess.Popen(  # noqa: S603
        module_command("memoryhub.cli", *arguments),
        cwd=folder,
        env=inherited,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=() if locked is None else (locked,),
    )
    process.returncode = 0  # nobody waits for it: without this, Popen warns when it is collected


_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module.

    Python then imports nothing from the working folder (-P), which may be a repository that someone else wrote.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment(**changes: str) -> dict[str, str]:
    """Return this process's environment with changes; modules are found without the working folder."""
    # A relative folder would be another one in each process
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(folder)]  # noqa: PTH117
    return {**os.environ, "PYTHONPATH": os.pathsep.join([_ROOT, *folders]), **changes}
