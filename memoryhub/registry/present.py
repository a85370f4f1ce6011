"""Projects and organisations as text for a model."""

from __future__ import annotations

import json
from typing import Any

from memoryhub.core import clock
from memoryhub.core.text import counted, flat, hanging


def project_line(project: dict[str, Any]) -> str:
    org = f" of {project['org_id']}" if project.get("org_id") else ""
    return flat(f"{project['project_id']}{_named(project)}{org}{_description(project)}")


def org_line(org: dict[str, Any]) -> str:
    return flat(f"{org['org_id']}{_named(org)}{_description(org)}")


_PLURALS = {"memory": "memories", "session": "sessions", "commit": "commits", "event": "events"}


def project_text(project: dict[str, Any]) -> str:
    """Return a project's details as lines, or its card if it has no details."""
    if "events" not in project:
        return project_line(project)
    counts = _holds(project, *_PLURALS)
    lines = [
        flat(f"project {project['project_id']}{_named(project)}"),
        *_fact("organisation", project["org_id"]),
        *_fact("folder", project["root_path"]),
        *_profile_lines(project),
        f"{counts}; first {_day(project['created_at'])}, last {_day(project['last_activity'])}",
    ]
    return "\n".join(lines)


def org_text(org: dict[str, Any]) -> str:
    lines = [
        flat(f"organisation {org['org_id']}{_named(org)}"),
        *_fact("projects", ", ".join(org["projects"])),
        *_profile_lines(org),
        f"{_holds(org, 'memory', 'event')}; last {_day(org['last_activity'])}",
    ]
    return "\n".join(lines)


def _holds(shown: dict[str, Any], *nouns: str) -> str:
    return ", ".join(counted(shown[_PLURALS[noun]], noun, _PLURALS[noun]) for noun in nouns)


def _profile_lines(shown: dict[str, Any]) -> list[str]:
    metadata = json.dumps(shown["metadata"], ensure_ascii=False) if shown["metadata"] else ""
    return [
        *_fact("description", shown["description"]),
        *_fact("tags", ", ".join(shown["tags"])),
        *_fact("metadata", metadata),
        *_fact("redacted", ", ".join(shown["redacted"])),
    ]


def _fact(name: str, value: str | None) -> list[str]:
    return [f"{name}: {hanging(value)}"] if value else []


def _named(shown: dict[str, Any]) -> str:
    return f" ({shown['name']})" if shown.get("name") else ""


def _description(shown: dict[str, Any]) -> str:
    text = shown.get("problem") or " ".join(shown.get("description", "").split())
    return f": {text}" if text else ""


def _day(moment: str | None) -> str:
    return clock.day(moment) if moment else "never"
