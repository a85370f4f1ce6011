"""A decision as a record in MADR's form, which ``import adr`` reads back as the same decision.

Markdown cannot say every text: one that begins with a heading, or ends in white space, would be read back as another.
So each record is read back as it is written, and what comes out different stands in its front matter as well, where it
counts before the body.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from datetime import time
from typing import Any

from decisions.importing import Adr, read_adr
from decisions.importing.links import links_in
from decisions.importing.saying import moment_of
from decisions.models import ArtifactKind, EdgeRelation, LinkType
from memoryhub.core.errors import Invalid
from memoryhub.core.sanitize import sanitize_text

_TEXTS = ("title", "context", "chosen", "rationale")
_ARTIFACTS = {
    "files": ArtifactKind.FILE_PATH,
    "prs": ArtifactKind.PR,
    "notes": ArtifactKind.NOTE,
    "validations": ArtifactKind.VALIDATION,
    "commits": ArtifactKind.COMMIT,
}
_MAX_SLUG = 60
_MAX_CHOSEN = 200


def madr_files(decisions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the text of a file for each decision, by the file's name; edges to others of them are links."""
    names = {decision["id"]: _name(decision) for decision in decisions}
    return {names[decision["id"]]: _document(decision, names) for decision in decisions}


def _name(decision: Mapping[str, Any]) -> str:
    plain = unicodedata.normalize("NFKD", decision["title"]).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:_MAX_SLUG].strip("-")
    return f"{decision['id']:04}-{slug}.md" if slug else f"{decision['id']:04}.md"


def _document(decision: Mapping[str, Any], names: Mapping[int, str]) -> str:
    links = [f"{EdgeRelation(edge['relation']).label} {_link(edge['to'], names)}" for edge in decision["edges"]]
    matter, body = dict(_front_matter(decision, names)), "\n".join(_body(decision, links))
    return _with(matter | _unsaid({**decision, "links": links}, _with(matter, body)), body)


def _with(matter: Mapping[str, Any], body: str) -> str:
    lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in matter.items())
    return "\n".join(["---", *lines, "---", "", body])


def _unsaid(decision: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return what of a decision is not read back from its record as it is."""
    as_file = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        read = _said_by(read_adr(sanitize_text(as_file)[0]))
    except Invalid:
        read = {}
    wanted = {name: decision[name] for name in (*_TEXTS, "alternatives", "links")}
    declared = {**wanted, "links": [link for line in wanted["links"] for link in links_in(line)]}
    return {name: wanted[name] for name, value in declared.items() if read.get(name) != value}


def _said_by(adr: Adr) -> dict[str, Any]:
    """Return what a record says, but for the links of its status."""
    said: dict[str, Any] = {name: getattr(adr, name) for name in (*_TEXTS, "links")}
    said["links"] = [link for link in adr.links if not link.is_backward]
    return said | {"alternatives": [each.model_dump() for each in adr.alternatives]}


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
    by = [_link(each, names) for each in decision["superseded_by"]]
    is_replaced = decision["status"] == "superseded" and by
    return f"superseded by {', '.join(by)}" if is_replaced else decision["status"]


def _date(text: str) -> str:
    """Return the day where the time is midnight, as it is where a record gave a day alone."""
    moment = moment_of(text)
    is_day = moment is not None and moment.timetz() == time(tzinfo=moment.tzinfo)
    return text[:10] if is_day else text


def _evidence(decision: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    implementing = [each["sha"] for each in decision["commits"] if each["link_type"] == LinkType.IMPLEMENTS]
    for name, kind in _ARTIFACTS.items():
        values = [each["value"] for each in decision["artifacts"] if each["kind"] == kind]
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
        listed = [decision["chosen"], *options] if is_short else options
        yield "## Considered Options\n\n" + "\n".join(f"* {option}" for option in listed) + "\n"
    yield "## Decision Outcome\n"
    yield (_short_outcome if is_short else _long_outcome)(decision["chosen"], decision["rationale"])
    yield from _pros(decision["alternatives"])
    if links:
        yield "## More Information\n\n" + "\n".join(f"* {link}" for link in links) + "\n"


def _is_short(chosen: str) -> bool:
    return len(chosen) <= _MAX_CHOSEN and '"' not in chosen and "\n" not in chosen


def _short_outcome(chosen: str, rationale: str) -> str:
    because = f", because {rationale}" if rationale and "\n" not in rationale else f"\n\n{rationale}".rstrip("\n")
    return f'Chosen option: "{chosen}"{because}\n'


def _long_outcome(chosen: str, rationale: str) -> str:
    return f"{chosen}\n\n### Rationale\n\n{rationale}\n" if rationale else f"{chosen}\n"


def _pros(alternatives: Sequence[Mapping[str, str]]) -> Iterator[str]:
    said = [each for each in alternatives if each["why_not"]]
    if said:
        yield "## Pros and Cons of the Options\n"
        yield from (f"### {each['option']}\n\n{each['why_not']}\n" for each in said)
