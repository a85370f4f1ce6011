from __future__ import annotations

from typing import Any

from memoryhub.core import clock
from memoryhub.core.text import counted
from memoryhub.management.base import CommandGroup, HubCommand
from memoryhub.management.terminal import Style, highlight
from memoryhub.ops.serving.state import HubState, hub_state


class Command(HubCommand):
    help = "Show whether the hub runs, which clients are connected, and what waits to be done."
    group = CommandGroup.RUN
    is_slim = True
    reads = True
    is_asked_of_hub = True

    def handle(self, *args: Any, **options: Any) -> None:
        state = hub_state()
        self.answer(state, (highlight(line, (_label(line), Style.BOLD)) for line in _state_lines(state)))


def _label(line: str) -> str:
    label, colon, _ = line.partition(":")
    return "" if line.startswith(" ") else f"{label}{colon}"


def _state_lines(state: HubState) -> list[str]:
    clients = []
    for client in state.clients:
        name = f"process {client.pid}, no call yet"
        if client.name:
            name = f"{client.name}, project {client.project}"
        clients.append(f"  {name}, since {clock.minute(client.since)}")
    captures = [f"  {name}: {clock.minute(at)}" for name, at in sorted(state.last_captures.items())]
    teams = []
    for team in state.teams:
        line = f"Team:       {team.project} at {team.url}: {counted(team.waiting, 'hook event')} waiting"
        if team.refused:
            line += f", {team.refused} were refused"
        if team.problem:
            line += f"; since {team.since}: {team.problem}"
        teams.append(line)
    upgrade = []
    if state.running and state.running.upgrade:
        upgrade.append(f"Upgrade:    {state.running.upgrade}")
    return [
        f"Version:    {state.version}",
        f"Hub:        {state.hub}",
        *upgrade,
        f"Admin:      {'`memory-hub signin` prints a link' if state.running else 'needs the hub'}",
        f"Home:       {state.home}",
        f"Database:   {state.database}",
        f"Clients:    {len(clients)} connected over MCP",
        *clients,
        f"Captured:   {'by each client last at' if captures else 'nothing yet'}",
        *captures,
        f"Spool:      {state.spooled} hook events waiting",
        *teams,
        f"Embeddings: {state.embeddings_pending} events waiting",
    ]
