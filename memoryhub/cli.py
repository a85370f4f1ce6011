"""The command line: ``memory-hub``, and ``manage.py`` in a checkout."""

from __future__ import annotations

import os
import sys

_SLIM_COMMANDS = frozenset({"bench", "bootstrap", "import", "rebuild", "replay", "verify"})
"""Commands that only work on stores; they start without the web's apps."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = list(sys.argv if argv is None else argv)
    if argv[1:2] == ["mcp"] and not {"-h", "--help"} & set(argv):
        from memoryhub.mcp.front import main as serve_mcp

        return serve_mcp(argv[2:])
    if argv[1:2] == ["hook"] and not {"-h", "--help"} & set(argv):
        from memoryhub.hook.front import main as take_hook

        take_hook(argv[2:])
    settings = "memoryhub.settings_store" if argv[1:2] and argv[1] in _SLIM_COMMANDS else "memoryhub.settings"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)

    from django.core.management import execute_from_command_line

    execute_from_command_line(argv)
    return 0
