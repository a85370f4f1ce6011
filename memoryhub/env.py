"""The hub's home folder and the environment it is configured by. Standard library only: hooks import it."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # what checkers take for typing's, without importing it
if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_UMASK = 0o077


def home() -> Path:
    """Return the home folder: ``MEMORY_HUB_HOME``, else ``~/.memory-hub``. It may not exist yet."""
    from pathlib import Path

    return Path(home_text())


def home_text() -> str:
    """Return the home folder as text, without the time that importing ``pathlib`` takes."""
    named = os.path.expanduser(os.environ.get("MEMORY_HUB_HOME") or "~/.memory-hub")  # noqa: PTH111
    return named if named.startswith("/") else os.path.join(os.getcwd(), named)  # noqa: PTH109, PTH118


def prepare_home() -> Path:
    """Make the home folder (0700), and every file made from now on by this process private (0600)."""
    os.umask(PRIVATE_UMASK)
    folder = home()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder
