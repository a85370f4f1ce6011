"""Secrets of a dozen types, generated from one seed, each in a text that such a secret comes in. None was ever real."""

from __future__ import annotations

import base64
import random
import string

_chance = random.Random(2026)


def _made(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_chance.choice(alphabet) for _ in range(count))


SECRETS = {
    "aws": ("AKIA" + _made(16, string.ascii_uppercase + "234567"), "deploy with {}"),
    "github": ("ghp_" + _made(36), "git clone https://{}@github.com/a/b"),
    "gitlab": ("glpat-" + _made(20), "curl --header 'PRIVATE-TOKEN: {}' https://gitlab.example"),
    "slack": ("xoxb-123456789012-1234567890123-" + _made(24), "SLACK={}"),
    "stripe": ("sk_live_" + _made(24), "stripe.api_key = '{}'"),
    "openai": ("sk-proj-" + _made(48), "OPENAI_API_KEY={}"),
    "google": ("AIza" + _made(35), "key={}"),
    "password": (_made(18), "export DB_PASSWORD={}"),
    "url": (_made(16), "psql postgres://ada:{}@db.example/x"),
    "bearer": (
        ".".join(["eyJ" + _made(30), "eyJ" + _made(60), _made(43)]),
        "curl -H 'Authorization: Bearer {}' https://api.example",
    ),
    "private": (base64.b64encode(_made(48).encode()).decode(), "<private>{}</private>"),
}
TEXTS = {name: text.format(secret) for name, (secret, text) in SECRETS.items()}
