"""Create, check and revoke agents' tokens.

Every request reads the token's row, so that a revocation takes effect at once in all processes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import string
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from django.db import DatabaseError, transaction
from django.db.models import Q
from pydantic import AfterValidator, Field

from memoryhub.core import clock
from memoryhub.core.backends.selected import faults, stores
from memoryhub.core.errors import ConflictError, Locked, NotFound, Unauthorized, Unavailable
from memoryhub.core.origin import AGENT_PREFIX
from memoryhub.core.permissions import EVERYTHING, HUB, VERBS, Act, Grant, demand, demand_everywhere, use_grant
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import SLUG, list_orgs, list_projects
from memoryhub.models import AgentToken, Subject
from memoryhub.registry.access_history import has_hub, note_change
from memoryhub.registry.rights import grant_of_person, org_of, require_rights_of


def plain_name(name: str) -> str:
    if not SLUG.fullmatch(name):
        raise ValueError("use 1 to 64 of a-z, 0-9, '.', '_', '-', starting with a letter or digit")
    return name


logger = logging.getLogger(__name__)

# A token: public prefix, then a secret of 256 random bits.
FORMAT = re.compile(r"(mh_[a-z0-9]{8})_[A-Za-z0-9_-]{43}")
_PREFIX_LENGTH = len("mh_") + 8
_LETTERS = string.ascii_lowercase + string.digits
_SECRET_BYTES = 32
_USE_RECORDED_EVERY = timedelta(minutes=1)
_NEXT_STEP = "ask an owner for a new one (Tokens page, or `memory-hub token create`)"

Verb = Literal["read", "write", "admin"]
PlainName = Annotated[str, AfterValidator(plain_name)]


class TokenCreate(Command):
    """Create a token."""

    name: PlainName = Field(
        description="1 to 64 of a-z, 0-9, '.', '_', '-'; shown in events as token:<name>, or <person>/<name>"
    )
    projects: list[PlainName] | None = Field(
        None, min_length=1, max_length=1_000, description="projects it may access; default: the whole hub"
    )
    orgs: list[PlainName] = Field([], max_length=1_000, description="organisations it may access, with their projects")
    person: str = Field("", max_length=64, description="whose token it is: it can do at most what they can")
    verbs: list[Verb] = Field(["read"], min_length=1, description="read; write: also read; admin: everything")
    days: int = Field(90, ge=1, le=3_650, description="valid for this many days")


def create_token(*, command: TokenCreate, by: str) -> tuple[AgentToken, str]:
    """Create a token, and return it with its text, which is not stored. Names are never reused.

    Raises:
        ConflictError: the name was used before.
        Forbidden: the token is not their own, and the caller is no administrator or may do less than its person.
        NotFound: there is no such person, project or organisation, or they may not see it.
    """
    _require_own(command.person, by)
    if not command.person:
        _require_within(command)
    within = _rights_of(command.person)
    if command.person and command.person != by:
        require_rights_of(command.person)
    for kind, names in (("project", command.projects or []), ("org", command.orgs)):
        with use_grant(within):
            places = list_projects() if kind == "project" else list_orgs()
        for name in names:
            if name not in places:
                raise NotFound(f"there is no {kind} {name!r} in this hub; known: {', '.join(places) or 'none'}")
    now = clock.now()
    verbs = list(VERBS)  # each includes those before it
    prefix = "".join(secrets.choice(_LETTERS) for _ in range(8))
    text = f"mh_{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    name = f"{command.person}/{command.name}" if command.person else command.name
    with transaction.atomic():
        if AgentToken.objects.filter(name=name).exists():
            raise ConflictError(
                f"there is, or was, a token {name!r}, and events name it; choose another name, such as "
                f"{command.name[:60]}-2"
            )
        token = AgentToken.objects.create(
            name=name,
            person=command.person,
            prefix=text[:_PREFIX_LENGTH],
            token_hash=_hash(text),
            projects=_limited(command),
            orgs=sorted(set(command.orgs)),
            verbs=verbs[: max(map(verbs.index, command.verbs)) + 1],
            created_at=now,
            created_by=by,
            expires_at=now + timedelta(days=command.days),
        )
        what = describe(token).removeprefix(f"{token.name} ")
        note_change(Subject.TOKEN, token.name, f"created; {what}", by=by)
    return token, text


# None: not limited. A list of organisations alone limits it too.
def _limited(command: TokenCreate) -> list[str] | None:
    if command.projects is None and not command.orgs:
        return None
    return sorted(set(command.projects or ()))


# Everyone makes and revokes their own tokens; others' and agents' are made by those who manage people.
def _require_own(person: str, by: str) -> None:
    if not person or person != by:
        demand(Act.ADMINISTER)


# An agent's token can do no more than the person who makes it.
def _require_within(command: TokenCreate) -> None:
    acts = frozenset[Act]().union(*(VERBS[verb] for verb in command.verbs)) - {Act.ADMINISTER}
    names = [f"project:{project}" for project in command.projects or ()] + [f"org:{org}" for org in command.orgs]
    if _limited(command) is None:
        demand_everywhere()
    for act in acts:
        for place in names or [HUB]:
            demand(act, place=place)


def _rights_of(person: str) -> Grant:
    if not person:
        return EVERYTHING
    rights = grant_of_person(person)
    if not rights.acts:
        raise NotFound(f"there is no person {person[:64]!r} in this hub, or they are deactivated; see the People page")
    return rights


def list_tokens(*, person: str | None = None) -> list[AgentToken]:
    """Return all tokens, or those of a person, valid ones first, newest first."""
    now = clock.now()
    tokens = AgentToken.objects.order_by("-created_at", "-id")
    if person is not None:
        tokens = tokens.filter(person=person)
    return sorted(tokens, key=lambda token: not is_good(token, now))


def is_good(token: AgentToken, now: datetime) -> bool:
    return token.revoked_at is None and token.expires_at > now


def describe(token: AgentToken) -> str:
    """Return a sentence such as ``ci may read in alpha until 2026-12-21``."""
    where = f"all that {token.person} may see" if token.person else "the whole hub"
    if token.projects is not None:
        where = ", ".join([*(f"the organisation {org}" for org in token.orgs), *token.projects])
    return f"{token.name} may {' and '.join(token.verbs)} in {where} until {clock.day(token.expires_at)}"


def token_status(token: AgentToken, now: datetime) -> str:
    if token.revoked_at is not None:
        return f"revoked on {clock.day(token.revoked_at)} by {token.revoked_by}"
    if token.expires_at <= now:
        return "expired"
    if token.last_used_at is None:
        return "never used"
    return f"used last {clock.minute(token.last_used_at)} from {token.last_used_from}"


def token_facts(token: AgentToken, now: datetime) -> dict[str, Any]:
    """Return what may be shown of a token, for programs."""
    names = (
        "name person prefix projects orgs verbs created_at created_by expires_at last_used_at last_used_from "
        "revoked_at revoked_by"
    )
    return {name: getattr(token, name) for name in names.split()} | {"status": token_status(token, now)}


def find_token(name: str) -> AgentToken:
    token = AgentToken.objects.filter(name=name).first()
    if token is None:
        raise NotFound(no_token(name))
    return token


def no_token(name: str) -> str:
    return f"there is no token {name[:64]!r}; see `memory-hub token list`"


def revoke_token(*, name: str, by: str) -> AgentToken:
    """Revoke a token permanently, effective from the next request.

    Raises:
        Forbidden: the caller is not an administrator, and the token is not their own.
    """
    _require_own(find_token(name).person, by)
    with transaction.atomic():
        good = AgentToken.objects.filter(name=name, revoked_at__isnull=True)
        if good.update(revoked_at=clock.now(), revoked_by=by):
            note_change(Subject.TOKEN, name, "revoked", by=by)
    return find_token(name)


def recognise(text: str) -> AgentToken | None:
    """Return the token with this text; None if it doesn't have the format of a token.

    Raises:
        Unauthorized: it is unknown, has expired, or was revoked.
    """
    match = FORMAT.fullmatch(text)
    if match is None:
        return None
    token = _of_prefix(match[1])
    # Always compare, so that the time doesn't reveal which prefixes exist.
    token_hash = token.token_hash if token else _hash("")
    if not hmac.compare_digest(_hash(text), token_hash) or token is None:
        raise Unauthorized(f"this token doesn't belong to this hub; {_NEXT_STEP}")
    if token.revoked_at is not None:
        raise Unauthorized(f"the token {token.name!r} was revoked on {clock.day(token.revoked_at)}; {_NEXT_STEP}")
    if token.expires_at <= clock.now():
        raise Unauthorized(f"the token {token.name!r} expired on {clock.day(token.expires_at)}; {_NEXT_STEP}")
    return token


def grant_of(token: AgentToken) -> Grant:
    """Return what a token may do; a person's token at most what the person may do at this moment."""
    acts = frozenset[Act]().union(*(VERBS[verb] for verb in token.verbs))
    within = grant_of_person(token.person) if token.person else None
    if token.projects is None:
        return Grant(acts, org_of=org_of, within=within)
    names = [f"project:{project}" for project in token.projects] + [f"org:{org}" for org in token.orgs]
    # In the hub, it sees the lists of what it may access.
    return Grant(frozenset({Act.VIEW}), False, dict.fromkeys(names, acts), org_of, within)


def actor_of(token: AgentToken) -> str:
    """Return the actor of events: ``token:ci`` of an agent, ``ann/laptop`` of a person and their client."""
    return token.name if token.person else f"{AGENT_PREFIX}{token.name}"


def due_note(token: AgentToken, address: str) -> Callable[[], None] | None:
    """Return a callback that records the token's use, to call after the response; None within a minute of the last."""
    now = clock.now()
    if token.last_used_at is not None and abs(now - token.last_used_at) < _USE_RECORDED_EVERY:
        return None
    return lambda: _note_use(token.pk, now, address[:64])


def _note_use(pk: int, now: datetime, address: str) -> None:
    # When two arrive at once, the later counts; a use long after now is of a time when the clock was ahead
    earlier = Q(last_used_at__isnull=True) | ~Q(last_used_at__range=(now, now + _USE_RECORDED_EVERY))
    try:
        AgentToken.objects.filter(earlier, pk=pk).update(last_used_at=now, last_used_from=address)
    except DatabaseError as error:
        logger.warning("could not record the use of a token: %s", error)


def _of_prefix(prefix: str) -> AgentToken | None:
    # None if hub.db does not exist or is older than tokens: then there are none.
    if not has_hub():
        return None
    try:
        return AgentToken.objects.filter(prefix=prefix).first()
    except DatabaseError as error:
        if faults.is_missing_table(error):
            return None
        if faults.is_locked(error):
            raise Locked(f"{stores.HUB_NAME} is locked by another process") from error
        raise Unavailable(f"{stores.HUB_NAME} cannot be read: {error}") from error


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
