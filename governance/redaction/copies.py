"""What was made of events: every copy of a text that there is, and those that stay."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from governance.redaction.finding import Findings, find_places
from governance.redaction.matching import Matcher
from governance.redaction.schemas import KeptPlace, RedactionSelect
from memories.events import CONTEXT_PACKED
from memoryhub import env
from memoryhub.config.project_settings import project_settings
from memoryhub.core.log.views import count_views
from memoryhub.core.secrets.catalogue import lines
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, entries, position_of, upsert
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import counted
from sessions_app.spooled import find_spooled

logger = logging.getLogger(__name__)

_READER = Path(__file__).with_name("reading.py")


@dataclass(slots=True)
class Proof:
    """What reading every file found."""

    files: int = 0
    bytes: int = 0
    left: list[Path] = field(default_factory=list)
    """Those that hold one of the texts."""
    complete: bool = True
    """False where the files could not be read."""


def search_home(texts: Collection[str]) -> Proof:
    """Read every file of the home folder for any of the texts, as they are and as JSON writes them; never raises.

    Another process reads: see there why.
    """
    asked = json.dumps({"folder": str(env.home()), "texts": sorted(texts)})
    command = [sys.executable, "-P", str(_READER)]
    try:
        ended = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)  # noqa: S603
        found = json.loads(ended.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        logger.warning("the home folder could not be searched: %s", type(error).__name__)
        return Proof(complete=False)
    return Proof(found["files"], found["bytes"], [Path(each) for each in found["left"]])


_HEADERS = ("session_id", "turn_id", "actor", "idempotency_key", "trace_id")
_MOST_HEADERS = 20
_QUESTIONS = "SELECT query FROM memories_contextpack WHERE query <> ''"
_HASH = position_of("'#'", "m.key")
_COUNTS = {
    "versions of memories": f"SELECT count(*) FROM memories_memoryversion WHERE id IN {IDS}",
    "search documents": f"SELECT count(*) FROM memories_searchdocument WHERE id IN {IDS}",
    "vectors": f"SELECT count(*) FROM memories_vector WHERE document_id IN {IDS}",
    "context packs that told of it": "SELECT count(*) FROM memories_contextpack p WHERE EXISTS (SELECT 1 FROM "
    f"{entries('p.marks')} m WHERE CAST(substr(m.key, {_HASH} + 1) AS integer) IN {IDS})",
}


def entities_of(positions: Sequence[int]) -> list[int]:
    """Return the ids of what the events are about: those of their streams' first events."""
    found = rows.fetch(
        "SELECT position FROM raw_events WHERE stream_seq = 1 AND stream_id IN (SELECT stream_id FROM raw_events "
        f"WHERE position IN {IDS}) ORDER BY position",
        [json.dumps(list(positions))],
    )
    return [row[0] for row in found]


def count_copies(positions: Sequence[int], entities: Sequence[int]) -> dict[str, int]:
    """Return how many copies there are of what the events say, by what each is; those that are none are left out."""
    listed = json.dumps(sorted({*positions, *entities}))
    counts = {"events of the log": len(positions)}
    counts |= {name: rows.fetch(sql, [listed])[0][0] for name, sql in _COUNTS.items()}
    counts["views of the past"] = count_views()
    return {name: count for name, count in counts.items() if count}


def kept_headers(matcher: Matcher) -> list[KeptPlace]:
    """Return the names in the headers of events that hold what is to go: the chain is made over them."""
    kept: list[KeptPlace] = []
    for column in _HEADERS:
        for (value,) in rows.fetch(f"SELECT DISTINCT {column} FROM raw_events WHERE {column} <> ''"):
            if len(kept) < _MOST_HEADERS and matcher.clean_text(value):
                kept.append(
                    KeptPlace(where=f"{column} of events", why="headers are in the chain and cannot be redacted")
                )
                break
    return kept


def kept_fields(findings: Findings) -> list[KeptPlace]:
    """Return the fields that hold it and stay, because only certain words or numbers may stand there."""
    why = "it has a fixed form, and would be none without it"
    return [KeptPlace(where=f"{name} of {type_name}", why=why) for type_name, name in sorted(findings.stay)]


def kept_unselected(selection: RedactionSelect, matcher: Matcher) -> list[KeptPlace]:
    """Return where the text is outside the selection, in what the hub keeps besides the selected events."""
    if not selection.narrowed:
        return []
    kept: list[KeptPlace] = []
    packs = sum(bool(matcher.clean_text(query)) for (query,) in rows.fetch(_QUESTIONS))
    if packs and CONTEXT_PACKED.name not in selection.event_types:
        where = f"the question of {counted(packs, 'context pack')}"
        kept.append(KeptPlace(where=where, why="it was not selected; look again without ids and search"))
    waiting = len(find_spooled(matcher.clean_waiting).lines)
    if waiting:
        where = f"{counted(waiting, 'event')} of hooks in the spool"
        kept.append(KeptPlace(where=where, why="only a redaction of the whole store takes it out there; look again"))
    return kept


def kept_files(proof: Proof, *, wiped: bool) -> list[KeptPlace]:
    """Return the files that hold it still, with what to do about each.

    Args:
        proof: what reading them found.
        wiped: whether the store's own files were written anew.
    """
    own = current_store().path.parent
    kept = [KeptPlace(where=str(path.relative_to(env.home())), why=_why(path, own, wiped=wiped)) for path in proof.left]
    if not proof.complete:
        kept.append(
            KeptPlace(where="the home folder", why="it could not be read through, so nothing is proven; look again")
        )
    return kept


def _why(path: Path, own: Path, *, wiped: bool) -> str:
    if "before-restore" in path.name or "before-rebuild" in path.name:
        return (
            "the store as it was before a restore or a rebuild; "
            "it goes when the next backup of that store is made, or delete it"
        )
    if env.home() / "backups" in path.parents or "backup" in path.name:
        return "a backup from before; it goes when the next one of that store is made, or delete it"
    if own not in path.parents:
        return "of another store, or what a client has left to be taken in; redact it there too"
    if wiped:
        return "it stands elsewhere in this store: in what was not selected, in a field that stays, or in a name"
    return "others held on to the store; what is left there goes within the hour while the hub is served"


_KEY = "looked_for_secrets"
"""In ``store_meta``: it is of this copy of the store alone, and no event."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the last look through the whole log found."""

    rules: str
    """A digest of the rules that it was made with."""
    position: int
    """Up to where in the log; what was written since was sanitised by rules as new as these."""
    finds: int
    events: int

    @property
    def is_current(self) -> bool:
        """Whether the rules are still those of today."""
        return self.rules == rules_digest()


def rules_digest() -> str:
    """Return a digest of the rules that hold in the current store now: the pack's, and its own."""
    settings = project_settings().model_dump(mode="json", include={"secret_rules", "secret_allow"})
    return hashlib.sha256(f"{_pack_digest()} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()[:16]


@cache
def _pack_digest() -> str:
    return hashlib.sha256(json.dumps(list(lines()), sort_keys=True).encode()).hexdigest()


def last_look() -> Look | None:
    """Return what the last look found, or None where there was none."""
    found = rows.fetch("SELECT value FROM store_meta WHERE key = %s", [_KEY])
    return Look(**json.loads(found[0][0])) if found else None


def look_through(progress: Callable[[int], None] = lambda _: None) -> Look:
    """Look through the current store's log with the rules of today, and keep what was found; changes no event.

    Args:
        progress: called with the position of each event that was read; what it raises ends the look without a result.
    """
    digest = rules_digest()
    findings = find_places(RedactionSelect(rules=True), progress=progress)
    last = rows.fetch("SELECT coalesce(max(position), 0) FROM raw_events")[0][0]
    look = Look(digest, last, findings.count, len(findings.found))
    rows.execute(upsert("store_meta", "key", ["value"]), [_KEY, json.dumps(asdict(look))])
    return look
