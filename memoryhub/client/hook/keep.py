"""Write an event to the spool, without its secrets: the spool is a plain file."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memoryhub.client.hook import payload
from memoryhub.client.hook.post import CLIENTS_FILE, Event
from memoryhub.config.session_project import place_session
from memoryhub.core import spool
from memoryhub.core.errors import Invalid
from memoryhub.core.secrets.sanitize import sanitize
from sessions_app.transcript import with_last_message

_LONGEST = 50_000
# Of commits for another machine, whose hub limits the size of requests.
_MOST_COMMITS = 20
_MOST_FILES = 1_000

if TYPE_CHECKING:
    from memoryhub.teams.connections import Connection


def keep(event: Event, connection: Connection | None = None) -> None:
    """Append the event to the spool, without secrets; one that is not JSON is counted and dropped.

    With a connection, it is the spool of that team's project, and what git says of the event's commits is kept too.

    Raises:
        NotFound: the event's session began in a folder that has no project.
    """
    place = connection.spool if connection else None
    try:
        content = payload.read(event.body)
    except ValueError as error:
        spool.reject(event.key, str(error), at=place)
        return
    if not connection:
        _place(event)
    if event.effect == "stop":
        # Read it now: the transcript will have changed when the hub drains the spool.
        with open(CLIENTS_FILE, "rb") as file:  # noqa: PTH123
            hook = tomllib.load(file)[event.client]["hooks"]["events"][event.name]
        if transcript := hook.get("transcript"):
            content = with_last_message(content, path=hook["content"][0], transcript=transcript)
    clean, _ = sanitize(payload.cut(content, _LONGEST))
    spool.append(
        spool.SpooledEvent(
            id=event.key,
            at=event.at,
            client=event.client,
            event=event.name,
            project=event.project,
            payload=clean,
            window=event.window,
            commits=_commits(event, content, connection) if connection else [],
        ),
        at=place,
    )


# Now, because the folder may be gone when the hub drains the spool
def _place(event: Event) -> None:
    folder, session = payload.folder_of(event), payload.session_of(event)
    if event.project or not folder.startswith("/") or not session:
        return
    try:
        place_session(event.client, session, folder)
    except (Invalid, OSError):
        return  # the drain sets the event aside, with the reason


# The hub of another machine cannot ask git here. Importing Django for it takes longer than all else in the hook.
def _commits(event: Event, content: dict[str, Any], connection: Connection) -> list[dict[str, Any]]:
    if event.effect != "tool" or b"commit" not in event.body:
        return []
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    import django

    django.setup()
    from memoryhub.core.errors import HubError
    from sessions_app.hook_commits import find_commits
    from sessions_app.hook_parser import parse_hook

    try:
        parsed = parse_hook(client=event.client, event=event.name, data=content)
        recent_commits = find_commits(replace(parsed, directory=connection.folder))
    except HubError:
        return []  # the hub says why it refuses the event
    commits = [commit.model_dump(mode="json") for commit in recent_commits[:_MOST_COMMITS]]
    return [
        {
            **commit,
            "message": sanitize(commit["message"][:_LONGEST])[0],
            "author": sanitize(commit["author"])[0],
            "files": sanitize(commit["files"][:_MOST_FILES])[0],
        }
        for commit in commits
    ]
