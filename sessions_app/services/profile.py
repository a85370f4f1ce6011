"""Describing the current store."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.schemas import Command, IdempotencyKey
from memoryhub.core.stores import Scope, current_store, list_orgs
from sessions_app.events.profile import (
    PROJECT_DESCRIBED,
    Description,
    Metadata,
    Name,
    ProjectDescribed,
    RootPath,
    Slug,
    Tags,
)
from sessions_app.profile import ProfileView, profile


class OrgDescribe(Command):
    """Describe an organisation; what is left out stays as it is."""

    name: Name = Field("", description="for people")
    description: Description = Field("", description="what it is")
    metadata: Metadata = Field(default_factory=dict, description="any JSON object; replaces the one before")
    tags: Tags = Field(default_factory=list, description="replace those before")
    idempotency_key: IdempotencyKey = None


class ProjectDescribe(OrgDescribe):
    """Describe a project; what is left out stays as it is."""

    description: Description = Field("", description="what it is for")
    metadata: Metadata = Field(
        default_factory=dict, description="goals, constraints, current state; replaces the one before"
    )
    org: Slug | None = Field(None, description="id of the organisation it belongs to; null takes it out")
    root_path: RootPath = Field("", description="its folder")


@dataclass(frozen=True, slots=True)
class Described:
    """The profile as it is now."""

    profile: ProfileView
    redacted: tuple[str, ...]
    """The types of the secrets that were taken out of what was said."""


def describe(*, command: OrgDescribe) -> Described:
    """Change what the current store says of itself, and return all of it; what says nothing new is not written.

    Raises:
        NotFound: there is no organisation of the id that was given.
        Invalid: an organisation or the global scope is to have an organisation or a folder.
    """
    key = command.idempotency_key
    said = command.model_dump(exclude_unset=True, exclude={"idempotency_key"})
    _check(said)
    draft = log.prepare(PROJECT_DESCRIBED, ProjectDescribed(**said))
    with log.transaction():
        before = profile()
        news = key or any(getattr(before, name) != value for name, value in draft.data.items())
        if news and not log.find_by_key(key, PROJECT_DESCRIBED):
            log.append(draft, stream="project", idempotency_key=key)
        return Described(profile(), draft.redactions)


def _check(said: dict[str, object]) -> None:
    scope = current_store().scope
    misplaced = [name for name in ("org", "root_path") if said.get(name)]
    if misplaced and scope != Scope.PROJECT:
        raise Invalid(f"{misplaced[0]!r} belongs to a project, not to the {scope} scope; leave it out")
    org = said.get("org")
    if org is not None and org not in list_orgs():
        known = ", ".join(list_orgs()) or "none"
        raise NotFound(f"there is no organisation {org!r} in this hub; make it first (org_create); known: {known}")
