"""What the lists of projects and of organisations share: a card each, read from its store, in pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

from memories.models import Memory
from memoryhub.core import clock, log
from memoryhub.core.errors import HubError
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing, Paging
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store import StoreId, current_store, use_store

MAX_SHOWN_DESCRIPTION = 300


ShortDescription = Annotated[str, Field(description="its first 300 characters")]
Problem = Annotated[str, Field(description="why the store could not be read; nothing else is known then")]
Redacted = Annotated[list[str], Field(description="types of the secrets that were taken out just now")]


class StoreOverview(BaseModel):
    """How much a store holds."""

    events: int = 0
    memories: int = 0
    last_activity: datetime | None = None


C = TypeVar("C", bound=BaseModel)


def overview_fields() -> dict[str, Any]:
    position, _ = log.head()
    return {
        "events": position,
        "memories": Memory.objects.live().count(),
        "last_activity": occurred_at(position),
    }


def occurred_at(position: int) -> datetime | None:
    """Return when the event at a position of the current store happened; None where there is none."""
    found = RawEvent.objects.filter(position=position).values_list("occurred_at", flat=True).first()
    return clock.from_text(found) if found else None


def shortened(description: str) -> str:
    return description if len(description) <= MAX_SHOWN_DESCRIPTION else f"{description[: MAX_SHOWN_DESCRIPTION - 1]}…"


def read_card(store: StoreId, card: type[C], read: Callable[[], dict[str, Any]], **known: Any) -> C:
    """Return the card of a store; one that cannot be read says why in ``problem``, and does not hide the others."""
    try:
        with use_store(store):
            return card(**known, **read())
    except HubError as error:
        return card(**known, problem=error.message)


def page_of_cards(
    ids: Sequence[str], command: Paging, read: Callable[[str], BaseModel], *, id_field: str, line: Callable[[Any], str]
) -> Listing:
    """Return a page of cards in order of their ids; only the stores of the page are opened."""
    after = decode_cursor(command.cursor, (str,))
    left = [each for each in ids if not after or each > after[0]]
    found = [read(each).model_dump(mode="json", exclude_defaults=True) for each in left[: command.limit]]
    if command.compact:
        found = [{id_field: each[id_field], "name": each.get("name", "")} for each in found]
    return page(
        found,
        total=len(ids),
        more=len(left) > command.limit,
        cursor_of=lambda item: encode_cursor(item[id_field]),
        line=line,
        max_tokens=command.max_tokens,
    )


def store_here() -> StoreId | None:
    """Return the store that the caller works in, or None where the caller works on the hub."""
    return current_store() if current_alias.get() else None


def apart_from_here(store: StoreId) -> AbstractContextManager[Any]:
    """Leave session and turn out of what is appended to another store than the caller's: they are not of that one."""
    return nullcontext() if store_here() in (None, store) else use_origin(session_id="", turn_id="", ack_token="")
