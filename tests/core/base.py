"""What tests of core share."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from memoryhub.cli import main


def run_command(*words: str) -> tuple[object, str, str]:
    """Run ``memory-hub`` in this process; return its exit code, standard output and standard error."""
    output, errors = StringIO(), StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            code: object = main(["memory-hub", *words])
        except SystemExit as end:
            code = end.code or 0
    return code, output.getvalue(), errors.getvalue()
