"""Keep an event for a hub that does not answer: read for secrets first, for a spool is a file like any other."""

from __future__ import annotations

import tomllib

from memoryhub.client.hook import payload
from memoryhub.client.hook.post import CLIENTS_FILE, Event
from memoryhub.core import spool
from memoryhub.core.secrets.sanitize import sanitize
from sessions_app.transcript import with_last_message

_LONGEST = 50_000


def keep(event: Event) -> None:
    """Append the event to the spool, without secrets; what is no JSON is counted and dropped.

    Raises:
        OSError: it can't be written.
    """
    try:
        content = payload.read(event.body)
    except ValueError as error:
        spool.reject(event.key, str(error))
        return
    if event.effect == "stop":
        # Read now: when the hub comes to it, the transcript has gone on.
        with open(CLIENTS_FILE, "rb") as file:  # noqa: PTH123
            hook = tomllib.load(file)[event.client]["hooks"]["events"][event.name]
        if transcript := hook.get("transcript"):
            content = with_last_message(content, place=hook["content"][0], transcript=transcript)
    clean, _ = sanitize(payload.cut(content, _LONGEST))
    spool.append(
        spool.Kept(
            id=event.key,
            at=event.at,
            client=event.client,
            event=event.name,
            project=event.project,
            payload=clean,
        )
    )
