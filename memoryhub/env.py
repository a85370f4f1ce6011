"""The hub's home folder and the environment it is configured by. Standard library only: hooks import it."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # what checkers take for typing's, without importing it
if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_UMASK = 0o077
_VARIABLE = "MEMORY_HUB_HOME"
_FIX = f"set {_VARIABLE} to a folder that you may write, or mend this one"


class HomeError(OSError):
    """The home folder cannot be used. The message is one sentence that says why and what to do."""


def home() -> Path:
    """Return the home folder: ``MEMORY_HUB_HOME``, else ``~/.memory-hub``. It may not exist yet.

    Raises:
        HomeError: the path is relative.
    """
    from pathlib import Path

    return Path(home_text())


def home_text() -> str:
    """Return the home folder as text, without the time that importing ``pathlib`` takes."""
    named = os.path.expanduser(os.environ.get(_VARIABLE) or "~/.memory-hub")  # noqa: PTH111
    if not named.startswith("/"):
        # Hooks, servers and commands start in different folders: each would find a hub of its own.
        raise HomeError(
            f"{_VARIABLE} is {named!r}, and must be an absolute path: a relative one names another folder "
            "for each process"
        )
    return named


def check_home() -> None:
    """Check that the home folder is a folder, or that nothing is there yet. Makes nothing.

    Raises:
        HomeError: it cannot be used.
    """
    path = home_text()
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except FileNotFoundError as error:
        if os.path.islink(path):  # noqa: PTH114
            raise HomeError(f"the home folder {path} is a link that leads nowhere; {_FIX}") from error
        return
    except OSError as error:
        raise _unusable(path, error) from error
    if mode & 0o170000 != 0o040000:  # stat.S_ISDIR without the time that importing stat takes
        raise HomeError(f"the home folder {path} is not a folder; {_FIX}")


def make_home() -> str:
    """Make the home folder (0700), and every file made from now on by this process private (0600); return its path.

    Raises:
        HomeError: it cannot be made, or cannot be made private.
    """
    os.umask(PRIVATE_UMASK)
    check_home()
    path = home_text()
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
        if os.stat(path).st_mode & 0o077:  # noqa: PTH116
            os.chmod(path, 0o700)  # noqa: PTH101
    except OSError as error:
        raise _unusable(path, error) from error
    return path


def prepare_home() -> Path:
    """Do what ``make_home`` does, and return the folder.

    Raises:
        HomeError: it cannot be made, or cannot be made private.
    """
    from pathlib import Path

    return Path(make_home())


def _unusable(path: str, error: OSError) -> HomeError:
    return HomeError(f"the home folder {path} cannot be used: {error.strerror}; {_FIX}")
