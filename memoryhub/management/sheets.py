"""Whatever an id stands for, laid out for a person: title, marks, fields, text, lists, and the next commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decisions.present import decision_doubts, numbers
from governance.imports import counts_text
from memories.kinds import number_defaults
from memories.present import doubts, end_text, reference, version_text
from memories.selectors.versions import conflict_side
from memoryhub.core import clock
from memoryhub.core.events.event_types import event_type
from memoryhub.core.kinds import type_name
from memoryhub.core.text import as_data, counted, flat, indented
from memoryhub.management.terminal import Line, Span, Style, highlight
from memoryhub.registry.entity_texts import EntityText
from sessions_app.present import changed_file, commit_line, turn_line
from sessions_app.timeline import event_title, split_text

Fields = Iterable[tuple[str, object]]


_MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Sheet:
    # "#412" and what it is: "memory, fact v2"
    reference: str
    what: str
    title: str
    marks: Sequence[str] = ()
    fields: Fields = ()
    # By heading, "" for the text itself
    texts: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # The next commands
    commands: Sequence[str] = ()


# Stored text begins no line: it follows a label, or is indented (decision 33)
def sheet_lines(entity: EntityText, where: str = "") -> Iterator[Line]:
    """Yield the lines of an entity.

    Args:
        entity: as ``read_entities`` returns it.
        where: options that the next commands need, with a space in front.
    """
    sheet = _SHEETS[entity.type](entity.data)
    head = flat(f"{sheet.reference} {sheet.title}")
    yield highlight(head, (sheet.reference, Style.DIM), (head.partition(" ")[2], Style.BOLD))
    yield highlight(flat(sheet.what))
    for mark in sheet.marks:
        yield [Span(flat(f"! {mark}"), Style.YELLOW)]
    fields = [(label, flat(str(value))) for label, value in sheet.fields if value]
    width = max((len(label) for label, _ in fields), default=0)
    for label, value in fields:
        yield [Span(f"  {label:<{width}}", Style.DIM), Span(f"  {value}")]
    for heading, text in sheet.texts.items():
        if text:
            yield ""
            if heading:
                yield [Span(heading, Style.BOLD)]
            yield from indented(text).split("\n")
    for heading, items in sheet.lists.items():
        if items:
            yield ""
            yield [Span(heading, Style.BOLD)]
            yield from (line for item in items for line in indented(item).split("\n"))
    if sheet.commands:
        yield ""
        yield from ([Span(f"memory-hub {command}{where}", Style.DIM)] for command in sheet.commands)


def _memory(memory: dict[str, Any]) -> Sheet:
    defaults = number_defaults(memory["kind"])
    attributes = {name: value for name, value in memory["attributes"].items() if value != defaults.get(name)}
    links = [f"{link['type']} {as_data(link['uri'])}" for link in memory["resource_links"]]
    relations = []
    for relation in memory.get("relations", []):
        direction, end = "→", relation["target"]
        if relation["source"]["id"] != memory["id"]:
            direction, end = "←", relation["source"]
        name = f"{direction} {relation['relation']} {end_text(end, relation['scope'])}"
        relations.append(flat(f"{name} (relation #{relation['id']})"))
    commands = [f"open {memory['id']}"]
    commands += [f"show {number}" for number in [*memory["superseded_by"], *memory["conflicts"]]]
    name = type_name(memory["kind"], memory["type"])
    if not name.startswith(_MEMORY):
        name = f"{_MEMORY}, {name}"
    return Sheet(
        reference(memory),
        f"{name} v{memory['version']}",
        as_data(memory["title"]),
        marks=doubts(memory),
        fields=[
            ("written", f"{clock.minute(memory['updated_at'])} by {as_data(memory['author']) or 'unknown'}"),
            ("review", memory["review"]),
            ("by a person", memory.get("acceptance", "")),
            ("session", as_data(memory["session_id"])),
            ("topic", as_data(memory["topic_key"] or "")),
            ("tags", as_data(", ".join(memory["tags"]))),
            *((name, _value(value)) for name, value in attributes.items()),
            ("source", as_data(memory["source"])),
            ("checked", memory["checked_at"] and clock.day(memory["checked_at"])),
            *_use(memory.get("use")),
        ],
        texts={"": memory["content"]},
        lists={
            "Based on": [*map(flat, memory["anchors"]), *map(flat, links)],
            "Related": relations,
            "Versions": list(map(version_text, memory.get("versions", []))),
        },
        commands=commands,
    )


def _use(use: dict[str, Any] | None) -> Fields:
    if use:
        counts = [f"{name} {use[name]}" for name in ("given", "found", "fetched", "cited", "updated") if use[name]]
        yield "use", ", ".join(counts)


def _value(value: object) -> str:
    return as_data(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _decision(decision: dict[str, Any]) -> Sheet:
    alternatives = []
    for alternative in decision["alternatives"]:
        why = f" ({alternative['why_not']})" if alternative["why_not"] else ""
        alternatives.append(as_data(f"{alternative['option']}{why}"))
    commits = []
    for commit in decision["commits"]:
        text = f"{commit['date']} {commit['link_type']}: {as_data(commit['message'])}"
        commits.append(flat(f"commit {commit['sha'][:10]} {text} (#{commit['id']})"))
    artifacts = [flat(f"{artifact['kind']} {as_data(artifact['value'])}") for artifact in decision["artifacts"]]
    lineage = decision.get("lineage") or {}
    replacements = decision["heads"] or decision["superseded_by"]
    return Sheet(
        f"#{decision['id']}",
        f"decision, {decision['status']}",
        as_data(decision["title"]),
        marks=[*decision_doubts(decision), *([f"now {numbers(replacements)}"] if replacements else [])],
        fields=[
            ("decided", f"{clock.day(decision['decided_at'])} by {as_data(decision['author']) or 'unknown'}"),
            ("impact", decision["impact"]),
            ("session", as_data(decision["session_id"])),
            ("topic", as_data(decision["topic"])),
            ("phase", as_data(decision["phase"])),
            ("source", as_data(decision["source"])),
            ("to review", as_data(decision["review"])),
        ],
        texts={"Chosen": decision["chosen"], "Why": decision["rationale"], "Context": decision["context"]},
        lists={
            "Not chosen": alternatives,
            "Based on": [*map(flat, decision["anchors"]), *artifacts, *commits],
            "Before it": list(map(_step, lineage.get("ancestors", []))),
            "After it": list(map(_step, lineage.get("descendants", []))),
        },
        commands=[f"open {decision['id']}", *(f"show {number}" for number in replacements)],
    )


def _step(step: dict[str, Any]) -> str:
    return flat(f"#{step['id']} {step['status']} {step['decided_at']} {as_data(step['title'])}, {step['relation']}")


def _session(session: dict[str, Any]) -> Sheet:
    return Sheet(
        f"#{session['id']}",
        f"session {session['session_id']}, {session['status']}",
        as_data(session["purpose"]) or session["session_id"],
        fields=[
            ("started", f"{clock.minute(session['started_at'])} by {session['agent']}"),
            ("folder", session["directory"]),
            *((as_data(name), _value(value)) for name, value in session["metadata"].items()),
        ],
        texts={"": session["summary"]},
        lists={"Turns": list(map(turn_line, session["turns"]))},
        commands=[f"open {session['id']}"],
    )


def _turn(turn: dict[str, Any]) -> Sheet:
    events = []
    for event in turn["events"]:
        head = f"#{event['position']} {clock.minute(event['occurred_at'])} {event['event_type']}"
        events.append(flat(f"{head} {as_data(_event_title(event))}"))
    return Sheet(
        f"#{turn['id']}",
        f"turn, {turn['status']}",
        as_data(turn["summary"]) or turn["turn_id"],
        fields=[("began", clock.minute(turn["began_at"])), ("session", as_data(turn["session_id"]))],
        lists={counted(turn["event_count"], "event").capitalize(): events},
        commands=[f"open {turn['id']}"],
    )


def _event_title(event: dict[str, Any]) -> str:
    title = event_title(event["event_type"], event["payload"] or {}, "")
    declared = event_type(event["event_type"])
    return title or getattr(declared, "label", "")


def _commit(commit: dict[str, Any]) -> Sheet:
    subject, _, body = commit["message"].partition("\n")
    decisions = [f"{link['link_type']} #{link['id']} {as_data(link['title'])}" for link in commit["decisions"]]
    files = list(map(changed_file, commit["files"]))
    changes = f"+{commit['insertions']} -{commit['deletions']}"
    if commit["files"] and all(file["insertions"] is None for file in commit["files"]):
        changes = ""  # git has no contents, or they are no text
    return Sheet(
        f"#{commit['id']}",
        f"commit {commit['sha']}",
        as_data(subject),
        fields=[
            ("committed", f"{clock.minute(commit['committed_at'])} by {as_data(commit['author'])}"),
            ("changes", changes),
        ],
        texts={"": body.strip()},
        lists={"Decisions": list(map(flat, decisions)), "Files": list(map(flat, files))},
        commands=[f"open {commit['id']}", *(f"show {link['id']}" for link in commit["decisions"])],
    )


def _iteration(iteration: dict[str, Any]) -> Sheet:
    events = []
    for event in iteration["events"]:
        head = f"#{event['position']} {clock.minute(event['occurred_at'])} {event['type']}"
        events.append(flat(f"{head} {as_data(event['title'])}"))
    return Sheet(
        f"#{iteration['id']}",
        f"iteration, {iteration['command']}, {iteration['status']}",
        as_data(iteration["description"]),
        fields=[
            ("started", clock.minute(iteration["started_at"])),
            ("phase", as_data(iteration["phase"] if iteration["status"] == "active" else "")),
            ("done", as_data(", ".join(iteration["phases_completed"]))),
            ("artifacts", as_data(", ".join(iteration["artifacts"]))),
        ],
        texts={"": iteration["outcome"]},
        lists={"Commits": list(map(commit_line, iteration["commits"])), "Events": events},
        commands=[f"open {iteration['id']}"],
    )


def _relation(relation: dict[str, Any]) -> Sheet:
    source, target = (end_text(relation[name], relation["scope"]) for name in ("source", "target"))
    ends = [relation[name]["id"] for name in ("source", "target") if relation[name]["id"]]
    return Sheet(
        reference(relation),
        "relation",
        f"{source} {relation['relation']} {target}",
        fields=[("created", f"{clock.minute(relation['created_at'])} by {as_data(relation['actor'])}")],
        commands=[f"show {number}" for number in ends],
    )


def _conflict(conflict: dict[str, Any]) -> Sheet:
    marks = [] if conflict["resolved_at"] else ["open: two versions were written at once"]
    return Sheet(
        reference(conflict),
        f"conflict of #{conflict['memory_id']}",
        as_data(conflict["title"]),
        marks=marks,
        fields=[("resolved", conflict["resolution"]), ("by", as_data(conflict["resolved_by"]))],
        texts={"Difference": conflict["diff"]},
        lists={"Versions": [conflict_side(name, conflict[name]) for name in ("a", "b")]},
        commands=[f"open {conflict['id']}", f"show {conflict['memory_id']}"],
    )


def _import(batch: dict[str, Any]) -> Sheet:
    kinds = [f"{kind}: {count}" for kind, count in batch["gain"]["kinds"].items()]
    commands = [f"open {batch['id']}"]
    if not batch["is_undone"]:
        commands.append(f"import undo {batch['id']}")
    return Sheet(
        f"#{batch['id']}",
        ", ".join(filter(None, (f"import from {batch['tool']}", batch["state"]))),
        as_data(batch["place"]) or batch["tool"],
        fields=[
            ("began", f"{clock.minute(batch['began_at'])} by {as_data(batch['actor'])}"),
            ("records", counts_text(batch["counts"])),
        ],
        lists={"Still here": kinds},
        commands=commands,
    )


def _event(event: dict[str, Any]) -> Sheet:
    text, other_fields = split_text(event["event_type"], event["payload"])
    fields = [(as_data(name), _value(value)) for name, value in other_fields.items() if value not in (None, [], {})]
    return Sheet(
        f"#{event['position']}",
        f"event {event['event_type']}",
        as_data(_event_title(event)),
        fields=[
            ("at", f"{clock.minute(event['occurred_at'])} by {as_data(event['actor'])} over {event['source']}"),
            ("stream", as_data(f"{event['stream_id']}/{event['stream_seq']}")),
            ("session", as_data(event["session_id"])),
            ("turn", event["turn_id"]),
            *fields,
        ],
        texts={"": text},
        commands=[f"open {event['position']}"],
    )


_SHEETS: Mapping[str, Callable[[dict[str, Any]], Sheet]] = {
    "memory": _memory,
    "decision": _decision,
    "session": _session,
    "turn": _turn,
    "commit": _commit,
    "iteration": _iteration,
    "relation": _relation,
    "conflict": _conflict,
    "import": _import,
    "event": _event,
}
