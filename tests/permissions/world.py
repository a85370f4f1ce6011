"""Projects, organisations and the global scope with an entry of each kind.

The name of a place is part of every text in it, so that an answer with the name is an answer about the place.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.test import Client

from memoryhub import env
from memoryhub.core import clock
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.registry.tokens import TokenCreate, create_token
from memoryhub.rest.auth import read_token

# The project that the requests are about, one of the same organisation, and one of another
OWN, SISTER, OTHER = "quartz", "gneiss", "basalt"
OWN_ORG, OTHER_ORG = "ferrum", "argentum"
ORG_OF = {OWN: OWN_ORG, SISTER: OWN_ORG, OTHER: OTHER_ORG}
GLOBAL = "cosmos"
LATER = "2099-01-01T00:00:00Z"
# As long as the names that exist: an answer may not tell them apart
NOWHERE = {OWN: "zircon", SISTER: "zircon", OTHER: "zircon", OWN_ORG: "osmium", OTHER_ORG: "rhodiums"}
PLACES = {name: f"project:{name}" for name in ORG_OF} | {
    OWN_ORG: f"org:{OWN_ORG}",
    OTHER_ORG: f"org:{OTHER_ORG}",
    GLOBAL: "global",
}


class World:
    """A home with all places; requests of the hub's own token prepare what a test needs."""

    def __init__(self) -> None:
        self._count = itertools.count(1)
        self.ids: dict[str, dict[str, Any]] = {}
        self._client = Client(headers={"host": "localhost"})
        # Where memories are written that are made for no scope of their own
        self.scope = "project"

    def build(self) -> None:
        for org in (OWN_ORG, OTHER_ORG):
            self.post("orgs", {"id": org, "name": f"{org} org", "description": f"about {org}"})
        for project, org in ORG_OF.items():
            root = str(_repository(project))
            self.post("projects", {"id": project, "name": f"{project} name", "org_id": org, "root_path": root})
            for scope, name in (("org", org), ("global", GLOBAL)):
                self.memory(project, title=f"{name} rule {self.number()}", content=f"{name} text", scope=scope)
            self.ids[project] = self._fill_a_little(project) if project == SISTER else self._fill(project)

    def number(self) -> int:
        return next(self._count)

    def send(self, method: str, path: str, body: Any = None, *, session: str = "") -> Any:
        headers = {"authorization": f"Bearer {read_token()}"} | ({"x-session-id": session} if session else {})
        content = "" if body is None else json.dumps(body)
        answer = self._client.generic(method, f"/api/v1/{path}", content, "application/json", headers=headers)
        assert answer.status_code < 400, (method, path, answer.content[:600])
        return json.loads(answer.content) if answer.content else None

    def post(self, path: str, body: Any = None) -> Any:
        return self.send("POST", path, {} if body is None else body)

    # What requests need; each new one has texts of its own.

    def memory(self, project: str = OWN, **fields: Any) -> int:
        number, session = self.number(), fields.pop("_session", "")
        scope = fields.setdefault("scope", self.scope)
        place = {"org": ORG_OF[project], "global": GLOBAL}.get(scope, project)
        given = {"title": f"{place} memory {number}", "content": f"{place} text {number}", **fields}
        return int(self.send("POST", f"projects/{project}/memories", given, session=session)["id"])

    def pending(self, project: str = OWN) -> int:
        """Write a memory that waits for a review."""
        self.send("PATCH", f"projects/{project}/settings", {"settings": {"review_policy": "all"}})
        memory = self.memory(project)
        self.send("PATCH", f"projects/{project}/settings", {"settings": {"review_policy": "off"}})
        return memory

    def stale(self, project: str = OWN) -> int:
        return self.decision(project)

    def expired(self, project: str = OWN) -> int:
        """Delete a memory so long ago that retention deletes it for good."""
        with clock.frozen(clock.now() - timedelta(days=2000)):
            return self.deleted(project)

    def asked(self, path: str) -> Any:
        """Return the answer that asks to confirm a deletion."""
        headers = {"authorization": f"Bearer {read_token()}"}
        return json.loads(self._client.delete(f"/api/v1/{path}", headers=headers).content)

    def erasable(self, scope: str = "project") -> dict[str, Any]:
        """Delete a memory that a pack quotes; return what erases it, confirmed already."""
        place = {"project": OWN, "org": OWN_ORG, "global": GLOBAL}[scope]
        content = f"{place} text to erase {self.number()}"
        memory = self.memory(title=f"{place} memory {self.number()}", content=content, scope=scope)
        self.send("GET", f"projects/{OWN}/context?{urlencode({'query': content})}")
        path = f"projects/{OWN}/memories/{memory}?scope={scope}"
        self.send("DELETE", path)
        token = self.asked(f"{path}&permanent=true")["confirm_token"]
        return {"id": memory, "scope": scope, "permanent": True, "confirm_token": token}

    def hour(self) -> int:
        return self.number() % 24

    def hours(self) -> int:
        return self.number() % 600 + 2

    def redactable(self) -> tuple[str, str]:
        """Return a text that a memory has, and the token that confirms its redaction."""
        text = f"out of place {self.number()}"
        self.memory(content=f"a text that is {text}")
        return text, str(self.post(f"projects/{OWN}/redactions/preview", {"text": text})["confirm_token"])

    def person(self) -> str:
        return str(add_person(command=PersonAdd(name=f"p{self.number()}", role="member")).username)

    def member(self, place: str) -> str:
        name = self.person()
        kind = "orgs" if place in ORG_OF.values() else "projects"
        self.send("PUT", f"{kind}/{place}/members/{name}", {"role": "viewer"})
        return name

    def token(self) -> str:
        return create_token(command=TokenCreate(name=f"t{self.number()}"), by="owner")[0].name

    def revised(self, project: str = OWN) -> int:
        memory = self.memory(project)
        self.send("PATCH", f"projects/{project}/memories/{memory}", {"content": f"{project} text, revised"})
        return memory

    def scratch(self, project: str = OWN) -> int:
        """Write a memory of a session alone."""
        session = self.session(project)
        return self.memory(project, scope="session", _session=session)

    def deleted(self, project: str = OWN) -> int:
        memory = self.memory(project)
        self.send("DELETE", f"projects/{project}/memories/{memory}")
        return memory

    def tagged(self, project: str = OWN) -> int:
        return self.memory(project, tags=["spare"])

    def conflict(self, project: str = OWN, **fields: Any) -> int:
        memory = self.memory(project, **fields)
        for text in ("this", "that"):
            body = {"content": f"{project} {text}", "base_version": 1, **fields}
            answer = self.send("PATCH", f"projects/{project}/memories/{memory}", body)
        return int(answer["conflict"])

    def amended(self, project: str = OWN) -> dict[str, int]:
        """Write a memory, and one that amends it."""
        number = self.number()
        older = self.memory(project, content=f"{project} pumps {number} start on Fridays.")
        newer = self.memory(project, content=f"{project} pumps {number} start on Tuesdays now, not on Fridays.")
        return {"newer_id": newer, "older_id": older}

    def linked(self) -> dict[str, Any]:
        """Return an edge between two new decisions."""
        earlier = self.decision()
        return {"id": self.decision(refines=[earlier]), "relation": "refines", "to": earlier}

    def decision(self, project: str = OWN, **fields: Any) -> int:
        given = {
            "title": f"{project} decision {self.number()}",
            "chosen": f"{project} way",
            "files": ["x.py"],
            **fields,
        }
        return int(self.post(f"projects/{project}/decisions", given)["id"])

    def relation(self, project: str = OWN) -> int:
        ends = {"source": str(self.memory(project)), "target": str(self.memory(project))}
        answer = self.post(f"projects/{project}/relations", {**ends, "relation": "related_to"})
        return int(answer["id"])

    def session(self, project: str = OWN, state: str = "") -> str:
        name = f"{project}-s{self.number()}"
        self.post(f"projects/{project}/sessions", {"session_id": name, "purpose": f"{project} purpose"})
        if state:
            self.post(f"projects/{project}/sessions/{name}/{state}")
        return name

    def turn(self, project: str = OWN) -> dict[str, str]:
        begun = self.post(f"projects/{project}/turns/begin", {"session_id": self.session(project)})
        return {name: begun[name] for name in ("session_id", "turn_id", "ack_token")}

    def no_iteration(self, project: str = OWN) -> None:
        """Complete the active iteration: there is one at a time."""
        for active in self.send("GET", f"projects/{project}/iterations?status=active")["results"]:
            self.post(f"projects/{project}/iterations/{active['id']}/complete", {"outcome": "done"})

    def iteration(self, project: str = OWN) -> int:
        self.no_iteration(project)
        given = {"command": "feature", "description": f"{project} iteration"}
        return int(self.post(f"projects/{project}/iterations", given)["id"])

    def commit(self, project: str = OWN) -> str:
        sha = f"{self.number():040x}"
        commit = {"sha": sha, "message": f"{project} commit", "author": "Ada", "committed_at": "2026-11-20T12:00:00Z"}
        self.post(f"projects/{project}/commits", [commit])
        return sha

    def hold(self, project: str = OWN) -> int:
        body = {"stream_id": f"memory:{self.memory(project)}", "reason": f"{project} lawsuit"}
        return int(self.post(f"projects/{project}/holds", body)["id"])

    def rollback(self, project: str = OWN) -> int:
        chosen = {"session_id": self.written_in_session(project), "include_people": True}
        body = {**chosen, "confirm_token": self.rollback_token(chosen, project)}
        return int(self.post(f"projects/{project}/rollbacks", body)["id"])

    def written_in_session(self, project: str = OWN) -> str:
        session = self.session(project)
        self.memory(project, _session=session)
        return session

    def rollback_token(self, chosen: dict[str, Any], project: str = OWN) -> str:
        return str(self.post(f"projects/{project}/rollbacks/preview", chosen)["confirm_token"])

    def retention_run(self, project: str = OWN) -> int:
        return int(self.post(f"projects/{project}/retention/run", self.retention_plan(project))["id"])

    def retention_plan(self, project: str = OWN) -> dict[str, str]:
        """Return a plan that deletes something: what was deleted, as if it were years ago."""
        self.deleted(project)
        digest = self.send("GET", f"projects/{project}/retention?now={LATER}")["digest"]
        return {"digest": str(digest), "now": LATER}

    def _fill_a_little(self, project: str) -> dict[str, Any]:
        return {"memory_id": self.memory(project), "decision_id": self.decision(project), **self.turn(project)}

    def _fill(self, project: str) -> dict[str, Any]:
        """Write one of each kind, and return their ids by the names of the routes' parameters."""
        kinds = {kind: self.memory(project, kind=kind) for kind in ("guideline", "knowledge", "tool")}
        self.post(f"projects/{project}/tags", {"name": "spare", "description": f"{project} tag"})
        turn = self.turn(project)
        event = {"type": "message.user", "payload": {"content": f"{project} prompt"}, **turn}
        self.post(f"projects/{project}/turns/append", event)
        self.deleted(project)
        run = self.retention_run(project)
        memory = self.memory(project)
        self.send("GET", f"projects/{project}/context?query={project}")
        pack = self.send("GET", f"projects/{project}/context?query={project}")["meta"]["pack"]
        return {
            **kinds,
            "memory_id": memory,
            "conflict_id": self.conflict(project),
            "decision_id": self.decision(project),
            "relation_id": self.relation(project),
            "session_id": turn["session_id"],
            "turn_id": turn["turn_id"],
            "iteration_id": self.iteration(project),
            "sha": self.commit(project),
            "hold_id": self.hold(project),
            "rollback_id": self.rollback(project),
            "pack_id": pack,
            "entity_id": memory,
            "run_id": run,
        }


Values = dict[str, Any]
Maker = Callable[[World], Values]
COMMIT = {"message": "m", "author": "Ada", "committed_at": "2026-11-20T12:00:00Z"}


def _iteration(world: World) -> str:
    world.no_iteration()
    return "feature"


# A valid value for a field that a request requires, by the field's name
_SAMPLES: dict[str, Callable[[World], Any]] = {
    "project_id": lambda _: OWN,
    "org_id": lambda _: OWN_ORG,
    "code": lambda _: "invalid",
    "command": _iteration,
    "conflict_id": World.conflict,
    "decision_id": World.decision,
    "entity_id": World.decision,
    "hold_id": World.hold,
    "iteration_id": World.iteration,
    "memory_id": World.memory,
    "relation_id": World.relation,
    "rollback_id": World.rollback,
    "session_id": World.session,
    "person": World.person,
    "source": lambda world: str(world.memory()),
    "target": lambda world: str(world.memory()),
    "to": World.decision,
    "stream_id": lambda world: f"memory:{world.memory()}",
    "sha": lambda world: f"{world.number():040x}",
    "id": lambda world: f"new{world.number()}",
    "name": lambda world: f"name{world.number()}",
    **dict.fromkeys(
        ("title", "content", "text", "description", "chosen", "reason"), lambda world: f"{OWN} text {world.number()}"
    ),
    "payload": lambda _: {"content": "c"},
    "relation": lambda _: "related_to",
    "resolution": lambda _: "keep_b",
    "role": lambda _: "viewer",
    "settings": lambda world: {"purge_deleted_after_days": 1000 + world.number()},
    "tags": lambda _: ["n"],
    "type": lambda _: "message.user",
    "verdict": lambda _: "rejected",
}


def sample(world: World, field: str) -> Any:
    """Return a valid value for a field that a request requires; create what it names."""
    assert field in _SAMPLES, f"add a sample of the field {field!r} here, or a value for its request"
    return _SAMPLES[field](world)


def _repository(project: str) -> Path:
    """Return a new folder with a file that git has one commit of."""
    folder = env.home() / "work" / project
    folder.mkdir(parents=True)
    (folder / "x.py").write_text(f"# {project} file\n")
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "x.py"), (*who, "commit", "-qm", f"{project} commit")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder
