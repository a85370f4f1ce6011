from __future__ import annotations

from typing import Any

from memoryhub.management.base import Group, HubCommand
from memoryhub.ops.serving.state import HubState, hub_state


class Command(HubCommand):
    help = "Show whether the hub runs, which clients are connected, and what waits to be done."
    group = Group.RUN
    is_slim = True
    reads = True

    def handle(self, *args: Any, **options: Any) -> None:
        state = hub_state()
        self.answer(state, _lines(state))


def _lines(state: HubState) -> list[str]:
    hub = state.running
    if hub:
        running = f"running since {hub.since}, started {hub.started}, at {hub.address}/ (process {hub.pid})"
    else:
        running = (
            f"not running; {'the next client starts it' if state.autostart else 'start it with `memory-hub serve`'}"
        )
    clients = [
        f"  {client.name or 'unknown'}, project {client.project}, since {client.since}" for client in state.clients
    ]
    captures = [f"  {name}: {at}" for name, at in sorted(state.last_captures.items())]
    return [
        f"Hub:        {running}",
        f"Admin:      {'`memory-hub signin` prints a link' if hub else 'needs the hub'}",
        f"Home:       {state.home}",
        f"Clients:    {len(clients)} connected over MCP",
        *clients,
        f"Captured:   {'by each client last at' if captures else 'nothing yet'}",
        *captures,
        f"Spool:      {state.spooled} hook events wait",
        f"Embeddings: {state.embeddings_pending} events wait",
    ]
