"""Erasure: the one change the log allows. The text goes, the digests stay, the chain still verifies."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.transaction import on_commit

from memoryhub.core import rows
from memoryhub.core.errors import NotFound
from memoryhub.core.log.append import append, prepare, transaction
from memoryhub.core.log.views import forget_views
from memoryhub.core.models import RawEvent
from memoryhub.core.projection import Event, define_event
from memoryhub.core.routing import require_current_alias
from memoryhub.core.schemas import Payload


class PayloadErased(Payload):
    """Whole streams lost their text. A stream goes as one, so that a rebuild without it comes out the same."""

    streams: list[str]
    positions: list[int]
    reason: str


PAYLOAD_ERASED = define_event("payload.erased", PayloadErased)


def erase_streams(streams: Sequence[str], *, reason: str) -> Event[PayloadErased]:
    """Erase the payloads of every event in these streams, and remove what the read models made of them.

    Raises:
        NotFound: none of the streams has a payload left.
    """
    with transaction():
        found = RawEvent.objects.filter(stream_id__in=list(streams), payload_json__isnull=False)
        positions = sorted(found.values_list("position", flat=True))
        if not positions:
            raise NotFound("there is nothing left to erase in these streams")
        marks = ", ".join(["%s"] * len(positions))
        rows.execute(f"UPDATE raw_events SET payload_json = NULL, salt = NULL WHERE position IN ({marks})", positions)
        payload = PayloadErased(streams=sorted(streams), positions=positions, reason=reason)
        event = append(prepare(PAYLOAD_ERASED, payload), stream="erasures")
        forget_views()  # now, lest this process dies at the commit; and then, for those that others made until then
        on_commit(forget_views, using=require_current_alias())
    return event
