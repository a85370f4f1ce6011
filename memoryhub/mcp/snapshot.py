"""Answer a connection's first messages from the last run's snapshot, before anything is imported. Stdlib only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path

from memoryhub import env
from memoryhub.core.disk import replacing

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import

if TYPE_CHECKING:
    from memoryhub.mcp.jsonrpc import Message


TEST_TOOLS_VARIABLE = "MEMORY_HUB_TEST_TOOLS"

# Protocol revision -> method -> result as JSON text
Answers = dict[str, dict[str, str]]

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
# Id under which an answered opening is replayed to the server; its second answer is dropped.
REPLAY_ID = "memory-hub:replayed-opening"
# The field of each list
LIST_METHODS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
# Required in lists by the newest revision; the SDK removes it for others
FRESH = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("memoryhub", "sessions_app", "memories", "decisions", "governance")
_DISTRIBUTIONS = ("django", "mcp", "mcp_types", "pydantic", "pydantic_core")
_SKIPPED_FOLDERS = frozenset({"migrations", "__pycache__", "templates", "static"})


def load(profile: str, key: list[str]) -> Answers | None:
    try:
        snapshot = json.loads(_snapshot_path(profile).read_bytes())
        return snapshot["answers"] if snapshot["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(profile: str, key: list[str], answers: Answers) -> None:
    path = _snapshot_path(profile)
    env.prepare_home()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with replacing(path, synced=False) as file:
        file.write(json.dumps({"key": key, "answers": answers}).encode())


def _snapshot_path(profile: str) -> Path:
    return env.home() / "cache" / f"mcp-{profile}.json"


def current_key() -> list[str]:
    """Return the cache key: everything that the answers depend on."""
    key = [sys.version, os.environ.get(TEST_TOOLS_VARIABLE, ""), *_installed()]
    for package in _PACKAGES:
        key.extend(_sources(str(_ROOT / package)))
    return key


def _installed() -> Iterator[str]:
    # The names of the metadata folders contain the versions.
    for folder in filter(None, sys.path):
        with suppress(OSError):
            for name in sorted(os.listdir(folder)):  # noqa: PTH208  (twice as fast)
                if name.endswith(".dist-info") and name.partition("-")[0].lower() in _DISTRIBUTIONS:
                    yield f"{folder}/{name}"


def _sources(folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED_FOLDERS:
                yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                stat = entry.stat()
                yield f"{entry.path} {stat.st_size} {stat.st_mtime_ns}"


class _Era(Enum):
    UNOPENED = "unopened"
    HANDSHAKE = "handshake"
    MODERN = "modern"
    # Everything goes to the server.
    SERVER = "server"


class OpeningStep:
    """What to do with a message: send a result (JSON text), pass messages to the server, or both."""

    __slots__ = ("for_server", "result")

    def __init__(self, result: str | None, *for_server: Message) -> None:
        self.result = result
        self.for_server = for_server


class Opening:
    def __init__(self, answers: Answers | None) -> None:
        self._answers = answers or {}
        self._era = _Era.UNOPENED if answers else _Era.SERVER
        self._version = ""

    def take(self, message: Message) -> OpeningStep:
        if "id" not in message or "method" not in message:
            return OpeningStep(None, message)
        opens = self._era is _Era.UNOPENED
        if opens:
            self._open(message)
        result = None
        if self._is_plain(message, opens=opens):
            result = self._answers.get(self._version, {}).get(message["method"])
        if result is None:
            if opens:
                self._era = _Era.SERVER
            return OpeningStep(None, message)
        if opens:
            return OpeningStep(result, {**message, "id": REPLAY_ID})
        return OpeningStep(result)

    def _open(self, message: Message) -> None:
        params = message.get("params") or {}
        meta = params.get("_meta")
        if message["method"] == "initialize" and _is_handshake(params):
            self._era = _Era.HANDSHAKE
            self._version = handshake_version(params["protocolVersion"])
        elif isinstance(meta, dict) and _is_modern_envelope(meta):
            self._era = _Era.MODERN
            self._version = meta[_VERSION_KEY]

    def _is_plain(self, message: Message, *, opens: bool) -> bool:
        params = message.get("params")
        meta = (params or {}).get("_meta")
        if self._era is _Era.HANDSHAKE:
            if message["method"] == "initialize":
                return opens
            return _is_bare(params) and _is_plain_meta(meta)
        return self._era is _Era.MODERN and _is_bare(params) and _is_modern_envelope(meta)


def handshake_version(offered: object) -> str:
    """Return the revision of a handshake: the client's, or the newest one."""
    return str(offered) if offered in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]


def _is_handshake(params: Message) -> bool:
    capabilities = params.get("capabilities")
    return (
        params.keys() <= {"protocolVersion", "capabilities", "clientInfo"}
        and isinstance(params.get("protocolVersion"), str)
        and isinstance(capabilities, dict)
        and all(isinstance(value, dict) for value in capabilities.values())
        and _is_implementation(params.get("clientInfo"))
    )


def _is_implementation(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("version"), str)
        and all(isinstance(part, str) for part in value.values())
    )


def _is_modern_envelope(meta: object) -> bool:
    return (
        isinstance(meta, dict)
        and meta.get(_VERSION_KEY) in MODERN_VERSIONS
        and isinstance(meta.get(_CAPABILITIES_KEY), dict)
        and all(isinstance(value, dict) for value in meta[_CAPABILITIES_KEY].values())
        and (_CLIENT_KEY not in meta or _is_implementation(meta[_CLIENT_KEY]))
    )


def _is_plain_meta(meta: object) -> bool:
    if meta is None:
        return True
    return isinstance(meta, dict) and _VERSION_KEY not in meta and isinstance(meta.get("progressToken", ""), int | str)


def _is_bare(params: object) -> bool:
    # No parameter but _meta: nothing that could change the answer.
    if params is None:
        return True
    return isinstance(params, dict) and params.keys() <= {"_meta"} and isinstance(params.get("_meta", {}), dict)
