"""What was made of events: every copy of a text that there is, and those that stay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from governance.redaction.finding import Findings
from governance.redaction.matching import Matcher
from governance.redaction.proof import Proof
from governance.redaction.schemas import KeptPlace, RedactionSelect
from memories.events import CONTEXT_PACKED
from memoryhub import env
from memoryhub.core import rows
from memoryhub.core.dialect import IDS, entries, position_of
from memoryhub.core.log.views import count_views
from memoryhub.core.stores import current_store
from memoryhub.core.wording import counted
from sessions_app.spooled import find_spooled

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
