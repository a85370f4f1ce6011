"""Export decisions as MADR Markdown files or as a Mermaid graph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import time
from typing import Any

from decisions.edges import ancestors, descendants
from decisions.importing import Adr, read_adr
from decisions.importing.links import links_in
from decisions.importing.outline import moment_of
from decisions.models import ArtifactKind, Decision, EdgeRelation, LinkType
from decisions.selectors import find_decisions, views
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.slugs import file_slug

_BATCH = 500


def chosen_decisions(*, ids: Sequence[int] = (), lineage: bool = False) -> list[dict[str, Any]]:
    """Return the decisions of ``ids``, or all, as JSON data, the earliest first.

    With ``lineage`` their ancestors and descendants are included.
    """
    if ids:
        decisions = find_decisions(ids)
    else:
        decisions = list(outside_quarantine(Decision.objects.order_by("id")))
    if not decisions:
        raise NotFound("this project has no decisions yet; record one, or name another project")
    if ids and lineage:
        related = set(ids)
        for start in ids:
            related.update(step.id for step in (*ancestors(start), *descendants(start)))
        decisions = list(Decision.objects.filter(id__in=related))
    decisions.sort(key=lambda decision: decision.id)
    exported: list[dict[str, Any]] = []
    for start in range(0, len(decisions), _BATCH):
        exported += views(decisions[start : start + _BATCH], with_heads=False)
    return exported


_ARROWS = {EdgeRelation.CONFLICTS_WITH: "x--x", EdgeRelation.RELATES_TO: "-.-"}
_STYLES = {
    "accepted": "stroke-width:3px",
    "proposed": "stroke-dasharray:6 3",
    "superseded": "color:#777,stroke:#aaa,stroke-dasharray:2 3",
    "deprecated": "color:#777,stroke:#aaa",
    "rejected": "color:#777,stroke:#aaa",
}
_UNSAFE = re.compile(r"[^\w .,:;!?()/'+=-]")
_MAX_LABEL = 80


def mermaid_graph(decisions: Sequence[dict[str, Any]]) -> str:
    """Return a Mermaid flowchart of the decisions and their edges, later ones pointing at earlier ones."""
    ids = {decision["id"] for decision in decisions}
    lines = [
        "flowchart BT",
        *(_node(decision) for decision in decisions),
        *_edges(decisions, ids),
        *_styles(decisions),
    ]
    return "\n".join(lines) + "\n"


def _node(decision: dict[str, Any]) -> str:
    title = " ".join(decision["title"].split())
    cut = f"{title[:_MAX_LABEL]}…" if len(title) > _MAX_LABEL else title
    date = decision["decided_at"][:10]
    label = _escaped(f"#{decision['id']} {cut}")
    return f'    d{decision["id"]}["{label}<br/>{decision["status"]} {date}"]'


# Mermaid reads `#35;` as the character of that number; so no label contains markup.
def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"#{ord(match[0])};", text)


def _edges(decisions: Sequence[dict[str, Any]], exported: set[int]) -> Iterator[str]:
    for decision in decisions:
        for edge in decision["edges"]:
            if edge["to"] in exported:
                arrow = _ARROWS.get(edge["relation"], "-->")
                yield f"    d{decision['id']} {arrow}|{edge['relation'].replace('_', ' ')}| d{edge['to']}"


def _styles(decisions: Sequence[dict[str, Any]]) -> Iterator[str]:
    for status, style in _STYLES.items():
        ids = [f"d{decision['id']}" for decision in decisions if decision["status"] == status]
        if ids:
            yield f"    classDef {status} {style}"
            yield f"    class {','.join(ids)} {status}"


_TEXTS = ("title", "context", "chosen", "rationale")
_ARTIFACTS = {
    "files": ArtifactKind.FILE_PATH,
    "prs": ArtifactKind.PR,
    "notes": ArtifactKind.NOTE,
    "validations": ArtifactKind.VALIDATION,
    "commits": ArtifactKind.COMMIT,
}
_MAX_CHOSEN = 200


def madr_files(decisions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map file names to the decisions' MADR texts; edges between them are links."""
    names = {decision["id"]: file_name(decision["id"], decision["title"]) for decision in decisions}
    return {names[decision["id"]]: madr_document(decision, names) for decision in decisions}


def file_name(entity_id: int, title: str) -> str:
    """Return a name for a file of an entity: unique, also where case does not count, and safe on every system."""
    slug = file_slug(title)
    return f"{entity_id:04}-{slug}.md" if slug else f"{entity_id:04}.md"


def madr_document(decision: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """Return a decision as a MADR text; ``names`` are the files of the decisions that it may link to."""
    links = [f"{EdgeRelation(edge['relation']).label} {_link(edge['to'], names)}" for edge in decision["edges"]]
    matter, body = dict(_front_matter(decision, names)), "\n".join(_body(decision, links))
    return with_front_matter(matter | _lost_fields({**decision, "links": links}, with_front_matter(matter, body)), body)


def with_front_matter(matter: Mapping[str, Any], body: str) -> str:
    """Return a Markdown file; the values are JSON, which is YAML too."""
    lines = (f"{name}: {yaml_value(value)}" for name, value in matter.items())
    return "\n".join(["---", *lines, "---", "", body])


# What YAML takes for a line break, or refuses, although JSON does not
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def yaml_value(value: Any) -> str:
    """Return a JSON value in one line that parsers of YAML read as the same value."""
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# Fields that `read_adr` would not read back unchanged from the body go to the front matter.
def _lost_fields(decision: Mapping[str, Any], text: str) -> dict[str, Any]:
    as_file = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        read = _fields_of(read_adr(sanitize_text(as_file)[0]))
    except Invalid:
        read = {}
    fields = {name: decision[name] for name in (*_TEXTS, "alternatives", "links")}
    declared = {**fields, "links": [link for line in fields["links"] for link in links_in(line)]}
    return {name: fields[name] for name, value in declared.items() if read.get(name) != value}


def _fields_of(adr: Adr) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(adr, name) for name in (*_TEXTS, "links")}
    fields["links"] = [link for link in adr.links if not link.is_backward]
    return fields | {"alternatives": [alternative.model_dump() for alternative in adr.alternatives]}


def _front_matter(decision: Mapping[str, Any], names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    yield "status", _status(decision, names)
    yield "date", _date(decision["decided_at"])
    yield "decision-makers", decision["author"]
    yield "impact", decision["impact"]
    yield "phase", decision["phase"]
    yield "topic", decision["topic"]
    for name, values in _evidence(decision):
        if values:
            yield name, values


def _status(decision: Mapping[str, Any], names: Mapping[int, str]) -> str:
    if decision["status"] != "superseded" or not decision["superseded_by"]:
        return str(decision["status"])
    return f"superseded by {', '.join(_link(decision_id, names) for decision_id in decision['superseded_by'])}"


# A time at midnight came from a record that gives only a day.
def _date(text: str) -> str:
    moment = moment_of(text)
    is_day = moment is not None and moment.timetz() == time(tzinfo=moment.tzinfo)
    return text[:10] if is_day else text


def _evidence(decision: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    implementing = [commit["sha"] for commit in decision["commits"] if commit["link_type"] == LinkType.IMPLEMENTS]
    for name, kind in _ARTIFACTS.items():
        values = [artifact["value"] for artifact in decision["artifacts"] if artifact["kind"] == kind]
        yield name, [*(implementing if name == "commits" else ()), *values]


def _link(decision_id: int, names: Mapping[int, str]) -> str:
    name = names.get(decision_id)
    return f"[{name.removesuffix('.md')}]({name})" if name else f"#{decision_id}"


def _body(decision: Mapping[str, Any], links: Sequence[str]) -> Iterator[str]:
    yield f"# {decision['title']}\n"
    if decision["context"]:
        yield f"## Context and Problem Statement\n\n{decision['context']}\n"
    is_short = _is_short(decision["chosen"])
    options = [alternative["option"] for alternative in decision["alternatives"]]
    if options:
        listed = [decision["chosen"], *options] if is_short and decision["chosen"] else options
        yield "## Considered Options\n\n" + "\n".join(f"* {option}" for option in listed) + "\n"
    yield from _outcome(decision, is_short=is_short)
    yield from _pros(decision["alternatives"])
    if links:
        yield "## More Information\n\n" + "\n".join(f"* {link}" for link in links) + "\n"


# A proposal may have no choice yet.
def _outcome(decision: Mapping[str, Any], *, is_short: bool) -> Iterator[str]:
    if decision["chosen"]:
        yield "## Decision Outcome\n"
        if is_short:
            yield _short_outcome(decision["chosen"], decision["rationale"])
        else:
            yield _long_outcome(decision["chosen"], decision["rationale"])
    elif decision["rationale"]:
        yield f"## Rationale\n\n{decision['rationale']}\n"


def _is_short(chosen: str) -> bool:
    return len(chosen) <= _MAX_CHOSEN and '"' not in chosen and "\n" not in chosen


def _short_outcome(chosen: str, rationale: str) -> str:
    option = f'Chosen option: "{chosen}"'
    if rationale and "\n" not in rationale:
        return f"{option}, because {rationale}\n"
    return option + f"\n\n{rationale}".rstrip("\n") + "\n"


def _long_outcome(chosen: str, rationale: str) -> str:
    return f"{chosen}\n\n### Rationale\n\n{rationale}\n" if rationale else f"{chosen}\n"


def _pros(alternatives: Sequence[Mapping[str, str]]) -> Iterator[str]:
    explained = [alternative for alternative in alternatives if alternative["why_not"]]
    if explained:
        yield "## Pros and Cons of the Options\n"
        yield from (f"### {option['option']}\n\n{option['why_not']}\n" for option in explained)
