from __future__ import annotations

from typing import Any

from pydantic_core import to_jsonable_python

from memoryhub.client.setup.plan import WITH_HOOKS, statuses_in
from memoryhub.config.repository import working_folder
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
        set_up = statuses_in(working_folder())
        data = {**to_jsonable_python(state), "set_up": set_up}
        self.answer(data, (highlight(line, (_label(line), Style.BOLD)) for line in _state_lines(state, set_up)))


def _label(line: str) -> str:
    label, colon, _ = line.partition(":")
    return "" if line.startswith(" ") else f"{label}{colon}"


def _state_lines(state: HubState, set_up: dict[str, str]) -> list[str]:
    clients = []
    for client in state.clients:
        name = f"process {client.pid}, no call yet"
        if client.name:
            name = f"{client.name}, project {client.project}"
        clients.append(f"  {name}, since {clock.minute(client.since)}")
    captures = [f"  {name}: {clock.minute(at)}" for name, at in sorted(state.last_captures.items())]
    captured = "nothing yet"
    if captures:
        captured = "by each client last at"
    elif any(WITH_HOOKS in status for status in set_up.values()):
        captured = "nothing yet; the next session of a client with hooks will be"
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
        *_set_up_lines(set_up),
        f"Clients:    {len(clients)} connected over MCP",
        *clients,
        f"Captured:   {captured}",
        *captures,
        *_inbox_lines(state.to_review),
        f"Spool:      {state.spooled} hook events waiting",
        *teams,
        f"Embeddings: {state.embeddings_pending} events waiting",
    ]


def _set_up_lines(set_up: dict[str, str]) -> list[str]:
    if not set_up:
        return ["Set up:     no client here; `memory-hub setup CLIENT` connects one"]
    return ["Set up:     in this folder", *(f"  {client}: {status}" for client, status in set_up.items())]


def _inbox_lines(to_review: dict[str, int]) -> list[str]:
    if not to_review:
        return ["Inbox:      nothing to review"]
    lines = [f"  {project}: {count}" for project, count in sorted(to_review.items())]
    return [f"Inbox:      {counted(sum(to_review.values()), 'memory', 'memories')} to review", *lines]
