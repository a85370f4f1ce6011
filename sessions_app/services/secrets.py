"""Trying out what is taken out of a text, without keeping anything."""

from __future__ import annotations

from memoryhub.core.sanitize import Finding, sanitize_text, use_rules
from sessions_app.schemas.secrets import FoundSecret, Sanitise, Sanitised
from sessions_app.secret_rules import SecretRule, compiled_rules
from sessions_app.settings import project_settings


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
    from memoryhub.core.secrets.own import OWN

    known = about(finding.rule)
    if known is None:
        ours = own[finding.rule.removeprefix(OWN)]
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
