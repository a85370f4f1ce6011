"""Describing the current store."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from memoryhub.config.current_rules import forget_rules
from memoryhub.config.project_settings import (
    ProjectSettings,
    check_settings,
    project_settings,
    settings_decided_elsewhere,
)
from memoryhub.config.secret_rules import SecretRule, compiled_rules
from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log import Draft
from memoryhub.core.permissions import demand_hub
from memoryhub.core.secrets.sanitize import Finding, sanitize_text, use_rules
from memoryhub.core.stores.store import Scope, current_store, list_orgs
from sessions_app.events import PROJECT_CONFIGURED, ProjectConfigured
from sessions_app.events.work import PROJECT_DESCRIBED, ProjectDescribed
from sessions_app.schemas import OrgDescribe, ProfileView, SettingsChange
from sessions_app.schemas.work import FoundSecret, Sanitise, Sanitised
from sessions_app.selectors import profile


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


def try_rules(*, command: Sanitise) -> Sanitised:
    """Return a text as the current store would keep it, and what would be taken out, by which rule; write nothing."""
    settings = project_settings()
    rules = settings.secret_rules if command.secret_rules is None else command.secret_rules
    allow = settings.secret_allow if command.secret_allow is None else command.secret_allow
    with use_rules(compiled_rules(tuple(rules), tuple(allow))):
        clean, findings = sanitize_text(command.text)
    own = {each.id: each for each in rules}
    return Sanitised(text=clean, found=[_found(finding, own) for finding in findings])


def _found(finding: Finding, own: dict[str, SecretRule]) -> FoundSecret:
    from memoryhub.core.secrets.catalogue import about
    from memoryhub.core.secrets.custom_rules import CUSTOM_PREFIX

    known = about(finding.rule)
    if known is None:
        ours = own[finding.rule.removeprefix(CUSTOM_PREFIX)]
        description, origins = ours.description or "A rule of this project.", ["this project"]
    else:
        description, origins = known.description, list(known.origins)
    return FoundSecret(
        type=finding.type,
        rule=finding.rule,
        description=description,
        origins=origins,
        start=finding.start,
        end=finding.end,
    )


def change_settings(*, command: SettingsChange) -> ProjectSettings:
    """Change settings of the current project, and return all as they are now.

    Raises:
        Invalid: a name is unknown, a value is not one that the setting takes, or something else decides it.
    """
    _refuse_what_is_decided_elsewhere(command)
    checked = check_settings(command.settings)
    with _rules_of(command, checked):
        draft = log.prepare(PROJECT_CONFIGURED, ProjectConfigured(settings=command.settings))
    with log.transaction():
        log.append(draft, stream="project")
        settings = project_settings()
    forget_rules()
    return settings


def _refuse_what_is_decided_elsewhere(command: SettingsChange) -> None:
    """Refuse a change that would be kept and do nothing."""
    elsewhere = settings_decided_elsewhere()
    for name in command.settings:
        if name in elsewhere:
            raise Invalid(f"setting {name!r} is decided by {elsewhere[name]}; change it there, or take it out there")


def _rules_of(command: SettingsChange, checked: ProjectSettings) -> AbstractContextManager[None]:
    """Sanitise a change of the allow-list by itself: what it allows would be taken out of it otherwise."""
    if not command.settings.keys() & {"secret_rules", "secret_allow"}:
        return nullcontext()
    return use_rules(compiled_rules(tuple(checked.secret_rules), tuple(checked.secret_allow)))
