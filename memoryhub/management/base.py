"""The base of the hub's commands: a project to work on, errors as one sentence and an exit code."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from argparse import ArgumentTypeError, _MutuallyExclusiveGroup
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import DatabaseError

from memoryhub.config.folder import read_folder, use_folder
from memoryhub.config.identity import identify_project
from memoryhub.core.errors import INTERRUPTED_EXIT_CODE, HubError, Locked, Unavailable
from memoryhub.core.log import anchor_warning
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, StoreId, org_store, project_store, use_store
from memoryhub.core.text import hanging, printable
from memoryhub.ops.serving.drain import drain_before_reading

_DJANGOS_OPTIONS = (
    "--version --verbosity --settings --pythonpath --traceback --no-color --force-color --skip-checks".split()
)
"""Accepted as ever, but left out of ``--help``: they say nothing of the hub."""


class Output(OutputWrapper):
    r"""What a command prints to: control and bidirectional characters of a text are shown as ``\u001b``, not sent."""

    def write(  # type: ignore[override]
        self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None
    ) -> None:
        """Print ``msg``; what ``style_func`` adds to it is sent as it is."""
        super().write(printable(msg), style_func, ending)

    @property
    def unfiltered(self) -> Any:
        """The stream itself, for what draws with control characters and prints nothing that was stored."""
        return self._out


class Refusal(CommandError):
    """What ends a command with one sentence on standard error and an exit code."""


Refusal.__name__ = "memory-hub"  # Django writes an error's name before what it says


class HubCommand(BaseCommand):
    """A command whose errors end it with one sentence on standard error and the error's exit code.

    ``--traceback`` shows where the error came from. ``interrupted`` is what a command says when Ctrl-C ends it.
    """

    interrupted = "interrupted"
    requires_system_checks: list[str] = []
    suppressed_base_arguments = set(_DJANGOS_OPTIONS)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command; see the class."""
        self.stdout = _filtered(self.stdout, options.pop("stdout", None))
        self.stderr = _filtered(self.stderr, options.pop("stderr", None))
        try:
            return super().execute(*args, **options)
        except BrokenPipeError:
            _let_output_go()
            return None
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not cut the cleaning up short
            raise Refusal(self.interrupted, returncode=INTERRUPTED_EXIT_CODE) from None
        except HubError as error:
            choices = error.data.get("choices")
            more = f" (one of: {', '.join(choices)})" if choices else ""
            raise Refusal(hanging(error.message + more), returncode=error.exit_code) from error
        except DatabaseError as error:  # of hub.db or jobs.db: a store's are told by the store
            refused = _of_the_hub(error)
            raise Refusal(refused.message, returncode=refused.exit_code) from error
        except OSError as error:
            raise Refusal(_of_a_file(error), returncode=Unavailable.exit_code) from error


def _of_a_file(error: OSError) -> str:
    """Return one sentence for a file or folder that cannot be used: no room, read-only, no right, no such folder."""
    if error.strerror is None:  # the hub's own, whose message is the sentence
        return str(error)
    return f"{error.filename} cannot be used: {error.strerror}" if error.filename else error.strerror


def _filtered(wrapper: Any, stream: Any) -> Output:
    """Return what prints to ``stream``, or to where ``wrapper`` does, in the style of ``wrapper``."""
    output = Output(stream or wrapper._out)
    output.style_func = wrapper.style_func
    return output


def _of_the_hub(error: DatabaseError) -> HubError:
    if "locked" in str(error):
        return Locked("the hub's own database is locked by another process; try again")
    return Unavailable(f"the hub's own database is unavailable: {error}; `memory-hub doctor` says how to mend it")


def _let_output_go() -> None:
    """Point standard output at nothing, now that its reader has gone: the interpreter flushes it once more."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def entity_id(text: str) -> int:
    """Return the id that an argument names, as answers write it or without the mark: ``#412`` or ``412``.

    Raises:
        ArgumentTypeError: it is no id.
    """
    number = text.removeprefix("#")
    if not (number.isascii() and number.isdigit()):
        raise ArgumentTypeError(f"{text!r} is no id; write it as 412 or '#412'")
    return int(number)


def add_store_options(parser: CommandParser, purpose: str, otherwise: str = "") -> _MutuallyExclusiveGroup:
    """Add ``--project``, ``--org`` and ``--global``, of which one may be given; return their group.

    Args:
        parser: of the command.
        purpose: the help; ``{}`` stands for the store.
        otherwise: what is said of ``--project`` besides.
    """
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", metavar="ID", help=f"{purpose.format('this project')}{otherwise}")
    where.add_argument("--org", metavar="ID", help=purpose.format("this organisation's store"))
    where.add_argument("--global", action="store_true", dest="over_global", help=purpose.format("the global scope"))
    return where


def store_option(options: dict[str, Any]) -> StoreId | None:
    """Return the store that the options name, if any."""
    if options["project"]:
        return project_store(options["project"])
    if options["org"]:
        return org_store(options["org"])
    return GLOBAL_STORE if options["over_global"] else None


class ProjectCommand(HubCommand):
    """A command that works on one project's store."""

    creates_store = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--project``."""
        parser.add_argument("--project", metavar="ID", help="the project; default: the one of this folder")

    @contextmanager
    def store(self, options: dict[str, Any], directory: Path | None = None) -> Iterator[str]:
        """Open the project's store inside the block, and yield its id."""
        project = identify_project(project=options["project"], directory=directory or Path.cwd())
        drain_before_reading(project)
        origin = use_origin(source="cli", actor=getpass.getuser())
        folder = use_folder(read_folder(directory or Path.cwd(), project))
        with use_store(project_store(project), create=self.creates_store), folder, origin:
            self._warn()
            yield project

    def _warn(self) -> None:
        """Say on standard error where the log is not the one that was acknowledged."""
        warning = anchor_warning()
        if warning:
            self.stderr.write(f"warning: {warning}", style_func=str)


class StoreCommand(ProjectCommand):
    """A command that works on one store: a project's, or with ``--org`` and ``--global`` what projects share."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--project``, ``--org`` and ``--global``."""
        add_store_options(parser, "in {}", "; default: the one of this folder")

    @contextmanager
    def store(self, options: dict[str, Any], directory: Path | None = None) -> Iterator[str]:
        """Open the store inside the block, and yield its name."""
        chosen = store_option(options)
        if chosen is None or options["project"]:
            with super().store(options, directory) as project:
                yield project
            return
        with use_store(chosen), use_origin(source="cli", actor=getpass.getuser()):
            self._warn()
            yield chosen.name
