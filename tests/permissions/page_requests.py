"""A request for every page of a place and of the hub, and a valid form for each that changes something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from memoryhub.core.permissions import Act
from tests.permissions.matrix import Request
from tests.permissions.world import GLOBAL, OWN, OWN_ORG, World

STORE_URLS, HUB_URLS = "memoryhub.web.store_urls", "memoryhub.urls"
# The address of a place, by its name
BEFORE = {OWN: f"/p/{OWN}/", OWN_ORG: f"/o/{OWN_ORG}/", GLOBAL: "/global/", "": "/"}
Maker = Callable[[World], tuple[str, dict[str, Any]]]


_MEMORY, _DECISION, _REVIEW = "memories/memory", "decisions/decision", "memories/memory/review"
_BLANK = {"alternatives_option": [""], "alternatives_why_not": [""], "impact": "medium", "status": "accepted"}


def _memory(tail: str, make: str = "memory", **fields: Any) -> Maker:
    return lambda world: (f"{_MEMORY}/{getattr(world, make)()}/{tail}", fields)


def _decision(tail: str, **fields: Any) -> Maker:
    return lambda world: (f"{_DECISION}/{world.decision()}/{tail}/", fields)


def _proposal(tail: str, **fields: Any) -> Maker:
    return lambda world: (f"{_REVIEW}/{world.pending()}/{tail}/", {"base_version": "1", **fields})


def _text(world: World) -> dict[str, Any]:
    return {"title": f"better {world.number()}", "content": f"better {world.number()}", "type": "note"}


def _edit_proposal(world: World) -> tuple[str, dict[str, Any]]:
    return f"{_REVIEW}/{world.pending()}/edit/", {**_text(world), "base_version": "1"}


def _new(kind: str, **fields: Any) -> Maker:
    def make(world: World) -> tuple[str, dict[str, Any]]:
        text = f"{kind} {world.number()}"
        return f"memories/{kind}/add/", {"title": text, "content": text, "type": "", **fields}

    return make


def _unrelate(world: World) -> tuple[str, dict[str, Any]]:
    source, target = world.memory(), world.memory()
    body = {"source": str(source), "relation": "related_to", "target": str(target)}
    relation = world.post(f"projects/{OWN}/relations", body)["id"]
    return f"{_MEMORY}/{source}/relations/{relation}/remove/", {}


def _erase(world: World) -> tuple[str, dict[str, Any]]:
    memory = world.deleted()
    asked = world.asked(f"projects/{OWN}/memories/{memory}?permanent=true")
    return f"{_MEMORY}/{memory}/erase/", {"number": str(memory), "confirm_token": asked["confirm_token"]}


def _merge(world: World) -> tuple[str, dict[str, Any]]:
    memory = world.pending()
    target = world.memory()
    return f"{_REVIEW}/{memory}/merge/", {"into": str(target), "base_version": "1", "into_version": "1", "content": "m"}


def _redact(world: World) -> tuple[str, dict[str, Any]]:
    chosen = {"text": f"out of line {world.number()}"}
    world.memory(content=f"a text that is {chosen['text']}")
    token = world.post(f"projects/{OWN}/redactions/preview", chosen)["confirm_token"]
    sent = {"way": "text", "wanted": chosen["text"], "typed": "redact", "confirm_token": token}
    return "governance/redaction/run/", sent


def _roll(world: World) -> tuple[str, dict[str, Any]]:
    chosen = {"session_id": world.written_in_session(), "include_people": True}
    token = world.rollback_token(chosen)
    sent = {"session_id": chosen["session_id"], "include_people": "on", "confirm_token": token}
    return "governance/rollback/run/", sent


def _retain(world: World) -> tuple[str, dict[str, Any]]:
    world.expired()
    digest = world.send("GET", f"projects/{OWN}/retention")["digest"]
    return "governance/retentionrun/run/", {"digest": digest, "typed": OWN}


def _policy(world: World) -> tuple[str, dict[str, Any]]:
    rows = {"rules-TOTAL_FORMS": "0", "rules-INITIAL_FORMS": "0", "retention_days": "365"}
    return "governance/retentionrun/policy/", {**rows, "purge_deleted_after_days": str(1000 + world.number())}


def _secrets(world: World) -> tuple[str, dict[str, Any]]:
    rows = {"rule-TOTAL_FORMS": "0", "rule-INITIAL_FORMS": "0", "text": ""}
    return "secrets/", {**rows, "do": "save", "allow": f"nothing{world.number()}"}


# By the name of the page; a page with several forms has a word after a blank.
FORMS: dict[str, tuple[Act, Maker]] = {
    "describe": (Act.GOVERN, lambda world: ("describe/", {"name": f"{OWN} {world.number()}"})),
    "settings": (
        Act.GOVERN,
        lambda world: ("settings/", {"before": "{}", "session_idle_hours-value": str(world.number() % 600 + 2)}),
    ),
    "secrets": (Act.GOVERN, _secrets),
    "members": (Act.GOVERN, lambda world: ("members/", {"name": world.person(), "role": "viewer"})),
    "inbox_verdicts": (
        Act.REVIEW,
        lambda world: ("inbox/verdicts/", {"verdict": "accepted", "entry": [f"proposal-{world.pending()}-1"]}),
    ),
    "verify_chain": (Act.WRITE, lambda _: ("log/verify/", {})),
    "memories_conflict_settle": (
        Act.WRITE,
        lambda world: (f"memories/conflict/{world.conflict()}/settle/", {"resolution": "keep_b"}),
    ),
    "memories_memory_add": (Act.WRITE, _new("memory", type="note")),
    "memories_guideline_add": (Act.WRITE, _new("guideline", type="general", priority="50")),
    "memories_knowledge_add": (Act.WRITE, _new("knowledge", type="fact", confidence="0.5")),
    "memories_tool_add": (Act.WRITE, _new("tool", type="cli")),
    "memories_observation_add": (Act.WRITE, _new("observation", type="note")),
    "memories_tag_add": (
        Act.WRITE,
        lambda world: ("memories/tag/add/", {"name": f"t{world.number()}", "description": "now"}),
    ),
    "memories_memory_edit": (
        Act.WRITE,
        lambda world: (f"{_MEMORY}/{world.memory()}/edit/", {**_text(world), "base_version": "1"}),
    ),
    "memories_memory_delete": (Act.WRITE, _memory("delete/")),
    "memories_memory_restore": (Act.WRITE, _memory("restore/", "deleted")),
    "memories_memory_again": (Act.WRITE, _memory("versions/1/again/", "revised")),
    "memories_memory_promote": (Act.WRITE, _memory("promote/", "scratch")),
    "memories_memory_relate": (Act.WRITE, _memory("relate/", relation="applies_to", target="project")),
    "memories_memory_unrelate": (Act.WRITE, _unrelate),
    "memories_memory_erase": (Act.GOVERN, _erase),
    "memories_memory_changelist": (
        Act.WRITE,
        lambda world: (f"{_MEMORY}/", {"action": "delete_chosen", "_selected_action": [str(world.memory())]}),
    ),
    "memories_review_accept": (Act.REVIEW, _proposal("accept")),
    "memories_review_reject": (Act.REVIEW, _proposal("reject", reason="no")),
    "memories_review_edit": (Act.REVIEW, _edit_proposal),
    "memories_review_merge": (Act.REVIEW, _merge),
    "decisions_decision_add": (
        Act.WRITE,
        lambda world: (f"{_DECISION}/add/", {**_BLANK, "title": f"D {world.number()}", "chosen": "d"}),
    ),
    "decisions_decision_supersede": (Act.WRITE, _decision("supersede", **{**_BLANK, "impact": "", "chosen": "e"})),
    "decisions_decision_mark": (Act.WRITE, _decision("mark", status="deprecated")),
    "decisions_decision_link": (
        Act.WRITE,
        lambda world: (
            f"{_DECISION}/{world.decision()}/link/",
            {"relation": "refines", "to": str(world.decision())},
        ),
    ),
    "decisions_decision_evidence": (
        Act.WRITE,
        lambda world: (f"{_DECISION}/{world.decision()}/evidence/", {"kind": "notes", "value": f"n{world.number()}"}),
    ),
    "governance_redaction_run": (Act.GOVERN, _redact),
    "governance_rollback_run": (Act.GOVERN, _roll),
    "governance_rollback_undo": (Act.GOVERN, lambda world: (f"governance/rollback/{world.rollback()}/undo/", {})),
    "governance_retentionrun_run": (Act.GOVERN, _retain),
    "governance_retentionrun_policy": (Act.GOVERN, _policy),
    "governance_hold_place": (
        Act.GOVERN,
        lambda world: ("governance/hold/place/", {"stream_id": f"#{world.memory()}", "reason": "r"}),
    ),
    "governance_hold_lift": (Act.GOVERN, lambda world: (f"governance/hold/{world.hold()}/lift/", {"reason": "done"})),
    "governance_affirmation_affirm": (
        Act.REVIEW,
        lambda world: (f"governance/affirmation/{world.stale()}/affirm/", {}),
    ),
    "governance_affirmation_retire": (
        Act.REVIEW,
        lambda world: (f"governance/affirmation/{world.stale()}/retire/", {"reason": "old"}),
    ),
    # Everyone's own
    "views": (
        Act.VIEW,
        lambda world: ("views/", {"page": f"{_MEMORY}/", "query": "q=a", "name": f"v{world.number()}"}),
    ),
}
# Those that change an organisation and the global scope too, where agents have no sessions and propose nothing
IN_WIDER_SCOPES = tuple(
    """
    settings secrets verify_chain memories_memory_add memories_guideline_add memories_knowledge_add memories_tool_add
    memories_tag_add memories_memory_edit memories_memory_delete memories_memory_changelist
    governance_retentionrun_policy governance_hold_place views
    """.split()
)
OF_ORGANISATIONS = ("describe", "members", *IN_WIDER_SCOPES)
# Pages that only read, although they have names of their own, and why others have no form here
READ_ONLY = frozenset(
    """
    None inbox graph pick blame audit imports worth replay as_of live task live_task stream index login logout
    password_change password_change_done autocomplete jsi18n view_on_site app_list
    core_rawevent_export sessions_app_commit_sha sessions_app_commit_export sessions_app_session_named
    sessions_app_session_export sessions_app_turn_stream memories_observation_export memories_guideline_export
    memories_tool_export memories_knowledge_export memories_memory_export decisions_decision_export
    memories_memory_versions memories_memory_compare memories_memory_lookup memories_contextpack_now
    memories_pack_compare memories_review_item decisions_decision_lookup governance_affirmation_item
    """.split()
)
NO_FORM = {
    "import": "needs an import from another tool; tests/admin/test_site.py refuses it to viewers",
    "memories_review_undo": "undoes one's own verdict, so it needs one first; it writes as verdicts do",
    "memories_review_undo_chosen": "the same",
}
TOKEN = {"reach": "hub", "verbs": "admin", "days": "9"}

# Of the hub: the act, the address, the fields
HUB_FORMS: dict[str, tuple[Act, Maker]] = {
    "new-project": (Act.GOVERN, lambda world: ("new/project", {"id": f"p{world.number()}"})),
    "new-org": (Act.GOVERN, lambda world: ("new/organisation", {"id": f"o{world.number()}"})),
    "people": (Act.ADMINISTER, lambda world: ("people", {"name": f"u{world.number()}", "role": "member"})),
    "change-person": (Act.ADMINISTER, lambda world: (f"people/{world.person()}/deactivate", {})),
    "revoke-token": (Act.ADMINISTER, lambda world: (f"tokens/{world.token()}/revoke", {})),
    # Everyone makes tokens of their own.
    "tokens": (Act.VIEW, lambda world: ("tokens", {**TOKEN, "for": "me", "name": f"a{world.number()}"})),
    "plan-job": (
        Act.ADMINISTER,
        lambda world: ("jobs/plan", {"job": "expire turns", "every": "day", "at": f"{world.number() % 24}:30"}),
    ),
}
# Pages of the hub and the act that they need
HUB_READS = {
    **dict.fromkeys(
        ("", "find", "find?q=text", "find?q=text&fragment=1", "find?q=memory&from=/p/quartz/admin/", "jobs", "tokens"),
        Act.VIEW,
    ),
    "people": Act.ADMINISTER,
    "new/project": Act.GOVERN,
    "new/organisation": Act.GOVERN,
}
NO_HUB_FORM = {
    "None": "the answer to clients that look for an OAuth server",
    "load-sample": "makes a project of its own; tests/test_demo.py",
    "hide-first-steps": "keeps a name in the person's own session",
    "run-job": "needs a worker; tests/jobs",
    "live-jobs": "the head of a stream, which is a version; tested here",
    "signin": "for those who are not signed in",
    "signin-help": "the same",
    "signout": "ends one's own session",
    "help": "the documentation",
    "home": "read here",
    "find": "read here",
    "jobs": "read here",
}
# Django's own pages of each model: those that no form here names are without the right to add, change or delete.
_OF_MODELS = re.compile(r"_(changelist|add|history|delete|change)$")
_SAMPLES = {
    "version": "1",
    "form": "jsonl",
    "app_label": "memories",
    "url": "none/",
    "content_type_id": "1",
    "task_id": "none",
    "batch_id": "1",
}
_IDS = {
    "conflict": "conflict_id",
    "memory": "memory_id",
    "decision": "decision_id",
    "contextpack": "pack_id",
    "hold": "hold_id",
    "rollback": "rollback_id",
    "retentionrun": "run_id",
    "iteration": "iteration_id",
    "observation": "memory_id",
    "guideline": "guideline",
    "knowledge": "knowledge",
    "tool": "tool",
}


def patterns(urlconf: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of every page of a module of addresses."""

    def walk(resolver: URLResolver, before: str) -> Iterator[tuple[str, str]]:
        for entry in resolver.url_patterns:
            path = before + str(entry.pattern)
            if isinstance(entry, URLPattern):
                yield path, str(entry.name)
            else:
                yield from walk(entry, path)

    return walk(get_resolver(urlconf), "")


def uncovered() -> list[str]:
    known = {*FORMS, *READ_ONLY, *NO_FORM}
    names = [name for _, name in patterns(STORE_URLS) if name not in known and not _OF_MODELS.search(name)]
    of_hub = [name for path, name in patterns(HUB_URLS) if not path.startswith("api/")]
    return names + [name for name in of_hub if name not in {*HUB_FORMS, *NO_HUB_FORM}]


def store_paths(world: World) -> Iterator[tuple[str, str]]:
    """Yield the name and the address below a place of every page, with ids of real rows."""
    ids = world.ids[OWN]
    for path, name in patterns(STORE_URLS):
        model = path.split("/")[2] if path.count("/") > 2 else ""
        own = {
            **_SAMPLES,
            "object_id": str(ids.get(_IDS.get(model, ""), 1)),
            "entity_id": str(ids["entity_id"]),
            "memory_id": str(ids["memory_id"]),
            "hold_id": str(ids["hold_id"]),
            "rollback_id": str(ids["rollback_id"]),
            "relation": str(ids["relation_id"]),
            "sha": ids["sha"],
            "name": ids["session_id"],
            "stream": f"memory:{ids['memory_id']}",
            "tail": f"{ids['session_id']}/{ids['turn_id']}",
        }
        plain = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"<\1>", path).replace("^", "").replace("$", "")
        yield name, _filled(plain, own)


def _filled(path: str, values: dict[str, str]) -> str:
    return re.sub(r"<(?:\w+:)?(\w+)>", lambda part: values[part[1]], path)


def hub_paths() -> Iterator[str]:
    """Yield the address of every page of the hub."""
    for path, _ in patterns(HUB_URLS):
        if not path.startswith(("api/", "signout", "p/", "o/", "global/")) and not re.search(r"[\^$(\\]", path):
            yield re.sub(
                r"<(?:\w+:)?(\w+)>", lambda part: {"name": "own-viewer", "what": "role"}.get(part[1], "1"), path
            )


def page(path: str, place: str, act: Act = Act.VIEW) -> Request:
    lists_places = not place and path.startswith(("people", "tokens"))
    return Request(f"{BEFORE[place]}{path}", "GET", f"{BEFORE[place]}{path}", act, place, lists_places=lists_places)


def form(world: World, name: str, place: str = OWN) -> Request:
    """Return a form to send; of a place, or of the hub."""
    act, maker = FORMS[name] if place else HUB_FORMS[name]
    path, fields = maker(world)
    page_of = page(f"admin/{path}" if place else path, place, act)
    return replace(page_of, label=f"{name} of {place or 'the hub'}", method="POST", body=fields, writes=True)
