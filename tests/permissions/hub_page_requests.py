"""A request for every page of the hub, and a valid form for each that changes something."""

from __future__ import annotations

from memoryhub.core.permissions import Act
from tests.permissions.page_requests import Form, Maker, patterns
from tests.permissions.world import World

_URLS = "memoryhub.urls"
TOKEN = {"reach": "hub", "verbs": "admin", "days": "9"}

# Of the hub: the act, the address, the fields
FORMS: dict[str, tuple[Act, Maker]] = {
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
READS = (
    "",
    "find",
    "find?q=text",
    "find?q=text&fragment=1",
    "find?q=memory&from=/p/quartz/admin/",
    "jobs",
    "people",
    "tokens",
    "help/index.md",
    "new/project",
)
OTHERS = {
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


def uncovered() -> list[str]:
    known = {*FORMS, *OTHERS}
    return [name for path, name in patterns(_URLS) if not path.startswith("api/") and name not in known]


def form(world: World, name: str) -> Form:
    act, maker = FORMS[name]
    path, fields = maker(world)
    return Form(name, act, path, fields)
