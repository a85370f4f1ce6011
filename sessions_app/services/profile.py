"""Description and settings of the current store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from memoryhub.config.current_settings import (
    project_settings,
    settings_decided_elsewhere,
    settings_of_the_project,
)
from memoryhub.config.project_settings import (
    ProjectSettings,
    SecretRule,
    check_settings,
    compiled_rules,
    require_fast,
)
from memoryhub.core import log
from memoryhub.core.errors import Forbidden, Invalid, NotFound
from memoryhub.core.events.projection import Event
from memoryhub.core.log import Draft
from memoryhub.core.permissions import Act, allows, current_place, demand
from memoryhub.core.secrets.context import forget_rules, use_rules
from memoryhub.core.secrets.rule import SecretFinding
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.stores.store import Scope, current_store, list_orgs
from sessions_app.events import PROJECT_CONFIGURED, PROJECT_DESCRIBED, ProjectConfigured, ProjectDescribed
from sessions_app.schemas import FoundSecret, OrgDescribe, ProfileView, Sanitise, Sanitised, SettingsChange
from sessions_app.selectors import org_of_project, profile, root_of_project

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Described:
    """The current profile, and the types of secrets that were redacted from the change."""

    profile: ProfileView
    redacted: tuple[str, ...]


def describe(*, command: OrgDescribe) -> Described:
    """Change the current store's profile and return it; a change without effect is not written.

    Args:
        command: a ``ProjectDescribe`` in a project's store.

    Raises:
        NotFound: there is no such organisation.
        Invalid: the store is not a project, and the change has an organisation or a folder.
    """
    key = command.idempotency_key
    draft = draft_description(command=command, scope=current_store().scope)
    with log.transaction():
        before = profile()
        is_new = key or any(getattr(before, name) != value for name, value in draft.data.items())
        if is_new and not log.find_by_key(key, PROJECT_DESCRIBED):
            log.append(draft, stream="project", idempotency_key=key)
        return Described(profile(), draft.redactions)


def draft_description(*, command: OrgDescribe, scope: Scope) -> Draft[ProjectDescribed]:
    """Return the event that ``describe`` would append in a store of ``scope``, which need not exist yet.

    Raises:
        NotFound: there is no such organisation.
        Invalid: a store of that scope has no organisation and no folder.
    """
    log.require_key(command.idempotency_key)
    fields = command.model_dump(exclude_unset=True, exclude={"idempotency_key"})
    misplaced = [name for name in ("org_id", "root_path") if fields.get(name)]
    if misplaced and scope != Scope.PROJECT:
        raise Invalid(f"{misplaced[0]!r} belongs to a project, not to the {scope} scope; leave it out")
    if "org_id" in fields:
        org = fields["org"] = fields.pop("org_id")
        if org is not None and org != _present(org_of_project) and org not in list_orgs():
            names = ", ".join(list_orgs()) or "none"
            problem = f"there is no organisation {org!r} in this hub; create it first (org_create); known: {names}"
            raise NotFound(problem)
        _require_orgs(org)
    if fields.get("root_path"):
        _require_folder(fields["root_path"])
    return log.prepare(PROJECT_DESCRIBED, ProjectDescribed(**fields))


# Also for a roll-back, which puts back what the description was before
@log.on_append(PROJECT_DESCRIBED)
def _require_rights(event: Event[ProjectDescribed]) -> None:
    changed = event.payload.model_fields_set
    if "org" in changed:
        _require_orgs(event.payload.org)
    if "root_path" in changed and event.payload.root_path:
        _require_folder(event.payload.root_path)


def _require_folder(root: str) -> None:
    if root != _present(root_of_project):
        demand(Act.ADMINISTER, to="name a folder of the hub's machine, where git is read")


# A project inherits the memories of its organisation, whose members have their rights in the project.
def _require_orgs(org: str | None) -> None:
    present = _present(org_of_project)
    if org != present:
        for changed in {org, present} - {None}:
            demand(Act.VIEW, place=f"org:{changed}")


# None where no project is current, as before one is created
def _present(read: Callable[[], T]) -> T | None:
    if current_place().startswith("project:"):
        return read()
    return None


def try_rules(*, command: Sanitise) -> Sanitised:
    """Return a text as the current store would keep it, with the secrets that were found; writes nothing."""
    settings = project_settings()
    changes = {name: getattr(command, name) for name in ("secret_rules", "secret_allow", "mask_personal")}
    settings = settings.model_copy(update={name: value for name, value in changes.items() if value is not None})
    rules, allow = settings.secret_rules, settings.secret_allow
    if command.secret_rules is not None or command.secret_allow is not None:
        require_fast(rules, allow)
    with use_rules(compiled_rules(tuple(rules), tuple(allow), tuple(settings.mask_personal))):
        clean, findings = sanitize_text(command.text)
    custom_rules = {rule.id: rule for rule in rules}
    return Sanitised(text=clean, found=[_masked_secret(finding, custom_rules) for finding in findings])


def _masked_secret(finding: SecretFinding, custom_rules: dict[str, SecretRule]) -> FoundSecret:
    from memoryhub.core.secrets.catalogue import CUSTOM_PREFIX, about

    built_in = about(finding.rule)
    if built_in is None:
        custom = custom_rules[finding.rule.removeprefix(CUSTOM_PREFIX)]
        description, origins = custom.description or "A rule of this project.", ["this project"]
    else:
        description, origins = built_in.description, list(built_in.origins)
    place = {"start": finding.start, "end": finding.end}
    return FoundSecret(type=finding.type, rule=finding.rule, description=description, origins=origins, **place)


def change_settings(*, command: SettingsChange) -> ProjectSettings:
    """Change settings of the current project and return all of them.

    Raises:
        Invalid: a name or a value is invalid, or the setting is set elsewhere.
    """
    elsewhere = settings_decided_elsewhere()
    for name in command.settings:
        if name in elsewhere:  # such a change would be stored without effect
            raise Invalid(f"setting {name!r} is set by {elsewhere[name]}; change or remove it there")
    checked = check_settings(command.settings)
    _require_fast_rules(command, checked)
    # A change of the allowlist is sanitised with the new one: the old one would mask the allowed values.
    rules: AbstractContextManager[None] = nullcontext()
    if "secret_allow" in command.settings:
        rules = use_rules(compiled_rules((), tuple(checked.secret_allow)))
    with rules:
        draft = log.prepare(PROJECT_CONFIGURED, ProjectConfigured(settings=command.settings))
    if _patterns(command.settings) != _patterns(draft.payload.settings):  # a masked one would match other texts
        raise Invalid(
            "a pattern of secret_rules contains a secret, which is not stored; "
            "describe its form instead, such as npm_[A-Za-z0-9]{36}"
        )
    with log.transaction():
        log.append(draft, stream="project")
        settings = project_settings()
    forget_rules()
    return settings


# Also for a roll-back. Other values are read from the hub's disk, or downloaded.
@log.on_append(PROJECT_CONFIGURED)
def _require_model(event: Event[ProjectConfigured]) -> None:
    model = event.payload.settings.get("embedding_model")
    if model in (None, "auto", "none"):
        return
    is_new = not current_place() or model != settings_of_the_project().get("embedding_model")
    if is_new and not allows(Act.ADMINISTER):
        raise Forbidden(
            "only those who administer the hub choose a model from the hub's disk or the network; use auto or none",
            needs=Act.ADMINISTER.value,
        )


def _require_fast_rules(command: SettingsChange, checked: ProjectSettings) -> None:
    changed = command.settings.keys() & {"secret_rules", "secret_allow"}
    if changed:
        settings = project_settings().model_copy(update={name: getattr(checked, name) for name in changed})
        require_fast(settings.secret_rules, settings.secret_allow)


def _patterns(settings: Mapping[str, Any]) -> list[Any]:
    return [rule.get("pattern") if isinstance(rule, dict) else rule for rule in settings.get("secret_rules") or ()]
