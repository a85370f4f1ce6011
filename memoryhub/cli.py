"""Entry point of ``memory-hub`` and ``manage.py``."""

from __future__ import annotations

import os
import re
import sys

from memoryhub.env import HomeError, check_home

# Commands that need only stores; they start without the web's apps
_SLIM_COMMANDS = frozenset({"bench", "bootstrap", "import", "rebuild", "replay", "verify"})

# The end of the first sentence or clause of a help text
_END = re.compile(r"[.;:](?: |$)| \(")
_USAGE = "memory-hub COMMAND …; memory-hub COMMAND --help shows its options."
_OTHERS = "memory-hub help --commands also lists Django's commands, such as migrate and shell."


def main(argv: list[str] | None = None) -> int:
    argv = list(sys.argv if argv is None else argv)
    if argv[1:] == ["--version"]:
        from memoryhub import __version__

        sys.stdout.write(f"{__version__}\n")
        return 0
    if argv[1:2] == ["mcp"] and not _asks_for_help(argv):
        from memoryhub.mcp.front import main as serve_mcp

        return serve_mcp(argv[2:])
    if argv[1:2] == ["hook"] and not _asks_for_help(argv):
        from memoryhub.client.hook.front import main as take_hook

        take_hook(argv[2:])
    try:
        return _run(argv)
    except HomeError as error:
        from memoryhub.core.errors import Unavailable

        sys.stderr.write(f"memory-hub: {error}\n")
        return Unavailable.exit_code
    except KeyboardInterrupt:
        from memoryhub.core.errors import INTERRUPTED_EXIT_CODE

        sys.stderr.write("memory-hub: interrupted\n")
        return INTERRUPTED_EXIT_CODE


def _asks_for_help(argv: list[str]) -> bool:
    return argv[1:2] == ["help"] or not {"-h", "--help"}.isdisjoint(argv)


def _run(argv: list[str]) -> int:
    settings = "memoryhub.settings_store" if argv[1:2] and argv[1] in _SLIM_COMMANDS else "memoryhub.settings"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)

    if argv[1:] in ([], ["help"], ["--help"], ["-h"]):
        sys.stdout.write(_overview())
        return 0
    if not _asks_for_help(argv):
        check_home()
    from django.core.management import execute_from_command_line

    execute_from_command_line(argv)
    return 0


def _overview() -> str:
    import django
    from django.core.management import find_commands, load_command_class

    from memoryhub import management

    django.setup()
    commands = {name: load_command_class("memoryhub", name).help for name in find_commands(management.__path__[0])}
    wide = max(map(len, commands))
    lines = [f"  {name:<{wide}}  {_END.split(text)[0]}" for name, text in sorted(commands.items())]
    return "\n".join([_USAGE, "", *lines, "", _OTHERS, ""])


if __name__ == "__main__":
    sys.exit(main())
