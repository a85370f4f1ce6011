"""How a client starts this installation of the hub."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from memoryhub import env

_PROGRAM, _SCRIPT = "memory-hub", "manage.py"
_CHECKOUT = Path(__file__).parents[2]


def command_words() -> list[str]:
    """Return the words that start this installation: its ``memory-hub``, else its interpreter and ``manage.py``."""
    interpreter = Path(sys.executable)  # not resolved: a virtual environment is known by its link
    program = interpreter.with_name(_PROGRAM)
    return [str(program)] if program.is_file() else [str(interpreter), str(_CHECKOUT / _SCRIPT)]


def variables() -> dict[str, str]:
    """Return what a client has to set, because it does not know this shell: the hub's home, where it is elsewhere."""
    return {"MEMORY_HUB_HOME": env.home_text()} if os.environ.get("MEMORY_HUB_HOME") else {}


def shell_command(words: Sequence[str]) -> str:
    """Return what a shell runs to start this installation with further words."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables().items()]
    return " ".join([*settings, shlex.join([*command_words(), *words])])


def own_part(words: Sequence[str], verb: str) -> int:
    """Return where ``verb`` stands in a command that starts some installation of the hub with it; 0 where none does."""
    starts = (at for at, word in enumerate(words[:-1], 1) if _is_hub(word) and words[at] == verb)
    return next(starts, 0)


def _is_hub(word: object) -> bool:
    return isinstance(word, str) and Path(word).name in (_PROGRAM, _SCRIPT)
