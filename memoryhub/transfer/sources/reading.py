"""Reads the files of other tools, within limits, and never writes beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat

# Bytes of a file that is read whole, and of one line of JSON
MAX_FILE = 64 * 2**20
MAX_LINE = 4 * 2**20


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each line that is not empty.

    Raises:
        Invalid: the file cannot be read, or a line is too long or no JSON.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
                if len(line) > MAX_LINE:
                    raise Invalid(f"line {number} of {flat(str(path))} is longer than {MAX_LINE // 2**20} MB")
                if line.strip():
                    yield number, _parsed(line, number, path)
    except OSError as error:
        raise Invalid(f"can't read {flat(str(path))}: {error.strerror}") from error


def _parsed(line: bytes, number: int, path: Path) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Invalid(f"line {number} of {flat(str(path))} is no JSON; is this the right file?") from error
