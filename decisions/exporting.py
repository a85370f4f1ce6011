"""Export decisions as MADR Markdown files or as a Mermaid graph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import time
from typing import Any

from decisions.edges import ancestors, descendants
from decisions.importing import read_adr
from decisions.importing.links import links_in
from decisions.importing.outline import moment_of
from decisions.models import KIND_OF_FIELD, ArtifactKind, Decision, EdgeRelation, LinkType
from decisions.selectors import find_decisions, views
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.slugs import file_slug
from memoryhub.core.text import one_line

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
    return "\n".join(["flowchart BT", *map(_node, decisions), *_edges(decisions, ids), *_styles(decisions)]) + "\n"


def _node(decision: dict[str, Any]) -> str:
    title = one_line(decision["title"], _MAX_LABEL)
    # Mermaid reads `#35;` as the character of that number; so no label contains markup.
    label = _UNSAFE.sub(lambda match: f"#{ord(match[0])};", f"#{decision['id']} {title}")
    return f'    d{decision["id"]}["{label}<br/>{decision["status"]} {decision["decided_at"][:10]}"]'


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
_ARTIFACTS = {**KIND_OF_FIELD, "commits": ArtifactKind.COMMIT}
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
    read: dict[str, Any] = {}
    try:
        adr = read_adr(sanitize_text(as_file)[0])
    except Invalid:
        pass
    else:
        read = {name: getattr(adr, name) for name in _TEXTS}
        read["links"] = [link for link in adr.links if not link.is_backward]
        read["alternatives"] = [alternative.model_dump() for alternative in adr.alternatives]
    fields = {name: decision[name] for name in (*_TEXTS, "alternatives", "links")}
    declared = {**fields, "links": [link for line in fields["links"] for link in links_in(line)]}
    return {name: fields[name] for name, value in declared.items() if read.get(name) != value}


def _front_matter(decision: Mapping[str, Any], names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    status = decision["status"]
    if status == "superseded" and decision["superseded_by"]:
        status = f"superseded by {', '.join(_link(decision_id, names) for decision_id in decision['superseded_by'])}"
    yield "status", status
    # A time at midnight came from a record that gives only a day
    date = decision["decided_at"]
    moment = moment_of(date)
    if moment is not None and moment.timetz() == time(tzinfo=moment.tzinfo):
        date = date[:10]
    yield "date", date
    yield "decision-makers", decision["author"]
    for name in ("impact", "phase", "topic"):
        yield name, decision[name]
    for name, kind in _ARTIFACTS.items():
        values = [artifact["value"] for artifact in decision["artifacts"] if artifact["kind"] == kind]
        if name == "commits":
            implementing = [
                commit["sha"] for commit in decision["commits"] if commit["link_type"] == LinkType.IMPLEMENTS
            ]
            values = implementing + values
        if values:
            yield name, values


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
        if is_short and decision["chosen"]:
            options.insert(0, decision["chosen"])
        yield "## Considered Options\n\n" + "\n".join(f"* {option}" for option in options) + "\n"
    yield from _outcome(decision, is_short=is_short)
    explained = [alternative for alternative in decision["alternatives"] if alternative["why_not"]]
    if explained:
        yield "## Pros and Cons of the Options\n"
    for alternative in explained:
        yield f"### {alternative['option']}\n\n{alternative['why_not']}\n"
    if links:
        yield "## More Information\n\n" + "\n".join(f"* {link}" for link in links) + "\n"


# A proposal may have no choice yet.
def _outcome(decision: Mapping[str, Any], *, is_short: bool) -> Iterator[str]:
    chosen, rationale = decision["chosen"], decision["rationale"]
    if not chosen:
        if rationale:
            yield f"## Rationale\n\n{rationale}\n"
        return
    yield "## Decision Outcome\n"
    if is_short and rationale and "\n" not in rationale:
        yield f'Chosen option: "{chosen}", because {rationale}\n'
    elif is_short:
        yield f'Chosen option: "{chosen}"' + f"\n\n{rationale}".rstrip("\n") + "\n"
    elif rationale:
        yield f"{chosen}\n\n### Rationale\n\n{rationale}\n"
    else:
        yield f"{chosen}\n"


def _is_short(chosen: str) -> bool:
    return len(chosen) <= _MAX_CHOSEN and '"' not in chosen and "\n" not in chosen
