"""The hub's home folder. Standard library only, because hooks import it."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # type checkers know the name; importing typing takes time
if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_UMASK = 0o077
_VARIABLE = "MEMORY_HUB_HOME"
_FIX = f"set {_VARIABLE} to a folder that you can write to, or repair this one"


class HomeError(OSError):
    pass


def home() -> Path:
    """Return the home folder, ``MEMORY_HUB_HOME`` or ``~/.memory-hub``; it may not exist yet.

    Raises:
        HomeError: the path is relative.
    """
    from pathlib import Path

    return Path(home_text())


# Text, because importing ``pathlib`` takes longer than all else in a hook
def home_text() -> str:
    named = os.path.expanduser(os.environ.get(_VARIABLE) or "~/.memory-hub")  # noqa: PTH111
    if not named.startswith("/"):
        # Hooks, servers and commands start in different folders, so each would find another hub (decision 30)
        raise HomeError(
            f"{_VARIABLE} is {named!r}, but must be an absolute path: a relative one is another folder in each process"
        )
    return named


def check_home() -> None:
    path = home_text()
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except FileNotFoundError as error:
        if os.path.islink(path):  # noqa: PTH114
            raise HomeError(f"the home folder {path} is a broken link; {_FIX}") from error
        return
    except OSError as error:
        raise _unusable(path, error) from error
    if mode & 0o170000 != 0o040000:  # stat.S_ISDIR without importing stat
        raise HomeError(f"the home folder {path} is not a folder; {_FIX}")


# New files of this process are private from now on
def make_home() -> str:
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
    from pathlib import Path

    return Path(make_home())


def _unusable(path: str, error: OSError) -> HomeError:
    return HomeError(f"can't use the home folder {path}: {error.strerror}; {_FIX}")
