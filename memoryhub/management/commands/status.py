from __future__ import annotations

from typing import Any

from memoryhub.core import clock
from memoryhub.core.clients import ConnectedClient
from memoryhub.core.text import counted
from memoryhub.management.base import CommandGroup, HubCommand
from memoryhub.ops.serving.state import HubState, hub_state
from memoryhub.teams.sending import TeamState


class Command(HubCommand):
    help = "Show whether the hub runs, which clients are connected, and what waits to be done."
    group = CommandGroup.RUN
    is_slim = True
    reads = True

    def handle(self, *args: Any, **options: Any) -> None:
        state = hub_state()
        self.answer(state, _state_lines(state))


def _state_lines(state: HubState) -> list[str]:
    clients = [f"  {_client(client)}, since {clock.minute(client.since)}" for client in state.clients]
    captures = [f"  {name}: {clock.minute(at)}" for name, at in sorted(state.last_captures.items())]
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
        *(f"Team:       {_team(team)}" for team in state.teams),
        f"Embeddings: {state.embeddings_pending} events waiting",
    ]


def _team(team: TeamState) -> str:
    line = f"{team.project} at {team.url}: {counted(team.waiting, 'hook event')} waiting"
    if team.refused:
        line += f", {team.refused} were refused"
    if team.problem:
        line += f"; since {team.since}: {team.problem}"
    return line


def _client(client: ConnectedClient) -> str:
    if client.name:
        return f"{client.name}, project {client.project}"
    return f"process {client.pid}, no call yet"
