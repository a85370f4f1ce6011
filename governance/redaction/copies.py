"""Copies of event text: counting them, searching files for them, scanning the log for secrets."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from governance.redaction.matching import Matcher
from governance.redaction.schemas import KeptPlace, RedactionSelect
from governance.redaction.selectors import Findings, find_places
from memories.events import CONTEXT_PACKED
from memories.services.deletion import PACK_QUESTIONS
from memoryhub import env
from memoryhub.config.current_settings import project_settings
from memoryhub.core.backends.selected import wiping
from memoryhub.core.log.digests import canonical_json
from memoryhub.core.log.views import count_views
from memoryhub.core.secrets.catalogue import lines
from memoryhub.core.slugs import DerivedNames
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, entries, position_of
from memoryhub.core.stores.store import arrival, current_store, folder_of
from memoryhub.core.text import counted
from sessions_app.spooled import find_spooled

logger = logging.getLogger(__name__)

_SCRIPT = Path(__file__).with_name("search_files.py")


@dataclass(slots=True)
class Proof:
    files: int = 0
    bytes: int = 0
    # Those that contain one of the texts
    paths: list[Path] = field(default_factory=list)
    # False if the files could not be read
    complete: bool = True


# Runs a subprocess; search_files.py says why. Never raises.
def search_folder(folder: Path, texts: Collection[str]) -> Proof:
    request = json.dumps({"folder": str(folder), "texts": sorted(texts)})
    command = [sys.executable, "-P", str(_SCRIPT)]
    try:
        ended = subprocess.run(command, input=request, capture_output=True, text=True, check=True)  # noqa: S603
        answer = json.loads(ended.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        logger.warning("%s could not be searched: %s", folder, type(error).__name__)
        return Proof(complete=False)
    return Proof(answer["files"], answer["bytes"], [Path(path) for path in answer["left"]])


_HEADERS = ("session_id", "turn_id", "actor", "idempotency_key", "trace_id")
_MOST_HEADERS = 20
_IN_ANOTHER_CASE = (
    f"SELECT count(*) FROM raw_events WHERE payload_json IS NOT NULL AND position NOT IN {IDS} "
    f"AND {position_of('%s', 'lower(payload_json)')} > 0 AND {position_of('%s', 'payload_json')} = 0"
)
_HASH = position_of("'#'", "m.key")
_COUNTS = {
    "versions of memories": f"SELECT count(*) FROM memories_memoryversion WHERE id IN {IDS}",
    "search documents": f"SELECT count(*) FROM memories_searchdocument WHERE id IN {IDS}",
    "vectors": f"SELECT count(*) FROM memories_vector WHERE document_id IN {IDS}",
    "context packs that include it": "SELECT count(*) FROM memories_contextpack p WHERE EXISTS (SELECT 1 FROM "
    f"{entries('p.marks')} m WHERE CAST(substr(m.key, {_HASH} + 1) AS integer) IN {IDS})",
}


def entities_of(positions: Sequence[int]) -> list[int]:
    return rows.column(
        "SELECT position FROM raw_events WHERE stream_seq = 1 AND stream_id IN (SELECT stream_id FROM raw_events "
        f"WHERE position IN {IDS}) ORDER BY position",
        [json.dumps(list(positions))],
    )


def count_copies(positions: Sequence[int], entities: Sequence[int]) -> dict[str, int]:
    listed = json.dumps(sorted({*positions, *entities}))
    counts = {"events of the log": len(positions)}
    for name, sql in _COUNTS.items():
        counts[name] = rows.column(sql, [listed])[0]
    counts["views of the past"] = count_views()
    return {name: count for name, count in counts.items() if count}


_NO_MARK, _NO_DIGEST = "0" * 10, "0" * 64
_PACKS = (
    "SELECT position, payload_json FROM raw_events WHERE event_type = %s AND payload_json IS NOT NULL AND position > %s"
)


def packs_without_marks(payloads: Mapping[int, Any]) -> dict[int, Any]:
    """Return the payloads of context packs that lose their digests of what is redacted.

    A digest of a line would confirm a guess of the text. The pack differs from what is composed again in any case.
    """
    ids = entities_of(list(payloads))
    references = {f"#{entity_id}" for entity_id in ids}
    # A pack can only have what was written before it
    packs = rows.fetch(_PACKS, [CONTEXT_PACKED.name, min(ids, default=0)])
    changed = {}
    for position, text in packs:
        pack = payloads.get(position) or json.loads(text)
        redacted = [key for key in pack["marks"] if key.rpartition(" ")[2] in references]
        if any(pack["marks"][key] != _NO_MARK for key in redacted):
            marks = {**pack["marks"], **dict.fromkeys(redacted, _NO_MARK)}
            changed[position] = {**pack, "marks": marks, "digest": _NO_DIGEST}
    return changed


# Headers stay: the hash chain covers them (decision 28)
def kept_headers(matcher: Matcher) -> list[KeptPlace]:
    why = "headers are part of the hash chain and can't be redacted"
    places: list[KeptPlace] = []
    for column in _HEADERS:
        for value in rows.column(f"SELECT DISTINCT {column} FROM raw_events WHERE {column} <> ''"):
            if len(places) < _MOST_HEADERS and matcher.clean_text(value, is_name=True):
                places.append(KeptPlace(where=f"{column} of events", why=why))
                break
    return places


def kept_fields(findings: Findings) -> list[KeptPlace]:
    why = "the field has a fixed form that allows no placeholder"
    return [KeptPlace(where=f"{name} of {type_name}", why=why) for type_name, name in sorted(findings.stay)]


def kept_other_case(selection: RedactionSelect, findings: Findings) -> list[KeptPlace]:
    """Return how many events have the text in another case only; only ``ignore_case`` selects those."""
    if selection.text is None or selection.ignore_case or selection.narrowed:
        return []
    written = json.dumps(selection.text, ensure_ascii=False)[1:-1]
    lowered = json.dumps(selection.text.lower(), ensure_ascii=False)[1:-1]
    count = rows.fetch(_IN_ANOTHER_CASE, [json.dumps(findings.positions), lowered, written])[0][0]
    count += sum(lowered in canonical_json(payload).lower() for payload in findings.payloads().values())
    if not count:
        return []
    why = "only names derived from the text are redacted in lower case; preview again with ignore_case"
    return [KeptPlace(where=f"{counted(count, 'event')} with it in another case", why=why)]


def kept_unselected(selection: RedactionSelect, matcher: Matcher) -> list[KeptPlace]:
    if not selection.narrowed:
        return []
    places: list[KeptPlace] = []
    packs = sum(bool(matcher.clean_text(question)) for _, question in rows.fetch(PACK_QUESTIONS))
    if packs and CONTEXT_PACKED.name not in selection.event_types:
        where = f"the query of {counted(packs, 'context pack')}"
        places.append(KeptPlace(where=where, why="not selected; preview again without ids and search"))
    waiting = len(find_spooled(matcher.clean_waiting).lines)
    if waiting:
        why = "only a redaction of the whole store cleans the spool; preview again without a selection"
        places.append(KeptPlace(where=f"{counted(waiting, 'hook event')} in the spool", why=why))
    return places


def kept_files(proof: Proof, *, wiped: bool) -> list[KeptPlace]:
    folder = folder_of(current_store())
    mirrors = set(_mirror_states())  # ``kept_mirrors`` names them
    places = []
    for path in proof.paths:
        if path not in mirrors:
            where = str(path.relative_to(env.home()))
            places.append(KeptPlace(where=where, why=_why(path, folder, wiped=wiped)))
    if not proof.complete:
        why = "it could not be searched completely; run the redaction again"
        places.append(KeptPlace(where="the home folder", why=why))
    return places


def kept_in_store(texts: Collection[str], *, wiped: bool) -> list[KeptPlace]:
    """Return the places of the current store that contain one of the texts, where the store is not a file."""
    why = "other transactions of the server may still read it; the running hub removes it within an hour"
    if wiped:
        why = "outside the selection, in a field of a fixed form, or in a header"
    return [KeptPlace(where=where, why=why) for where in wiping.still_in(texts, wiped=wiped)]


def unproven() -> list[KeptPlace]:
    places = wiping.unproven()
    if origin := arrival():
        why = "`memory-hub move PROJECT --confirm` compares both and removes it"
        places.append((f"the old place of this store, {origin['address']}", why))
    return [KeptPlace(where=where, why=why) for where, why in places]


def kept_mirrors(texts: Collection[str], names: DerivedNames) -> list[KeptPlace]:
    """Return the mirrors of the current store (decision 66) that have one of the texts or a name derived from one."""
    places = []
    why = "the next run of `memory-hub mirror` removes it; the history of git keeps what was committed"
    for folder, state in sorted(_mirrors().items()):
        files = set(search_folder(folder, texts).paths) if folder.is_dir() else set()
        files |= {path for path in folder.rglob("*.md") if _has_name(path.relative_to(folder), names)}
        if files:
            places.append(KeptPlace(where=f"{counted(len(files), 'file')} of the mirror {folder}", why=why))
        entries = (*state["memories"].values(), *state["decisions"].values())
        paths = [*(entry["path"] for entry in entries), *state["orphans"]]
        if any(_has_name(Path(path), names) for path in paths):
            places.append(KeptPlace(where=f"the state of the mirror {folder}, in the names of files", why=why))
    return places


def _has_name(path: Path, names: DerivedNames) -> bool:
    return any(names.spans(part, is_name=True) for part in path.parts)


def _mirrors() -> dict[Path, dict[str, Any]]:
    mirrors = {}
    for path in _mirror_states():
        try:
            state = json.loads(path.read_bytes())
            if state["store"] == current_store().alias:
                mirrors[Path(state["folder"])] = state
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s could not be read: %s", path, type(error).__name__)
    return mirrors


def _mirror_states() -> list[Path]:
    return sorted((env.home() / "mirrors").glob("*.json"))


def _why(path: Path, folder: Path, *, wiped: bool) -> str:
    if "before-restore" in path.name or "before-rebuild" in path.name:
        return (
            "a copy of the store from before a restore or rebuild; the next backup of that store removes it, "
            "or delete it yourself"
        )
    if env.home() / "backups" in path.parents or "backup" in path.name:
        return "an earlier backup; later backups replace it, or delete it yourself"
    if folder not in path.parents:
        return "belongs to another store or to a client's spool; redact it there too"
    if wiped:
        return "elsewhere in this store: outside the selection, in a field of a fixed form, or in a header"
    return "other processes use the store; the running server cleans it within an hour"


# In ``store_meta``: the scan is about this copy of the store, so it is no event
_KEY = "looked_for_secrets"


# The last scan of the whole log
@dataclass(frozen=True, slots=True)
class Look:
    # Digest of the rules it used
    rules: str
    # The last event scanned; later ones were sanitised by rules at least as new
    position: int
    finds: int
    events: int

    @property
    def is_current(self) -> bool:
        return self.rules == rules_digest()


def rules_digest() -> str:
    settings = project_settings().model_dump(mode="json", include={"secret_rules", "secret_allow", "mask_personal"})
    return hashlib.sha256(f"{_pack_digest()} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()[:16]


@cache
def _pack_digest() -> str:
    return hashlib.sha256(json.dumps(list(lines()), sort_keys=True).encode()).hexdigest()


def last_look() -> Look | None:
    stored = rows.meta(_KEY)
    return Look(**json.loads(stored)) if stored else None


def look_through(progress: Callable[[int], None] = lambda _: None) -> Look:
    """Scan the log of the current store with today's rules and store the counts; changes no event.

    Args:
        progress: called with the position of each event; an exception from it ends the scan without a result.
    """
    digest = rules_digest()
    findings = find_places(RedactionSelect(rules=True), progress=progress)
    last = rows.column("SELECT coalesce(max(position), 0) FROM raw_events")[0]
    look = Look(digest, last, findings.count, len(findings.matches))
    rows.put_meta(_KEY, json.dumps(asdict(look)))
    return look
