"""Run the hub as a service of the user, from sign-in on: systemd on Linux, launchd on macOS."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from memoryhub.client.setup.document import replace_file
from memoryhub.client.setup.entries import command_words, variables
from memoryhub.core.errors import ConflictError, Invalid, Unavailable
from memoryhub.core.home_database import only_of_this_process
from memoryhub.env import CONFIG_FILE, DATABASE_SETTING, DATABASE_VARIABLE
from memoryhub.ops.serving.process import BY_HAND, find_running

NAME = "memory-hub"
_LABEL = f"org.{NAME}.hub"
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """A service of this user, as the system's service manager has it."""

    # The service manager, such as systemd.
    manager: str
    path: Path
    content: str
    # Commands that start it now and at each sign-in, and that stop it for good.
    start: list[list[str]]
    stop: list[list[str]]
    # A command that exits with 0 while it runs.
    ask: list[str]

    @property
    def is_installed(self) -> bool:
        return self.path.exists()

    def is_running(self) -> bool:
        return _run_command(self.ask).returncode == 0


def service(*, port: int | None = None) -> Service:
    """Return the service of this installation and home folder, installed or not.

    Raises:
        Unavailable: this system has neither systemd nor launchd.
    """
    words = [*command_words(), "serve", "--service"]
    if port is not None:
        words += ["--port", str(port)]
    if sys.platform == "darwin":
        return _launchd(words)
    if shutil.which("systemctl"):
        return _systemd(words)
    raise Unavailable(
        "this system has neither systemd nor launchd; clients start the hub on demand, or run `memory-hub serve` from "
        "your own service manager"
    )


def install(service: Service) -> None:
    """Write the service's file and start the service. If it can't be started, all is as before."""
    if only_of_this_process():
        raise Invalid(
            f"the service starts without {DATABASE_VARIABLE}: set {DATABASE_SETTING} in the home's {CONFIG_FILE} first"
        )
    running = find_running()
    if running and running.started == BY_HAND:
        raise ConflictError(f"a hub that was started by hand runs (process {running.pid}): `memory-hub stop` ends it")
    before = service.path.read_text("utf-8") if service.is_installed else None
    if before not in (None, service.content):
        _run_all(service.stop)
    service.path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(service.path, service.content, 0o600)
    if problem := _run_all(service.start):
        _run_all(service.stop)
        if before is None:
            service.path.unlink()
        else:
            replace_file(service.path, before, 0o600)
            _run_all(service.start)
        raise Unavailable(f"{service.manager} can't start the hub: {problem}; clients still start it on demand")


def restart(service: Service) -> None:
    """Stop and start the installed service, as after an upgrade."""
    if not service.is_installed:
        raise Invalid("the hub is not installed as a service; `memory-hub service install` does it")
    _run_all(service.stop)
    if problem := _run_all(service.start):
        raise Unavailable(f"{service.manager} can't start the hub: {problem}; clients still start it on demand")


def remove(service: Service) -> bool:
    """Stop the service and remove its file; return whether there was one."""
    if not service.is_installed:
        return False
    _run_all(service.stop)
    service.path.unlink()
    if service.manager == "systemd":
        _run_command(["systemctl", "--user", "daemon-reload"])
    return True


def _systemd(words: list[str]) -> Service:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    unit = f"{NAME}.service"
    lines = [
        "[Unit]",
        "Description=Memory Hub, the memory of coding agents",
        "",
        "[Service]",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in variables().items()),
        f"ExecStart={' '.join(_quoted(word).replace('$', '$$') for word in words)}",
        "Restart=on-failure",
        "RestartSec=30",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    ask = ["systemctl", "--user"]
    return Service(
        manager="systemd",
        path=config / "systemd" / "user" / unit,
        content="\n".join(lines),
        start=[[*ask, "daemon-reload"], [*ask, "enable", "--now", unit]],
        stop=[[*ask, "disable", "--now", unit]],
        ask=[*ask, "is-active", "--quiet", unit],
    )


def _quoted(word: str) -> str:
    """Quote a word for a unit file: systemd.syntax(7). In a command, ``$`` must be doubled too: systemd.service(5)."""
    for special, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("\n", "\\n")):
        word = word.replace(special, escaped)
    return f'"{word}"'


def _launchd(words: list[str]) -> Service:
    path = Path.home() / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
    content = {
        "Label": _LABEL,
        "ProgramArguments": words,
        "EnvironmentVariables": variables(),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 30,
    }
    domain = f"gui/{os.getuid()}"
    return Service(
        manager="launchd",
        path=path,
        content=plistlib.dumps(content).decode(),
        start=[["launchctl", "bootstrap", domain, str(path)]],
        stop=[["launchctl", "bootout", f"{domain}/{_LABEL}"]],
        ask=["launchctl", "print", f"{domain}/{_LABEL}"],
    )


def _run_all(commands: list[list[str]]) -> str:
    """Run commands until one fails; return what it printed, or nothing."""
    for command in commands:
        process = _run_command(command)
        if process.returncode:
            printed = (process.stderr or process.stdout).strip().splitlines()
            return printed[0].rstrip(".") if printed else f"{' '.join(command)} exits with {process.returncode}"
    return ""


def _run_command(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]}: {error}")
