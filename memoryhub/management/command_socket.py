"""Run short commands in the hub's process for command lines that ask it.

The socket is in the home folder, so only its owner can connect, who could run the command as well. One thread answers,
one command after the other. What it refuses, the asking process does itself.
"""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, UnixStreamServer
from typing import TYPE_CHECKING, Any, cast

from django.core.management import CommandError, load_command_class
from django.db import close_old_connections

import memoryhub
from memoryhub import env
from memoryhub.config.repository import work_in
from memoryhub.management.ask_hub import SOCKET
from memoryhub.management.base import InputNeeded, asked_by
from memoryhub.management.overview import write_lines
from memoryhub.management.parsers import is_answered_by_hub, read_commands
from memoryhub.management.terminal import Span, Style

if TYPE_CHECKING:
    from memoryhub.management.base import HubCommand

logger = logging.getLogger(__name__)

_MAX_REQUEST = 256 * 1024
_READ_SECONDS = 5.0
# Until the end of the hub is seen
_POLL_SECONDS = 0.1


@contextmanager
def answer_commands() -> Iterator[None]:
    """Answer command lines of this home inside; without a socket, as for a very long path, they help themselves."""
    path = env.home() / SOCKET
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)  # of a hub that was killed: this one has the home's lock
        server = _Server(str(path), _CommandHandler)
    except OSError as error:
        logger.warning("commands are not answered by the hub: %s", error)
        yield
        return
    path.chmod(0o600)
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name="commands", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        with suppress(OSError):
            path.unlink()


class _Server(UnixStreamServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.exception("a command could not be answered")


class _CommandHandler(StreamRequestHandler):
    timeout = _READ_SECONDS

    def handle(self) -> None:
        content = self.rfile.read(_MAX_REQUEST)
        try:
            answer = run_request(json.loads(content))
        except (ValueError, LookupError, TypeError, AttributeError):  # no request
            answer = None
        if answer is not None:
            with suppress(OSError):  # the asker is gone
                self.wfile.write(json.dumps(answer).encode())


class _Stream(io.StringIO):
    # What ``has_colour`` says of the asker's stream
    is_coloured = False

    def isatty(self) -> bool:
        return self.is_coloured


def run_request(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a command prints, and its exit code; None if the asker must run it."""
    arguments: list[str] = request["arguments"]
    described = read_commands()["commands"].get(arguments[0])
    if request["version"] != memoryhub.__version__ or not is_answered_by_hub(described, arguments):
        return None
    command = cast("HubCommand", load_command_class("memoryhub", arguments[0]))
    output, errors = _Stream(), _Stream()
    output.is_coloured, errors.is_coloured = request["colour"]
    close_old_connections()
    try:
        with work_in(Path(request["directory"])), asked_by(is_typed=bool(request["is_typed"])):
            code = _run(command, arguments, output, errors)
    except (CommandError, InputNeeded):  # the asker's parser says what is wrong with the options
        return None
    finally:
        close_old_connections()
    return {"code": code, "output": output.getvalue(), "errors": errors.getvalue()}


def _run(command: HubCommand, arguments: list[str], output: _Stream, errors: _Stream) -> int:
    options = vars(command.create_parser("memory-hub", arguments[0]).parse_args(arguments[1:]))
    positional = options.pop("args", ())
    try:
        command.execute(*positional, stdout=output, stderr=errors, **options)
    except CommandError as error:
        write_lines(errors, [[Span(f"memory-hub: {error}", Style.RED)]])
        return error.returncode
    except SystemExit as end:
        return int(end.code or 0)
    return 0
