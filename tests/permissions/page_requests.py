"""A request for every page of a place and of the hub, and a valid form for each that changes something."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from memories.validity.check_runs import parse_check
from memoryhub.core.permissions import Act
from tests.permissions.matrix import Request
from tests.permissions.world import GLOBAL, OWN, OWN_ORG, World

STORE_URLS, HUB_URLS = "memoryhub.web.store_urls", "memoryhub.urls"
# The address of a place, by its name
BEFORE = {OWN: f"/p/{OWN}/", OWN_ORG: f"/o/{OWN_ORG}/", GLOBAL: "/global/", "": "/"}
Fields = dict[str, Any]
# An address below a place and fields; {memory} and the like are what the world makes, each time a new one.
Form = tuple[str, Fields] | Callable[[World], tuple[str, Fields]]

_MEMORY, _DECISION, _REVIEW = "memories/memory", "decisions/decision", "memories/memory/review"
_BLANK = {"alternatives_option": [""], "alternatives_why_not": [""], "impact": "medium", "status": "accepted"}
_TEXT = {"title": "better {number}", "content": "better {number}", "type": "note"}
_FIRST = {"base_version": "1"}
_NO_RULES = {"rules-TOTAL_FORMS": "0", "rules-INITIAL_FORMS": "0", "retention_days": "365"}
_NO_SECRETS = {"rule-TOTAL_FORMS": "0", "rule-INITIAL_FORMS": "0", "text": ""}
TOKEN = {"reach": "hub", "verbs": "admin", "days": "9"}


def _unrelate(world: World) -> tuple[str, Fields]:
    source, target = world.memory(), world.memory()
    body = {"source": str(source), "relation": "related_to", "target": str(target)}
    relation = world.post(f"projects/{OWN}/relations", body)["id"]
    return f"{_MEMORY}/{source}/relations/{relation}/remove/", {}


def _unlink(world: World) -> tuple[str, Fields]:
    edge = world.linked()
    return f"{_DECISION}/{edge['id']}/unlink/", edge


def _erase(world: World) -> tuple[str, Fields]:
    memory = world.deleted()
    asked = world.asked(f"projects/{OWN}/memories/{memory}?permanent=true")
    return f"{_MEMORY}/{memory}/erase/", {"number": str(memory), "confirm_token": asked["confirm_token"]}


def _redact(world: World) -> tuple[str, Fields]:
    text, token = world.redactable()
    sent = {"way": "text", "target": text, "typed": "redact", "confirm_token": token}
    return "governance/redaction/run/", sent


def _roll(world: World) -> tuple[str, Fields]:
    chosen = {"session_id": world.written_in_session(), "include_people": True}
    token = world.rollback_token(chosen)
    return "governance/rollback/run/", {**chosen, "include_people": "on", "confirm_token": token}


def _retain(world: World) -> tuple[str, Fields]:
    world.expired()
    digest = world.send("GET", f"projects/{OWN}/retention")["digest"]
    return "governance/retentionrun/run/", {"digest": digest, "typed": OWN}


_CHECK = "`make test`"


def _judge(world: World) -> tuple[str, Fields]:
    world.amended()
    amendment = world.send("GET", f"projects/{OWN}/amendments")["results"][0]["id"]
    return f"memories/amendment/{amendment}/verdict/", {"verdict": "dismissed"}


def _allow(page: str, entity_id: int) -> tuple[str, Fields]:
    return f"{page}/{entity_id}/allow/", {"digest": parse_check(_CHECK).digest}


# By the name of the page, and by the act that it needs
_FORMS: dict[Act, dict[str, Form]] = {
    Act.VIEW: {"views": ("views/", {"page": f"{_MEMORY}/", "query": "q=a", "name": "v{number}"})},  # everyone's own
    Act.WRITE: {
        "verify_chain": ("log/verify/", {}),
        "memories_conflict_settle": ("memories/conflict/{conflict}/settle/", {"resolution": "keep_b"}),
        "memories_memory_add": (f"{_MEMORY}/add/", _TEXT),
        "memories_guideline_add": ("memories/guideline/add/", {**_TEXT, "type": "general", "priority": "50"}),
        "memories_knowledge_add": ("memories/knowledge/add/", {**_TEXT, "type": "fact", "confidence": "0.5"}),
        "memories_tool_add": ("memories/tool/add/", {**_TEXT, "type": "cli"}),
        "memories_observation_add": ("memories/observation/add/", _TEXT),
        "memories_tag_add": ("memories/tag/add/", {"name": "t{number}", "description": "now"}),
        "memories_memory_edit": (f"{_MEMORY}/{{memory}}/edit/", {**_TEXT, **_FIRST}),
        "memories_memory_delete": (f"{_MEMORY}/{{memory}}/delete/", {}),
        "memories_memory_restore": (f"{_MEMORY}/{{deleted}}/restore/", {}),
        "memories_memory_again": (f"{_MEMORY}/{{revised}}/versions/1/again/", {}),
        "memories_memory_promote": (f"{_MEMORY}/{{scratch}}/promote/", {}),
        "memories_memory_relate": (f"{_MEMORY}/{{memory}}/relate/", {"relation": "applies_to", "target": "project"}),
        "memories_memory_unrelate": _unrelate,
        "memories_memory_changelist": (f"{_MEMORY}/", {"action": "delete_chosen", "_selected_action": "{memory}"}),
        "decisions_decision_add": (f"{_DECISION}/add/", {**_BLANK, "title": "D {number}", "chosen": "d"}),
        "decisions_decision_supersede": (
            f"{_DECISION}/{{decision}}/supersede/",
            {**_BLANK, "impact": "", "chosen": "e"},
        ),
        "decisions_decision_mark": (f"{_DECISION}/{{decision}}/mark/", {"status": "deprecated"}),
        "decisions_decision_link": (f"{_DECISION}/{{decision}}/link/", {"relation": "refines", "to": "{decision}"}),
        "decisions_decision_unlink": _unlink,
        "decisions_decision_evidence": (f"{_DECISION}/{{decision}}/evidence/", {"kind": "notes", "value": "n{number}"}),
    },
    Act.REVIEW: {
        "inbox_verdicts": ("inbox/verdicts/", {"verdict": "accepted", "entry": "proposal-{pending}-1"}),
        "memories_review_accept": (f"{_REVIEW}/{{pending}}/accept/", _FIRST),
        "memories_review_reject": (f"{_REVIEW}/{{pending}}/reject/", {**_FIRST, "reason": "no"}),
        "memories_review_edit": (f"{_REVIEW}/{{pending}}/edit/", {**_FIRST, **_TEXT}),
        "memories_review_merge": (
            f"{_REVIEW}/{{pending}}/merge/",
            {**_FIRST, "into": "{memory}", "into_version": "1", "content": "m"},
        ),
        "memories_amendment_verdict": _judge,
        "governance_affirmation_affirm": ("governance/affirmation/{stale}/affirm/", {}),
        "governance_affirmation_retire": ("governance/affirmation/{stale}/retire/", {"reason": "old"}),
    },
    Act.GOVERN: {
        "describe": ("describe/", {"name": f"{OWN} {{number}}"}),
        "settings": ("settings/", {"before": "{{}}", "session_idle_hours-value": "{hours}"}),
        "secrets": ("secrets/", {**_NO_SECRETS, "do": "save", "allow": "nothing{number}"}),
        "members": ("members/", {"name": "{person}", "role": "viewer"}),
        "memories_memory_erase": _erase,
        "memories_memory_allow": lambda world: _allow(_MEMORY, world.memory(attributes={"check": _CHECK})),
        "decisions_decision_allow": lambda world: _allow(_DECISION, world.decision(checks=[_CHECK])),
        "governance_redaction_run": _redact,
        "governance_rollback_run": _roll,
        "governance_rollback_undo": ("governance/rollback/{rollback}/undo/", {}),
        "governance_retentionrun_run": _retain,
        "governance_retentionrun_policy": (
            "governance/retentionrun/policy/",
            {**_NO_RULES, "purge_deleted_after_days": "1{number}"},
        ),
        "governance_hold_place": ("governance/hold/place/", {"stream_id": "#{memory}", "reason": "r"}),
        "governance_hold_lift": ("governance/hold/{hold}/lift/", {"reason": "done"}),
    },
}
_HUB_FORMS: dict[Act, dict[str, Form]] = {
    Act.VIEW: {"tokens": ("tokens", {**TOKEN, "for": "me", "name": "a{number}"})},  # everyone's own
    Act.GOVERN: {
        "new-project": ("new/project", {"id": "p{number}"}),
        "new-org": ("new/organisation", {"id": "o{number}"}),
    },
    Act.ADMINISTER: {
        "people": ("people", {"name": "u{number}", "role": "member"}),
        "change-person": ("people/{person}/deactivate", {}),
        "revoke-token": ("tokens/{token}/revoke", {}),
        "plan-job": ("jobs/plan", {"job": "expire turns", "every": "day", "at": "{hour}:30"}),
    },
}
FORMS = {name: (act, form) for act, forms in _FORMS.items() for name, form in forms.items()}
HUB_FORMS = {name: (act, form) for act, forms in _HUB_FORMS.items() for name, form in forms.items()}
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
    None inbox graph pick blame audit imports findings worth replay as_of live task live_task stream index login logout
    password_change password_change_done autocomplete jsi18n view_on_site app_list
    sessions_app_commit_sha sessions_app_session_named sessions_app_turn_stream memories_memory_versions
    memories_memory_compare memories_contextpack_now memories_pack_compare memories_review_item
    governance_affirmation_item governance_affirmation_group
    """.split()
)
NO_FORM = {
    "import": "needs an import from another tool; tests/admin/test_site.py refuses it to viewers",
    "import_start": "needs a repository; tests/transfer/test_start.py",
    "memories_review_undo": "undoes one's own verdict, so it needs one first; it writes as verdicts do",
    "memories_review_undo_chosen": "the same",
    "memories_memory_anchors": "needs a working tree; tests/memories/test_anchoring.py",
    "decisions_decision_anchors": "the same",
    "governance_affirmation_group_verdict": "needs a working tree; tests/governance/test_anchored.py",
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
    "admin": "leads to the only project that the person sees, or to home",
    "find": "read here",
    "jobs": "read here",
}
# Pages that each model has: of Django's own, those without a form here are without the right to add or change.
_OF_MODELS = re.compile(r"_(changelist|add|history|delete|change|export|lookup)$")
_SAMPLES = {
    "version": "1",
    "form": "jsonl",
    "app_label": "memories",
    "url": "none/",
    "content_type_id": "1",
    "task_id": "none",
    "batch_id": "1",
    "amendment_id": "1",
    "number": "1",
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
            yield _filled(path, defaultdict(lambda: "1", name="own-viewer", what="role"))


def page(path: str, place: str, act: Act = Act.VIEW) -> Request:
    lists_places = not place and path.startswith(("people", "tokens"))
    return Request(f"{BEFORE[place]}{path}", "GET", f"{BEFORE[place]}{path}", act, place, lists_places=lists_places)


class _Made(dict[str, str]):
    """What the world makes, by the name of its method; each time a new one."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __missing__(self, name: str) -> str:
        return str(getattr(self._world, name)())


def form(world: World, name: str, place: str = OWN) -> Request:
    """Return a form to send; of a place, or of the hub."""
    act, template = FORMS[name] if place else HUB_FORMS[name]
    path, fields = template if isinstance(template, tuple) else template(world)
    if isinstance(template, tuple):
        made = _Made(world)
        path = path.format_map(made)
        fields = {key: value.format_map(made) if isinstance(value, str) else value for key, value in fields.items()}
    request = page(f"admin/{path}" if place else path, place, act)
    return replace(request, label=f"{name} of {place or 'the hub'}", method="POST", body=fields, writes=True)
