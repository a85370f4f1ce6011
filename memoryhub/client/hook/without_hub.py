"""Handle an event without a running hub: write it to the spool, without its secrets, and answer it in this process."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memoryhub.client.hook import event_body
from memoryhub.client.hook.post import ClientEvent
from memoryhub.config.hook_json import with_last_message
from memoryhub.config.hook_table import CLIENTS_FILE
from memoryhub.config.identity import place_session
from memoryhub.core import spool
from memoryhub.core.errors import Invalid
from memoryhub.core.secrets.sanitize import sanitize

if TYPE_CHECKING:
    from memoryhub.teams.connections import TeamConnection


_LONGEST = 50_000
# Limits of the commits for another machine, whose hub limits the size of requests.
_MOST_COMMITS = 20
_MOST_FILES = 1_000


def spool_event(event: ClientEvent, connection: TeamConnection | None = None) -> None:
    """Append the event to the spool, without secrets; one that is not JSON is counted and dropped.

    With a connection, it is the spool of that team's project, and what git says of the event's commits is kept too.

    Raises:
        NotFound: the event's session began in a folder that has no project.
    """
    place = connection.spool if connection else None
    try:
        content = event_body.read(event.body)
    except ValueError as error:
        spool.reject(event.key, str(error), at=place)
        return
    if not connection:
        _place_event(event)
    if event.effect.reads_transcript:
        # Read it now: the transcript will have changed when the hub drains the spool.
        with open(CLIENTS_FILE, "rb") as file:  # noqa: PTH123
            hook = tomllib.load(file)[event.client]["hooks"]["events"][event.name]
        if transcript := hook.get("transcript"):
            content = with_last_message(content, path=hook["content"][0], transcript=transcript)
    clean, _ = sanitize(event_body.cut(content, _LONGEST))
    spool.append(
        spool.SpooledEvent(
            id=event.key,
            at=event.at,
            client=event.client,
            event=event.name,
            project=event.project,
            payload=clean,
            window=event.window,
            commits=_commits_of_event(event, content, connection) if connection else [],
        ),
        at=place,
    )


# Now, because the folder may be gone when the hub drains the spool
def _place_event(event: ClientEvent) -> None:
    folder, session = event_body.folder_of(event), event_body.session_of(event)
    if event.project or not folder.startswith("/") or not session:
        return
    try:
        place_session(event.client, session, folder)
    except (Invalid, OSError):
        return  # the drain sets the event aside, with the reason


# The hub of another machine cannot ask git here. Importing Django for it takes longer than all else in the hook.
def _commits_of_event(event: ClientEvent, content: dict[str, Any], connection: TeamConnection) -> list[dict[str, Any]]:
    if not event.effect.is_tool or b"commit" not in event.body:
        return []
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    import django

    django.setup()
    from memoryhub.core.errors import HubError
    from sessions_app.hook_parser import find_commits, parse_hook

    try:
        parsed = parse_hook(client=event.client, event=event.name, data=content)
        recent_commits = find_commits(replace(parsed, directory=connection.folder))
    except HubError:
        return []  # the hub says why it refuses the event
    commits = [commit.model_dump(mode="json") for commit in recent_commits[:_MOST_COMMITS]]
    for commit in commits:
        commit["message"], _ = sanitize(commit["message"][:_LONGEST])
        commit["author"], _ = sanitize(commit["author"])
        commit["files"], _ = sanitize(commit["files"][:_MOST_FILES])
    return commits


# How long to wait for another process that drains the spool.
WAIT_SECONDS = 1.0


def answer_event(event: ClientEvent) -> bytes:
    """Return what the client expects on standard output, or nothing. The event must have been spooled.

    Raises:
        HubError: its project can't be identified, or its store can't be used; the event stays spooled.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    import django

    django.setup()
    from memoryhub.config.current_settings import use_folder
    from memoryhub.core.origin import use_origin
    from memoryhub.core.stores.store import project_store, use_store
    from memoryhub.ops.serving.drain import drain
    from sessions_app.hook_parser import answer_for_client, parse_hook, place_event
    from sessions_app.services.capture import answer_to, folder_settings_of, hint_for, in_window

    parsed = parse_hook(client=event.client, event=event.name, data=event_body.read(event.body))
    project, parsed = place_event(parsed, client=event.client, project=event.project or None)
    hint = hint_for(parsed, project)
    parsed = in_window(parsed, event.window)
    drain(project=project, wait=WAIT_SECONDS)
    folder, problem = folder_settings_of(project, parsed)
    with use_store(project_store(project)), use_folder(folder), use_origin(source="hook", actor=event.client):
        text = f"{hint}{answer_to(event=parsed, project=project, problem=problem)}".rstrip()
    if not text:
        return b""
    return json.dumps(answer_for_client(event.client, event.name, text), ensure_ascii=False).encode()
