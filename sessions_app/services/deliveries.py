"""Record the hook events that other machines send to a team's hub."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from memoryhub.config.clients import Effect
from memoryhub.config.current_settings import project_settings
from memoryhub.core import clock, ids
from memoryhub.core.contributions import opening_of
from memoryhub.core.origin import AGENT_PREFIX, current_origin, use_origin
from memoryhub.core.stores import rows
from sessions_app.hook_parser import HookEvent, parse_hook
from sessions_app.schemas import HookContext, HookDelivery
from sessions_app.services.capture import plausible_time, recall_at_prompt, record_commits_of, record_hook

# A session's name has at most 200 characters.
_NAME_CHARS = 120


def take_delivery(*, client: str, event: str, command: HookDelivery) -> HookContext:
    """Capture a hook event that another machine sent, in the current store, and return its context.

    Needs an origin whose actor is the sender. Neither files nor folders of this machine are read: the sender has read
    the transcript and the commits.

    Raises:
        NotFound: the client or its event is unknown; the data lists the known ones.
        Invalid: the session is missing.
    """
    found = _of_sender(parse_hook(client=client, event=event, data=command.data, is_remote=True))
    if found.effect is Effect.NOTHING:
        return HookContext()
    key = command.idempotency_key or f"hook-{ids.short_id()}"
    with use_origin(source="hook"):
        with clock.frozen(plausible_time(command.happened_at)) if command.happened_at else nullcontext():
            record_hook(found, key)
            record_commits_of(found, key, command.commits if project_settings().capture_commits else [])
        return _context_of(found)


def _context_of(event: HookEvent) -> HookContext:
    if not event.answers:
        return HookContext()
    if event.effect is Effect.PROMPT:
        return HookContext(context=recall_at_prompt(event))
    return HookContext(context=opening_of(event.session_id), is_pack=True)


# A folder with a name before it is no path here, so what reads a session's folder skips it. Sessions are named by their
# clients: another person's session of the same name is another session.
def _of_sender(event: HookEvent) -> HookEvent:
    actor = current_origin().actor
    sender = actor.removeprefix(AGENT_PREFIX)  # which looks like the name of a secret
    known = rows.fetch("SELECT agent FROM sessions_app_session WHERE session_id = %s", [event.session_id])
    is_other = bool(known) and _person(known[0][0]) != _person(actor)
    session_id = f"{event.session_id[:_NAME_CHARS]}@{_person(sender)}" if is_other else event.session_id
    folder = f"{sender}:{event.directory}" if event.directory else ""
    return replace(event, session_id=session_id, directory=folder, working_directory="")


# The actor of a person's token is `ann/laptop`.
def _person(actor: str) -> str:
    return actor.partition("/")[0]
