"""What the hub of this home does at the moment, for ``memory-hub status``."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Max

from memories.embeddings.following import events_to_embed
from memories.review.selectors import count_waiting
from memoryhub import __version__, env
from memoryhub.core import clock, log, spool
from memoryhub.core.autostart import is_allowed
from memoryhub.core.backends.selected import machines
from memoryhub.core.clients import ConnectedClient, connected_clients
from memoryhub.core.errors import HubError
from memoryhub.core.origin import SAMPLE_TRACE
from memoryhub.core.stores.store import list_projects, project_store, use_store
from memoryhub.ops.serving.process import Running, find_running
from memoryhub.teams.sending import TeamState, team_states


@dataclass(frozen=True, slots=True)
class HubState:
    # The version of this process
    version: str
    home: str
    # Where the stores are, for people
    database: str
    running: Running | None
    autostart: bool
    clients: list[ConnectedClient]
    # When each client's hooks were last captured, in ISO 8601.
    last_captures: dict[str, str]
    spooled: int
    # What waits for projects of a team's hub.
    teams: list[TeamState]
    # Events whose texts the embedding model has not read yet.
    embeddings_pending: int
    # How many memories of each project a person has to review
    to_review: dict[str, int]

    @property
    def hub(self) -> str:
        """Whether the hub runs, and how it is started otherwise, in words."""
        hub = self.running
        if hub:
            since = clock.minute(hub.since) if hub.since else "some time"
            urls = " and ".join(f"{url}/" for url in (hub.address, hub.public_url) if url)
            return f"running since {since}, started {hub.started}, at {urls} (process {hub.pid})"
        if self.autostart:
            return "not running; the next client starts it"
        return "not running; start it with `memory-hub serve`"


def hub_state() -> HubState:
    """Return the state of the hub. Stores that can't be read are left out: ``doctor`` names them."""
    captures: dict[str, str] = {}
    to_review: dict[str, int] = {}
    pending = 0
    for project in list_projects():
        try:
            with use_store(project_store(project)):
                pending += events_to_embed()
                if count := count_waiting():
                    to_review[project] = count
                hooks = log.events().filter(source="hook").exclude(trace_id=SAMPLE_TRACE).order_by()
                for client, at in hooks.values_list("actor").annotate(at=Max("occurred_at")):
                    captures[client] = max(at, captures.get(client, ""))
        except HubError:
            continue
    return HubState(
        version=__version__,
        home=str(env.home()),
        database=machines.server_address(),
        running=find_running(),
        autostart=is_allowed(),
        clients=connected_clients(),
        last_captures=captures,
        spooled=spool.count_waiting(),
        teams=team_states(),
        embeddings_pending=pending,
        to_review=to_review,
    )
