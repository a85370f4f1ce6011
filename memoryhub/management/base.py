"""Base classes of the hub's commands: stores, output, progress, errors and exit codes."""

from __future__ import annotations

import getpass
import json
import re
import signal
import sys
from argparse import ArgumentTypeError, _MutuallyExclusiveGroup, _SubParsersAction
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import DatabaseError
from pydantic_core import to_jsonable_python

from memoryhub.config.current_settings import read_folder, use_folder
from memoryhub.config.identity import identify_project
from memoryhub.config.repository import working_folder
from memoryhub.core.backends.selected import faults, stores
from memoryhub.core.errors import INTERRUPTED_EXIT_CODE, HubError, Invalid, Locked, Unavailable
from memoryhub.core.log import anchor_warning
from memoryhub.core.origin import Origin, use_origin
from memoryhub.core.paging import answering
from memoryhub.core.stores.store import GLOBAL_STORE, StoreId, list_projects, org_store, project_store, use_store
from memoryhub.core.text import hanging, printable
from memoryhub.management.parsers import DJANGOS_OPTIONS, describe
from memoryhub.management.terminal import Line, Span, Style, discard_output, has_colour, rendered
from memoryhub.ops.serving.drain import drain_before_reading
from memoryhub.ops.serving.process import find_running
from memoryhub.registry.projects import require_project_of

if TYPE_CHECKING:  # the jobs need the queue, which commands over stores do without
    from memoryhub.core.jobs import Job
    from memoryhub.ops.jobs.running import JobTarget, Watch

# The end of the first sentence or clause of a help text
_END = re.compile(r"[.;:](?: |$)| \(")
# Values of arguments by name; files of the home folder
_VALUES = {"project": ["projects/*"], "projects": ["projects/*"], "org": ["orgs/*"]}


class CommandGroup(StrEnum):
    RUN = "Run and connect"
    CONTENT = "Projects and content"
    MAINTENANCE = "Maintenance"


# Control and bidirectional characters in stored text must not reach the terminal; they print as ``\u001b``
class CommandOutput(OutputWrapper):
    def write(  # type: ignore[override]
        self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None
    ) -> None:
        super().write(printable(msg), style_func, ending)

    # Whether lines may be coloured
    has_colour = False

    def write_line(self, line: Line) -> None:
        super().write(rendered(line, colour=self.has_colour), style_func=str)

    # For tables and progress bars, which print no stored text
    @property
    def unfiltered(self) -> Any:
        return self._out

    # For JSON and files, which are UTF-8 whatever the terminal's encoding is
    @property
    def utf8(self) -> CommandOutput:
        if isinstance(self._out, TextIOWrapper):
            self._out.reconfigure(encoding="utf-8", errors="replace")
        return self


class CommandRefusal(CommandError):
    pass


CommandRefusal.__name__ = "memory-hub"  # Django prints the class's name before the message


# Errors end a command with one sentence on standard error and the error's exit code; --traceback shows their origin.
# ``interrupted`` is the sentence after Ctrl-C.
class HubCommand(BaseCommand):
    interrupted = "interrupted"
    requires_system_checks: list[str] = []
    suppressed_base_arguments = set(DJANGOS_OPTIONS)
    group: ClassVar[CommandGroup] = CommandGroup.MAINTENANCE
    # Starts without the web's apps, because it needs only stores
    is_slim: ClassVar[bool] = False
    # Whether the command reads, or which of its sub-commands do: they take ``--json`` and call ``answer``
    reads: ClassVar[bool | tuple[str, ...]] = False
    # Whether a running hub runs the command for others, or which of its sub-commands
    is_asked_of_hub: ClassVar[bool | tuple[str, ...]] = False
    as_json = False
    stdout: CommandOutput
    stderr: CommandOutput

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        subcommands = {}
        for action in parser._actions:
            if isinstance(action, _SubParsersAction):
                subcommands.update(action.choices)
        reading = [parser] * self.reads if isinstance(self.reads, bool) else map(subcommands.__getitem__, self.reads)
        for command in reading:
            command.add_argument("--json", action="store_true", help="print JSON")
        for command in (parser, *subcommands.values()):
            command.print_usage = lambda _file=None: None  # an error is one sentence
        return parser

    def values(self) -> dict[str, Iterable[str]]:
        """Return the known values of arguments by name, for completion."""
        return {}

    def described(self, name: str) -> dict[str, Any]:
        """Return the command as ``parsers.json`` keeps it."""
        facts = {
            "group": self.group,
            "summary": _END.split(self.help)[0],
            "slim": self.is_slim,
            "hub": self.is_asked_of_hub,
        }
        return {**facts, **describe(self.create_parser("memory-hub", name), {**_VALUES, **self.values()})}

    def answer(self, data: Any, lines: Iterable[Line]) -> None:
        """Print data with ``--json``, in the shape of REST where it has the same answer; otherwise the lines."""
        if self.as_json:
            self.stdout.utf8.write(json.dumps(to_jsonable_python(data), ensure_ascii=False, indent=1))
        else:
            for line in lines:
                self.stdout.write_line(line)

    def confirm(self, question: str) -> bool:
        """Ask a person at the terminal; return whether the answer is yes."""
        self.stdout.write(f"{question} [y/N] ", ending="")
        self.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def execute(self, *args: Any, **options: Any) -> str | None:
        self.as_json = options.get("json", False)
        may_colour = not options.get("no_color")
        self.stdout = _filtered(self.stdout, options.pop("stdout", None), may_colour=may_colour)
        self.stderr = _filtered(self.stderr, options.pop("stderr", None), may_colour=may_colour)
        try:
            with answering(as_json=self.as_json):
                return super().execute(*args, **options)
        except BrokenPipeError:
            discard_output()
            return None
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the clean-up
            raise CommandRefusal(self.interrupted, returncode=INTERRUPTED_EXIT_CODE) from None
        except HubError as error:
            sentence = error.message
            if choices := error.data.get("choices"):
                sentence += f" (one of: {', '.join(choices)})"
            raise CommandRefusal(hanging(sentence), returncode=error.exit_code) from error
        except DatabaseError as error:  # of the hub or its queue; stores raise HubError
            refused = _hub_error(error)
            raise CommandRefusal(refused.message, returncode=refused.exit_code) from error
        except OSError as error:
            raise CommandRefusal(_file_error(error), returncode=Unavailable.exit_code) from error


def use_cli_origin() -> AbstractContextManager[Origin]:
    """Write events inside in the name of the user who runs the command."""
    return use_origin(source="cli", actor=getpass.getuser())


# Whether the asker of a command that the hub runs is a person at a terminal; None in a process of the command's own
_asker_types: ContextVar[bool | None] = ContextVar("asker_types", default=None)


class InputNeeded(Exception):
    """The command reads standard input, which only the asker's process has."""


@contextmanager
def asked_by(*, is_typed: bool) -> Iterator[None]:
    """Run a command inside for another process."""
    token = _asker_types.set(is_typed)
    try:
        yield
    finally:
        _asker_types.reset(token)


def is_typed() -> bool:
    """Return whether a person runs the command at a terminal, rather than a script or a client's shell."""
    asker_types = _asker_types.get()
    return sys.stdin.isatty() if asker_types is None else asker_types


def read_input(limit: int = -1) -> str:
    """Return standard input, at most ``limit`` characters.

    Raises:
        Invalid: it is not in the terminal's encoding.
        InputNeeded: the hub runs the command.
    """
    if _asker_types.get() is not None:
        raise InputNeeded
    try:
        return sys.stdin.read(limit)
    except UnicodeDecodeError as error:
        fix = "set PYTHONIOENCODING to its encoding, such as utf-8"
        raise Invalid(f"standard input is not {error.encoding} text; {fix}") from error


def _file_error(error: OSError) -> str:
    if error.strerror is None:  # the hub's own errors are sentences already
        return str(error)
    if isinstance(error, FileNotFoundError) and not error.filename:
        return f"the folder {working_folder()} no longer exists; change to another one"
    return f"can't use {error.filename}: {error.strerror}" if error.filename else error.strerror


def _filtered(wrapper: Any, stream: Any, *, may_colour: bool) -> CommandOutput:
    output = CommandOutput(stream or wrapper._out)
    output.has_colour = may_colour and has_colour(output.unfiltered)
    output.style_func = wrapper.style_func if output.has_colour else str
    return output


_HUB = f"{stores.HUB_NAME} or {stores.QUEUE_NAME}"


def _hub_error(error: DatabaseError) -> HubError:
    if faults.is_locked(error):
        return Locked(f"{_HUB} is locked by another process; try again")
    return Unavailable(f"{_HUB} is unavailable: {error}; run `memory-hub doctor`")


_STEPS = 10


@contextmanager
def progress_bar(unit: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error if that is a terminal; yield the function that takes the current count."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda count: bar.update(task, completed=count)


@contextmanager
def show_job(job: Job, stores: int, errors: Any) -> Iterator[Watch]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_writer(job, stores, errors)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=console, transient=True) as bar:

        def update(target: JobTarget, count: int, total: int) -> None:
            if target.alias not in tasks:
                tasks[target.alias] = bar.add_task(f"{job.name}, {target.title}", total=None)
            bar.update(tasks[target.alias], completed=count, total=total or None)

        yield update


def _line_writer(job: Job, stores: int, errors: Any) -> Watch:
    steps: dict[str, int] = {}

    def write(target: JobTarget, count: int, total: int) -> None:
        step = count * _STEPS // total if total else 0
        if steps.get(target.alias) != step:
            steps[target.alias] = step
            far = f": {count} of {total}" if total else ""
            number = f" ({len(steps)} of {stores})" if stores > 1 else ""
            errors.write(f"{job.name}, {target.title}{number}{far}")

    return write


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a whole number") from None


def entity_id(text: str) -> int:
    number = text.removeprefix("#")
    if not (number.isascii() and number.isdigit() and len(number) <= 15):
        raise ArgumentTypeError(f"{text!r} is not an id; write 412 or '#412'")
    return int(number)


def add_store_options(parser: CommandParser, purpose: str, otherwise: str = "") -> _MutuallyExclusiveGroup:
    """Add ``--project``, ``--org`` and ``--global``, which exclude each other; return their group.

    Args:
        parser: of the command.
        purpose: the help; ``{}`` is replaced by the store.
        otherwise: appended to the help of ``--project``.
    """
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", metavar="ID", help=f"{purpose.format('this project')}{otherwise}")
    where.add_argument("--org", metavar="ID", help=purpose.format("this organisation's store"))
    where.add_argument("--global", action="store_true", dest="over_global", help=purpose.format("the global scope"))
    return where


def store_or_folders(options: dict[str, Any]) -> StoreId:
    """Return the store that the options name, or that of the folder's project."""
    if store := store_option(options):
        return store
    project = identify_project(project=None, directory=working_folder())
    require_project_of(working_folder(), project)
    return project_store(project)


def store_option(options: dict[str, Any]) -> StoreId | None:
    # An empty name, as of a variable that is not set, is a wrong name and does not mean all stores
    if options["project"] is not None:
        return project_store(options["project"])
    if options["org"] is not None:
        return org_store(options["org"])
    return GLOBAL_STORE if options["over_global"] else None


class ProjectCommand(HubCommand):
    group = CommandGroup.CONTENT
    is_slim = True
    creates_store = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", metavar="ID", help="the project; default: that of this folder")

    @contextmanager
    def store(self, options: dict[str, Any], directory: Path | None = None) -> Iterator[str]:
        project = identify_project(project=options["project"], directory=directory or working_folder())
        drain_before_reading(project)
        if options["project"] is None and not self.creates_store:
            require_project_of(directory or working_folder(), project)
        folder = use_folder(read_folder(directory or working_folder(), project))
        with use_store(project_store(project), create=self.creates_store), folder, use_cli_origin():
            self._warn()
            yield project

    @contextmanager
    def store_or_none(self, options: dict[str, Any]) -> Iterator[None]:
        """Open the store if the folder has a project; otherwise only the hub's and the folder's settings apply."""
        try:
            project = identify_project(project=options["project"], directory=working_folder())
        except Invalid:
            project = ""
        if options["project"] is None and project not in list_projects():
            with use_folder(read_folder(working_folder(), project)):
                yield
            return
        with self.store(options):
            yield

    def _warn(self) -> None:
        running = find_running()
        for warning in filter(None, (anchor_warning(), running and running.upgrade)):
            self.stderr.write_line([Span(f"warning: {warning}", Style.YELLOW)])


class StoreCommand(ProjectCommand):
    group = CommandGroup.MAINTENANCE

    def add_arguments(self, parser: CommandParser) -> None:
        add_store_options(parser, "in {}", "; default: the project of this folder")

    @contextmanager
    def store(self, options: dict[str, Any], directory: Path | None = None) -> Iterator[str]:
        chosen = store_option(options)
        if chosen is None or options["project"]:
            with super().store(options, directory) as project:
                yield project
            return
        with use_store(chosen), use_cli_origin():
            self._warn()
            yield chosen.name
