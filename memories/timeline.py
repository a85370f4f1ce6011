from __future__ import annotations

from typing import Any

from memories.models import SearchDocument
from memories.present import clause
from memories.schemas import Stats, Timeline
from memories.search.weights import mode_name
from memories.selectors import count_by_type
from memoryhub.core import clock, log
from memoryhub.core.backends.selected import stores
from memoryhub.core.contributions import statistics
from memoryhub.core.errors import NotFound
from memoryhub.core.events.projection import read_models
from memoryhub.core.log.quarantine import quarantine_notes
from memoryhub.core.log.read import entity_of, timeline_entry
from memoryhub.core.log.views import position_at, viewed_store
from memoryhub.core.search import retrieval
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import flat
from sessions_app.selectors import find_iteration

# Newest events of an iteration that are shown by default
OF_ITERATION = 100


def timeline(*, command: Timeline) -> list[dict[str, Any]]:
    """Return the events around an id, a time or the end of the log, or those of an iteration; oldest first.

    Raises:
        NotFound: there is no such event or iteration.
    """
    if command.iteration_id:
        iteration = find_iteration(command.iteration_id)
        of_iteration = log.events().window(after=iteration.id - 1, up_to=iteration.end_position)
        events = [*reversed(of_iteration.reverse()[: command.limit or OF_ITERATION])]
    else:
        events = _around(command)
    documents = SearchDocument.objects.filter(id__in=[entity_of(event) for event in events])
    titles = dict(documents.values_list("id", "title"))
    aside = quarantine_notes(events)
    return [timeline_entry(event, aside.get(event.position) or titles.get(entity_of(event))) for event in events]


def _around(command: Timeline) -> list[log.StoredEvent]:
    centre, _ = log.head()
    if command.id is not None:
        if command.id > centre:
            raise NotFound(f"there is no #{command.id} here; the log ends at #{centre}", id=command.id)
        centre = command.id
    elif command.at is not None:
        centre = position_at(command.at)
    before = command.before
    after = command.after
    if command.limit is not None:
        is_centred = command.id is not None or command.at is not None
        after = (command.limit - 1) // 2 if is_centred else 0
        before = command.limit - 1 - after
    earlier = log.events().window(up_to=centre).reverse()[: before + 1]
    later = log.events().window(after=centre)[:after]
    return [*reversed(earlier), *later]


def timeline_line(event: dict[str, Any]) -> str:
    session = clause(" session=", event["session_id"])
    head = f"#{event['position']} {clock.minute(event['occurred_at'])} {event['type']}"
    return flat(f"{head} #{event['id']} {event['title']}{session}").rstrip()


def stats(*, command: Stats) -> dict[str, Any]:
    with retrieval("stats", command):
        position, digest = log.head()
        return {
            "store": viewed_store().name,
            "events": position,
            "head_digest": digest,
            "memories": count_by_type(),
            **statistics(),
            "rows": {model._meta.model_name: model._default_manager.count() for model in read_models()},
            "mode": mode_name(),
            "bytes": stores.sizes(current_store()),
            "sqlite": stores.engine(),
        }
