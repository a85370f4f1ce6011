"""Write an event to the spool, without its secrets: the spool is a plain file."""

from __future__ import annotations

import tomllib

from memoryhub.client.hook import payload
from memoryhub.client.hook.post import CLIENTS_FILE, Event
from memoryhub.core import spool
from memoryhub.core.secrets.sanitize import sanitize
from sessions_app.transcript import with_last_message

_LONGEST = 50_000


def keep(event: Event) -> None:
    """Append the event to the spool, without secrets; one that is not JSON is counted and dropped."""
    try:
        content = payload.read(event.body)
    except ValueError as error:
        spool.reject(event.key, str(error))
        return
    if event.effect == "stop":
        # Read it now: the transcript will have changed when the hub drains the spool.
        with open(CLIENTS_FILE, "rb") as file:  # noqa: PTH123
            hook = tomllib.load(file)[event.client]["hooks"]["events"][event.name]
        if transcript := hook.get("transcript"):
            content = with_last_message(content, path=hook["content"][0], transcript=transcript)
    clean, _ = sanitize(payload.cut(content, _LONGEST))
    spool.append(
        spool.Kept(
            id=event.key,
            at=event.at,
            client=event.client,
            event=event.name,
            project=event.project,
            payload=clean,
            window=event.window,
        )
    )
