"""Creation and cards of stores, shared by projects and organisations, and their text for a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memories.models import Memory
from memoryhub.core import clock, log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import ConflictError, Forbidden, HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.permissions import HUB, reaches
from memoryhub.core.schemas import Listing, Paging
from memoryhub.core.slugs import project_id_of
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store import Scope, StoreId, current_store, use_store
from memoryhub.core.text import counted, flat, hanging, shortened
from sessions_app.events import PROJECT_DESCRIBED
from sessions_app.schemas import OrgDescribe, ProfileView, ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe, draft_description

MAX_SHOWN_DESCRIPTION = 300


ShortDescription = Annotated[str, Field(description="the first 300 characters")]
Problem = Annotated[str, Field(description="why the store could not be read; other fields are then empty")]
Redacted = Annotated[list[str], Field(description="types of the secrets that were removed from this request")]


class IfTaken(StrEnum):
    """What to do if the id exists."""

    ERROR = "error"
    UPDATE = "update"


class WithIdFromName(BaseModel):
    """A command whose ``id`` defaults to the slug of ``name``."""

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        ids = {"id", *(name for name, field in cls.model_fields.items() if field.alias == "id")}
        if not isinstance(data, dict) or ids & set(data) or not isinstance(data.get("name"), str):
            return data
        if slug := project_id_of(data["name"]):
            return {**data, "id": slug}
        return data


class StoreOverview(BaseModel):
    """Counts of a store."""

    events: int = 0
    memories: int = 0
    last_activity: datetime | None = None


C = TypeVar("C", bound=BaseModel)


def overview_fields() -> dict[str, Any]:
    position, _ = log.head()
    return {"events": position, "memories": Memory.objects.live().count(), "last_activity": occurred_at(position)}


def occurred_at(position: int) -> datetime | None:
    """Return the time of the event at ``position``, if it exists."""
    event = log.events().at([position]).first()
    return clock.from_text(event.occurred_at) if event else None


def name_fields(profile_view: ProfileView) -> dict[str, Any]:
    return {"name": profile_view.name, "description": shortened(profile_view.description, MAX_SHOWN_DESCRIPTION)}


def create_described(*, store: StoreId, command: OrgDescribe, if_exists: IfTaken, refusal: str) -> tuple[str, ...]:
    """Create a store unless it exists, describe it, and return the types of the removed secrets.

    Raises:
        ConflictError: it exists, and ``if_exists`` is ``error``.
        Forbidden: it exists, and ``refusal`` is the reason why the caller may not describe it.
    """
    schema = ProjectDescribe if store.scope is Scope.PROJECT else OrgDescribe
    description = schema(**command.model_dump(exclude_unset=True, include=set(schema.model_fields)))
    draft_description(command=description, scope=store.scope)  # fails before anything is created
    if stores.exists(store):
        _check_existing(store, command, if_exists, refusal)
    origin: AbstractContextManager[Any] = nullcontext()
    if store_here() not in (None, store):
        origin = use_origin(session_id="", turn_id="", ack_token="")  # session and turn are of the caller's own store
    with origin, use_store(store, create=True):
        if not description.model_fields_set:
            return ()
        return describe(command=description).redacted


def place_to_describe(store: StoreId) -> str:
    """Return the place whose owners may create or describe a store: itself, if the caller sees it, or else the hub."""
    if stores.exists(store) and reaches(store.place):
        return store.place
    return HUB


def _check_existing(store: StoreId, command: OrgDescribe, if_exists: IfTaken, refusal: str) -> None:
    # Allowed: a repeated call, an update, and a project's first description from inside it.
    is_here = store.scope is Scope.PROJECT and store_here() == store
    with use_store(store):
        if log.find_by_key(command.idempotency_key, PROJECT_DESCRIBED):
            return
        is_first = is_here and profile().updated_at is None
    if if_exists is IfTaken.ERROR and not is_first:
        what = "project" if store.scope is Scope.PROJECT else "organisation"
        raise ConflictError(
            f"{what} {store.name!r} exists already; send if_exists=update to describe it, or choose another id"
        )
    if refusal:
        raise Forbidden(refusal)


def read_card(store: StoreId, card: type[C], read: Callable[[], dict[str, Any]], **fields: Any) -> C:
    """Return the card of a store; if it cannot be read, ``problem`` has the reason."""
    try:
        with use_store(store):
            return card(**fields, **read())
    except HubError as error:
        return card(**fields, problem=error.message)


def page_of_cards(
    ids: Sequence[str], command: Paging, read: Callable[[str], BaseModel], *, id_field: str, line: Callable[[Any], str]
) -> Listing:
    """Return a page of cards by id; opens only the stores on the page."""
    after = decode_cursor(command.cursor, (str,))
    following = [store_id for store_id in ids if not after or store_id > after[0]]
    cards = [read(store_id).model_dump(mode="json", exclude_defaults=True) for store_id in following[: command.limit]]
    if command.compact:
        cards = [{id_field: card[id_field], "name": card.get("name", "")} for card in cards]
    return page(
        cards,
        total=len(ids),
        more=len(following) > command.limit,
        cursor_of=lambda item: encode_cursor(item[id_field]),
        line=line,
        max_tokens=command.max_tokens,
    )


def store_here() -> StoreId | None:
    """Return the caller's store, or None if the caller works on the hub."""
    return current_store() if current_alias() else None


def project_line(project: dict[str, Any]) -> str:
    org = f" of {project['org_id']}" if project.get("org_id") else ""
    return flat(f"{project['project_id']}{_name_suffix(project)}{org}{_description(project)}")


def org_line(org: dict[str, Any]) -> str:
    return flat(f"{org['org_id']}{_name_suffix(org)}{_description(org)}")


_PLURALS = {"memory": "memories", "session": "sessions", "commit": "commits", "event": "events"}


def project_text(project: dict[str, Any]) -> str:
    """Return a project's details as lines, or its card if it has no details."""
    if "events" not in project:
        return project_line(project)
    counts = _holds(project, *_PLURALS)
    lines = [
        flat(f"project {project['project_id']}{_name_suffix(project)}"),
        *_fact_lines({"organisation": project["org_id"], "folder": project["root_path"]}, project),
        f"{counts}; first {_day(project['created_at'])}, last {_day(project['last_activity'])}",
    ]
    return "\n".join(lines)


def org_text(org: dict[str, Any]) -> str:
    lines = [
        flat(f"organisation {org['org_id']}{_name_suffix(org)}"),
        *_fact_lines({"projects": ", ".join(org["projects"])}, org),
        f"{_holds(org, 'memory', 'event')}; last {_day(org['last_activity'])}",
    ]
    return "\n".join(lines)


def _holds(counts: dict[str, Any], *nouns: str) -> str:
    return ", ".join(counted(counts[_PLURALS[noun]], noun, _PLURALS[noun]) for noun in nouns)


def _fact_lines(place: dict[str, str | None], profile: dict[str, Any]) -> list[str]:
    facts = place | {
        "description": profile["description"],
        "tags": ", ".join(profile["tags"]),
        "metadata": profile["metadata"] and json.dumps(profile["metadata"], ensure_ascii=False),
        "redacted": ", ".join(profile["redacted"]),
    }
    return [f"{name}: {hanging(value)}" for name, value in facts.items() if value]


def _name_suffix(card: dict[str, Any]) -> str:
    return f" ({card['name']})" if card.get("name") else ""


def _description(card: dict[str, Any]) -> str:
    text = card.get("problem") or " ".join(card.get("description", "").split())
    return f": {text}" if text else ""


def _day(moment: str | None) -> str:
    return clock.day(moment) if moment else "never"
