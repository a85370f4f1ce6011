"""Describing the current store."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log import Draft
from memoryhub.core.permissions import demand_hub
from memoryhub.core.stores import Scope, current_store, list_orgs
from sessions_app.events.profile import PROJECT_DESCRIBED, ProjectDescribed
from sessions_app.profile import profile
from sessions_app.schemas import OrgDescribe, ProfileView


@dataclass(frozen=True, slots=True)
class Described:
    """The profile as it is now."""

    profile: ProfileView
    redacted: tuple[str, ...]
    """The types of the secrets that were taken out of what was said."""


def describe(*, command: OrgDescribe) -> Described:
    """Change what the current store says of itself, and return all of it; what says nothing new is not written.

    Args:
        command: a ``ProjectDescribe`` in a project's store.

    Raises:
        NotFound: there is no organisation of the id that was given.
        Invalid: an organisation or the global scope is to have an organisation or a folder.
    """
    key = command.idempotency_key
    draft = draft_description(command=command, scope=current_store().scope)
    with log.transaction():
        before = profile()
        news = key or any(getattr(before, name) != value for name, value in draft.data.items())
        if news and not log.find_by_key(key, PROJECT_DESCRIBED):
            log.append(draft, stream="project", idempotency_key=key)
        return Described(profile(), draft.redactions)


def draft_description(*, command: OrgDescribe, scope: Scope) -> Draft[ProjectDescribed]:
    """Return what ``describe`` would append in a store of ``scope``, which need not be there yet.

    Raises:
        NotFound: there is no organisation of the id that was given.
        Invalid: a store of that scope has no organisation and no folder.
    """
    said = command.model_dump(exclude_unset=True, exclude={"idempotency_key"})
    misplaced = [name for name in ("org_id", "root_path") if said.get(name)]
    if misplaced and scope != Scope.PROJECT:
        raise Invalid(f"{misplaced[0]!r} belongs to a project, not to the {scope} scope; leave it out")
    if "org_id" in said:
        demand_hub()  # what another organisation keeps would be inherited
        said["org"] = _known(said.pop("org_id"))
    return log.prepare(PROJECT_DESCRIBED, ProjectDescribed(**said))


def _known(org: str | None) -> str | None:
    if org is not None and org not in list_orgs():
        known = ", ".join(list_orgs()) or "none"
        raise NotFound(f"there is no organisation {org!r} in this hub; make it first (org_create); known: {known}")
    return org
