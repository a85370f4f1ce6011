"""Answer a hook in its own process where no hub is running."""

from __future__ import annotations

import json
import os

from memoryhub.client.hook import payload
from memoryhub.client.hook.post import Event

# How long to wait for another process that drains the spool.
WAIT_SECONDS = 1.0


def answer(event: Event) -> bytes:
    """Return what the client expects on standard output, or nothing. The event must have been spooled.

    Raises:
        HubError: its project can't be identified, or its store can't be used; the event stays spooled.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    import django

    django.setup()
    from memoryhub.config.folder import use_folder
    from memoryhub.core.origin import use_origin
    from memoryhub.core.stores.store import project_store, use_store
    from memoryhub.ops.serving.drain import drain
    from sessions_app.hook_parser import answer_for_client, parse_hook, place_event
    from sessions_app.services.capture import answer_to, folder_settings_of, hint_for

    parsed = parse_hook(client=event.client, event=event.name, data=payload.read(event.body))
    project, parsed = place_event(parsed, client=event.client, project=event.project or None)
    hint = hint_for(parsed, project)
    drain(project=project, wait=WAIT_SECONDS)
    folder, problem = folder_settings_of(project, parsed)
    with use_store(project_store(project)), use_folder(folder), use_origin(source="hook", actor=event.client):
        text = f"{hint}{answer_to(event=parsed, project=project, problem=problem)}".rstrip()
    return json.dumps(answer_for_client(event.client, event.name, text), ensure_ascii=False).encode() if text else b""
