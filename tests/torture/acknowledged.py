"""What processes acknowledged, and whether a home that was opened after an attack still has it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from decisions.models import Decision
from memories.models import Memory
from memories.schemas import MemoryWrite
from memories.search.index import index_problem
from memories.services import write_memory
from memoryhub.core import log
from memoryhub.core.backends.sqlite import files
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, project_store, use_store
from memoryhub.ops.backups.service import backups_of, require_sound
from memoryhub.ops.jobs.status import models_behind
from tests.support import forget_all_stores
from tests.torture.workload import PROJECT


@dataclass(frozen=True, slots=True)
class Kept:
    version: int
    title: str
    content: str
    deleted: bool = False
    secret: str = ""
    """A text with a secret in it, where the content is what became of that."""


@dataclass(slots=True)
class Expected:
    memories: dict[int, Kept] = field(default_factory=dict)
    decisions: dict[int, str] = field(default_factory=dict)
    backups: list[str] = field(default_factory=list)
    token: str = ""
    agent_tokens: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """Texts that were redacted."""
    going: set[str] = field(default_factory=set)
    """Texts that are being redacted: found or not."""
    restoring: int | None = None
    """A position: a restore is going on, which takes out what came after it."""

    def __bool__(self) -> bool:
        return bool(self.memories or self.decisions)


def expected(lines: Iterable[dict[str, Any]]) -> Expected:
    result = Expected()
    for line in lines:
        _note(result, line)
    return result


def _note(result: Expected, line: dict[str, Any]) -> None:
    match line:
        case {"kind": "memory", "id": key, **values}:
            result.memories[key] = Kept(**values)
        case {"kind": "decision", "id": key, "title": title}:
            result.decisions[key] = title
        case {"kind": "backup", "path": path}:
            result.backups.append(path)
        case {"kind": "token", "text": text}:
            result.token = text
        case {"kind": "agent token", "name": name}:
            result.agent_tokens.add(name)
        case {"kind": "redacting", "text": text}:
            result.going.add(text)
        case {"kind": "redacted", "text": text}:
            result.going.discard(text)
            result.gone.add(text)
        case {"kind": "restoring", "position": position}:
            result.restoring = position
        case {"kind": "restored", "position": position}:
            result.restoring = None
            result.memories = {key: kept for key, kept in result.memories.items() if key <= position}
            result.decisions = {key: title for key, title in result.decisions.items() if key <= position}
        case _:
            raise ValueError(f"no note of this kind: {line}")


SECRETS = ("token", "secret_key", "redaction.key")
_SECRET_LENGTH = 43
"""256 bits in base 64."""


def problems(home: Path, wanted: Expected, *, thorough: bool = False) -> list[str]:
    """Return what is wrong with a home in which ``wanted`` was acknowledged. Writes to it.

    Args:
        home: as it was found.
        wanted: what it must have.
        thorough: also apply the whole log again and compare every read model.
    """
    store = project_store(PROJECT)
    with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(home)):
        try:
            found = [*_secret_files(home, wanted), *_hub_database(home, wanted), *_backups(home, store, wanted)]
            if path_of(store).exists():
                with use_store(store), use_origin(source="service"):
                    found += [*_soundness(store), *_losses(wanted), *_remains(store, wanted)]
            elif wanted:
                found.append("the store is gone")
            with use_store(store, create=True), use_origin(source="service"):
                found += _next_write(store, thorough=thorough)
        finally:
            forget_all_stores()
    return found


def _secret_files(home: Path, wanted: Expected) -> list[str]:
    found = []
    for name in SECRETS:
        path = home / name
        if path.exists() and len(path.read_text().strip()) < _SECRET_LENGTH:
            found.append(f"{name} has {path.stat().st_size} bytes")
    token = home / "token"
    if wanted.token and (not token.exists() or token.read_text().strip() != wanted.token):
        found.append("the token is not the one that was in use")
    return found


def _hub_database(home: Path, wanted: Expected) -> list[str]:
    found = []
    for name in ("hub.db", "jobs.db"):
        if (home / name).exists():
            with closing(sqlite3.connect(home / name)) as database:
                found += [text for (text,) in database.execute("PRAGMA integrity_check") if text != "ok"]
    if wanted.agent_tokens:
        with closing(sqlite3.connect(home / "hub.db")) as database:
            names = {name for (name,) in database.execute("SELECT name FROM memoryhub_agenttoken")}
        found += [f"the token {name!r} is lost" for name in wanted.agent_tokens - names]
    return found


def _backups(home: Path, store: StoreId, wanted: Expected) -> list[str]:
    found = [f"{path} is lost" for path in wanted.backups if not (home / path).exists()]
    for path in backups_of(store, ".db"):
        with files.opened(path):
            require_sound()
    return found


def _soundness(store: StoreId) -> list[str]:
    # Here: to import it is to declare the statements of SQLite, which are not those of a run on PostgreSQL.
    from memoryhub.core.backends.sqlite.structure import damage

    found = [damage(), index_problem(), *(f"{name} is behind by {lag}" for name, lag in models_behind().items())]
    chain = log.verify()
    if not chain.ok:
        found.append(chain.describe())
    found.append(_anchor_problem(store))
    if rows.fetch("SELECT 1 FROM sqlite_master WHERE name = 'search_fts'"):
        rows.execute("INSERT INTO search_fts (search_fts) VALUES ('integrity-check')")
    return [problem for problem in found if problem]


def _anchor_problem(store: StoreId) -> str:
    """Return why writes would be refused, were they refused for an anchor that is not that of the log."""
    try:
        anchor = read_anchor(store)
    except ValueError:
        return f"the anchor cannot be read: {anchor_path(store).read_bytes()[:40]!r}"
    if anchor is None or not anchor.position:
        return ""
    digest = rows.fetch("SELECT chain_digest FROM raw_events WHERE position = %s", [anchor.position])
    if not digest:
        return f"the anchor is ahead: #{anchor.position}, the log ends at #{log.head()[0]}"
    return "" if digest[0][0] == anchor.digest else f"the anchor differs at #{anchor.position}"


def _losses(wanted: Expected) -> list[str]:
    memories = {memory.id: memory for memory in Memory.objects.all()}
    decisions = dict(Decision.objects.values_list("id", "title"))
    lost = {
        key: f"memory #{key} {kept.title!r} is {_state(memories.get(key))}, not {kept}"
        for key, kept in wanted.memories.items()
        if not _is_kept(memories.get(key), kept, wanted)
    }
    for key, title in wanted.decisions.items():
        if decisions.get(key) != title:
            lost[key] = f"decision #{key} {title!r} is lost"
    return [problem for key, problem in lost.items() if wanted.restoring is None or key <= wanted.restoring]


def _state(memory: Memory | None) -> str:
    return f"{memory.title!r} v{memory.version}" if memory else "lost"


def _is_kept(memory: Memory | None, kept: Kept, wanted: Expected) -> bool:
    if memory is None or memory.version < kept.version or (kept.deleted and memory.deleted_at is None):
        return False
    title, content = kept.title, kept.content
    for text in wanted.gone | wanted.going:
        if text in title + content:
            return text in wanted.going or text not in memory.title + memory.content
    return memory.title == title and (memory.version > kept.version or memory.content == content)


def _remains(store: StoreId, wanted: Expected) -> list[str]:
    return [
        f"{path.name} has {text!r}, which was redacted"
        for text in wanted.gone
        for path in path_of(store).parent.iterdir()
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def _next_write(store: StoreId, *, thorough: bool) -> list[str]:
    before, _ = log.head()
    written = write_memory(command=MemoryWrite(title="after the attack", content="it goes on"))
    found = [] if written.id > before else [f"#{written.id} was given out before"]
    anchor = read_anchor(store)
    if anchor is None or anchor.position != log.head()[0]:
        found.append("the anchor does not follow the log")
    if thorough:
        found += [f"{table.table} is not what its log says" for table in log.rebuild().tables if not table.identical]
    return found
