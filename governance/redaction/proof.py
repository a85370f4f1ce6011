"""Proof by bytes: which files of the home folder hold a text."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from memoryhub import env

logger = logging.getLogger(__name__)

_READER = Path(__file__).with_name("reading.py")


@dataclass(slots=True)
class Proof:
    """What reading every file found."""

    files: int = 0
    bytes: int = 0
    left: list[Path] = field(default_factory=list)
    """Those that hold one of the texts."""
    complete: bool = True
    """False where the files could not be read."""


def search_home(texts: Collection[str]) -> Proof:
    """Read every file of the home folder for any of the texts, as they are and as JSON writes them; never raises.

    Another process reads: see there why.
    """
    asked = json.dumps({"folder": str(env.home()), "texts": sorted(texts)})
    command = [sys.executable, "-P", str(_READER)]
    try:
        ended = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)  # noqa: S603
        found = json.loads(ended.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        logger.warning("the home folder could not be searched: %s", type(error).__name__)
        return Proof(complete=False)
    return Proof(found["files"], found["bytes"], [Path(each) for each in found["left"]])
