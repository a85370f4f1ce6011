"""A valid request for every route of REST that changes something in a project, with the act that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memoryhub.core.permissions import Act
from tests.permissions.world import OWN, World

# A write: the act that it needs in the project, and its parameters, created for each request
Parts = dict[str, Any]
Maker = Callable[[World], Parts]


def _session(world: World) -> Parts:
    return {"session_id": world.session()}


def new_memory(world: World, **fields: Any) -> Parts:
    return {"body": {"title": f"{OWN} new {world.number()}", "content": "x", **fields}}


def _roll(world: World) -> Parts:
    chosen = {"session_id": world.written_in_session(), "include_people": True}
    return {"body": {**chosen, "confirm_token": world.rollback_token(chosen)}}


def _redact(world: World) -> Parts:
    chosen = {"text": f"out of place {world.number()}"}
    world.memory(content=f"a text that is {chosen['text']}")
    shown = world.post(f"projects/{OWN}/redactions/preview", chosen)
    return {"body": {**chosen, "confirm_token": shown["confirm_token"]}}


def _retain(world: World) -> Parts:
    return {"body": world.retention_plan()}


def erase(world: World, scope: str) -> Parts:
    query = world.erasable(scope)
    return {"memory_id": query.pop("id"), "query": {**query, "permanent": "true"}}


def _iteration(world: World) -> Parts:
    world.no_iteration()
    return {"body": {"command": "feature"}}


PROJECT = "projects/{project_id}"
MEMORIES = f"{PROJECT}/memories"
# By method and path; for a route with several ways in, a word after a blank
WRITES: dict[str, tuple[Act, Maker]] = {
    f"post {MEMORIES}": (Act.WRITE, new_memory),
    f"patch {MEMORIES}/{{memory_id}}": (
        Act.WRITE,
        lambda world: {"memory_id": world.memory(), "body": {"content": "new", "base_version": 1}},
    ),
    f"delete {MEMORIES}/{{memory_id}}": (Act.WRITE, lambda world: {"memory_id": world.memory()}),
    f"post {MEMORIES}/{{memory_id}}/restore": (Act.WRITE, lambda world: {"memory_id": world.deleted()}),
    f"post {PROJECT}/hooks/{{client}}/{{event}}": (
        Act.WRITE,
        lambda world: {
            "client": "claude-code",
            "event": "UserPromptSubmit",
            "body": {"data": {"session_id": f"h{world.number()}", "cwd": "/tmp", "prompt": "what"}},
        },
    ),
    f"post {PROJECT}/tags": (Act.WRITE, lambda world: {"body": {"name": f"t{world.number()}", "description": "d"}}),
    f"post {MEMORIES}/{{memory_id}}/tags": (
        Act.WRITE,
        lambda world: {"memory_id": world.memory(), "body": {"tags": ["n"]}},
    ),
    f"delete {MEMORIES}/{{memory_id}}/tags": (
        Act.WRITE,
        lambda world: {"memory_id": world.tagged(), "query": {"tags": "spare"}},
    ),
    f"post {PROJECT}/relations": (
        Act.WRITE,
        lambda world: {
            "body": {"source": str(world.memory()), "relation": "related_to", "target": str(world.memory())}
        },
    ),
    f"delete {PROJECT}/relations/{{relation_id}}": (Act.WRITE, lambda world: {"relation_id": world.relation()}),
    f"post {MEMORIES}/{{memory_id}}/review": (
        Act.REVIEW,
        lambda world: {"memory_id": world.memory(), "body": {"verdict": "rejected"}},
    ),
    f"post {PROJECT}/conflicts/{{conflict_id}}/resolve": (
        Act.WRITE,
        lambda world: {"conflict_id": world.conflict(), "body": {"resolution": "keep_b"}},
    ),
    f"post {PROJECT}/decisions": (
        Act.WRITE,
        lambda world: {"body": {"title": f"{OWN} choice {world.number()}", "chosen": "c"}},
    ),
    f"post {PROJECT}/decisions/{{decision_id}}/supersede": (
        Act.WRITE,
        lambda world: {"decision_id": world.decision(), "body": {"chosen": "d"}},
    ),
    f"post {PROJECT}/decisions/{{decision_id}}/status": (
        Act.WRITE,
        lambda world: {"decision_id": world.decision(), "body": {"status": "deprecated"}},
    ),
    f"post {PROJECT}/decisions/{{decision_id}}/edges": (
        Act.WRITE,
        lambda world: {
            "decision_id": world.decision(),
            "body": {"relation": "depends_on", "to": world.decision()},
        },
    ),
    f"post {PROJECT}/decisions/{{decision_id}}/evidence": (
        Act.WRITE,
        lambda world: {"decision_id": world.decision(), "body": {"notes": [f"seen {world.number()}"]}},
    ),
    f"post {PROJECT}/sessions": (
        Act.WRITE,
        lambda world: {"body": {"session_id": f"n{world.number()}", "purpose": "p"}},
    ),
    f"post {PROJECT}/sessions/{{session_id}}/end": (
        Act.WRITE,
        lambda world: {**_session(world), "body": {"summary": "s"}},
    ),
    f"post {PROJECT}/sessions/{{session_id}}/pause": (Act.WRITE, _session),
    f"post {PROJECT}/sessions/{{session_id}}/resume": (
        Act.WRITE,
        lambda world: {"session_id": world.session(state="pause")},
    ),
    f"post {PROJECT}/commits": (
        Act.WRITE,
        lambda world: {
            "body": [
                {
                    "sha": f"{world.number():040x}",
                    "message": "m",
                    "author": "Ada",
                    "committed_at": "2026-11-20T12:00:00Z",
                }
            ]
        },
    ),
    f"post {PROJECT}/commits/read": (
        Act.WRITE,
        lambda world: {
            "body": {
                "sha": f"{world.number():040x}",
                "message": "m",
                "author": "Ada",
                "committed_at": "2026-11-20T12:00:00Z",
                "files": ["a.py"],
            }
        },
    ),
    f"post {PROJECT}/turns/begin": (Act.WRITE, lambda world: {"body": _session(world)}),
    f"post {PROJECT}/turns/append": (
        Act.WRITE,
        lambda world: {"body": {"type": "message.user", "payload": {"content": "c"}, **world.turn()}},
    ),
    f"post {PROJECT}/turns/end": (Act.WRITE, lambda world: {"body": world.turn()}),
    f"post {PROJECT}/iterations": (Act.WRITE, _iteration),
    f"post {PROJECT}/iterations/{{iteration_id}}/advance": (
        Act.WRITE,
        lambda world: {"iteration_id": world.iteration(), "body": {"completed": "one", "phase": "build"}},
    ),
    f"post {PROJECT}/iterations/{{iteration_id}}/complete": (
        Act.WRITE,
        lambda world: {"iteration_id": world.iteration(), "body": {"outcome": "done"}},
    ),
    f"post {PROJECT}/stale/{{entity_id}}/affirm": (
        Act.WRITE,
        lambda world: {"entity_id": world.decision(), "body": {}},
    ),
    f"patch {PROJECT}": (Act.GOVERN, lambda world: {"body": {"description": f"d{world.number()}"}}),
    f"patch {PROJECT}/settings": (
        Act.GOVERN,
        lambda world: {"body": {"settings": {"purge_deleted_after_days": 1000 + world.number()}}},
    ),
    f"post {PROJECT}/redactions": (Act.GOVERN, _redact),
    f"post {PROJECT}/retention/run": (Act.GOVERN, _retain),
    f"post {PROJECT}/holds": (
        Act.GOVERN,
        lambda world: {"body": {"stream_id": f"memory:{world.memory()}", "reason": "r"}},
    ),
    f"delete {PROJECT}/holds/{{hold_id}}": (
        Act.GOVERN,
        lambda world: {"hold_id": world.hold(), "query": {"reason": "done"}},
    ),
    f"post {PROJECT}/rollbacks": (Act.GOVERN, _roll),
    f"post {PROJECT}/rollbacks/{{rollback_id}}/undo": (
        Act.GOVERN,
        lambda world: {"rollback_id": world.rollback(), "body": {}},
    ),
}
