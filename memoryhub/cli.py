"""Entry point of ``memory-hub`` and ``manage.py``."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from memoryhub.env import DATABASE_VARIABLE, FILES, HomeError, check_home, make_home

TYPE_CHECKING = False  # type checkers know the name; importing typing takes time
if TYPE_CHECKING:
    from typing import Any


def main(argv: list[str] | None = None) -> int:
    argv = list(sys.argv if argv is None else argv)
    # A terminal of another encoding than UTF-8 gets a question mark for each character that it cannot show
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    if "_ARGCOMPLETE" in os.environ:
        from memoryhub.management.parsers import complete

        complete()
    if argv[1:] == ["--version"]:
        from memoryhub import __version__

        sys.stdout.write(f"{__version__}\n")
        return 0
    if argv[1:2] == ["mcp"] and not _asks_for_help(argv):
        from memoryhub.mcp.relay import main as serve_mcp

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


# They work in several databases, in none, or in a home of their own
_OF_ANY_DATABASE = frozenset({"bench", "check", "help", "makemigrations", "move", "setup", "test"})
# Django's commands that read or change the tables themselves, so nothing migrates these before
_OF_BARE_DATABASES = frozenset({"dbshell", "flush", "migrate", "showmigrations", "sqlflush", "sqlmigrate"})


def _check_home(argv: list[str]) -> None:
    check_home()
    name = argv[1]
    if name == "bench":
        os.environ[DATABASE_VARIABLE] = FILES  # so that nothing generated gets into the user's database
    if name in _OF_ANY_DATABASE:
        return
    from memoryhub.core.home_database import require_own

    require_own(by_client="--on-demand" in argv, is_hub=name == "serve")


def _asks_for_help(argv: list[str]) -> bool:
    return not {"-h", "--help"}.isdisjoint(argv)


_HELP_OPTIONS = ("--help", "-h", "--all", "--commands")


# Help, wrong names and wrong options end here, before Django is imported
def _run(argv: list[str]) -> int:
    from memoryhub.management.parsers import read_commands

    if argv[1:2] == ["help"] and argv[2:] and argv[2] not in _HELP_OPTIONS:
        argv = [argv[0], *argv[2:], "--help"]
    described = read_commands()
    name = argv[1] if argv[1:] else "help"
    if name in ("help", *_HELP_OPTIONS) and argv[2:] != ["--commands"]:
        from memoryhub.management import overview

        screen = overview.all_commands if overview.ALL in argv[1:] else overview.first_screen
        overview.write_lines(sys.stdout, screen(described["commands"]))
        return 0
    if name in described["commands"]:
        return _run_own(argv, name, described["commands"][name])
    if name not in (*described["others"], "help"):
        return _refuse(name, described)
    needs_home = name not in _OF_ANY_DATABASE and not _asks_for_help(argv)
    if needs_home:
        make_home()
    return _run_in_django(argv, "memoryhub.settings", migrates=needs_home and name not in _OF_BARE_DATABASES)


def _run_own(argv: list[str], name: str, command: dict[str, Any]) -> int:
    from memoryhub.management.parsers import build, completion_script, is_answered_by_hub

    if name != "completion" and not _asks_for_help(argv):
        _check_home(argv)
    chosen = build(f"{argv[0].rpartition('/')[2]} {name}", command).parse_args(argv[2:])
    if name == "completion":
        sys.stdout.write(completion_script(chosen.shell))
        return 0
    asks_hub = is_answered_by_hub(command, argv[1:])
    if asks_hub:
        from memoryhub.management.ask_hub import run_in_hub

        code = run_in_hub(argv[1:])
        if code is not None:
            return code
    settings = "memoryhub.settings_store" if command["slim"] else "memoryhub.settings"
    code = _run_in_django(argv, settings, is_own=True)
    if asks_hub and name != "status" and sys.stdout.isatty():
        from memoryhub.core.autostart import start_hub

        start_hub()  # the person's next command is answered at once
    return code


def _run_in_django(argv: list[str], settings: str, *, is_own: bool = False, migrates: bool = False) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    if argv[1:] and not _asks_for_help(argv):
        _check_home(argv)
    from memoryhub.mcp.sdk import deferred_models, uncollected

    with uncollected(), deferred_models():
        import django

        django.setup()
        if is_own:
            from importlib import import_module

            import_module(f"memoryhub.management.commands.{argv[1]}")
    if migrates:
        from memoryhub.ops.hub_databases import prepare_databases

        prepare_databases()
    from django.core.management import execute_from_command_line

    execute_from_command_line(argv)
    return 0


def _refuse(name: str, described: dict[str, Any]) -> int:
    from memoryhub.core.errors import Invalid
    from memoryhub.management.overview import unknown_command, write_lines

    write_lines(sys.stderr, [unknown_command(name, described["commands"])])
    return Invalid.exit_code


if __name__ == "__main__":
    sys.exit(main())
