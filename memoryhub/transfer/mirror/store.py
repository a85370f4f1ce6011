"""What a mirror shows of the current store, and what an edited file changes in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from typing import Any

from decisions.events import DECISION_RECORDED
from decisions.exporting import madr_document, yaml_value
from decisions.models import Decision
from decisions.selectors import views as decision_views
from memories.events import MEMORIES, MEMORY_SEEN, MEMORY_WRITTEN, USE, MemoryState
from memories.models import EndType, Memory, MemoryScope, MemoryVersion, Relation, ReviewState
from memories.validity.models import Provenance
from memories.validity.provenance import NOT_LEARNT_HERE
from memoryhub.core import log
from memoryhub.core.events.event_types import EventType, names_where
from memoryhub.core.log.erase import PAYLOAD_REDACTED
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.text import flat
from memoryhub.transfer.authorship import Authorship, authorships
from memoryhub.transfer.folder import FolderForm, vault_tag
from memoryhub.transfer.mirror.files import (
    DECISION,
    MEMORY,
    PROVENANCE,
    REVISION,
    MirrorDocument,
    formatted,
)
from sessions_app.events import WORK
from sessions_app.events.client import ACTIONS, MESSAGES

KEY = "mirror:"
_BATCH = 500
_OPTIONAL = ("topic_key", "source", "attributes")
_LISTED = ("id", "version", "title", "kind", "type", "tags", *_OPTIONAL, "content_hash", "review")
_VERSION = _LISTED.index("version")
TITLE = _LISTED.index("title")
PLACEHOLDER = "[REDACTED:"


def reached(*, of_memories: bool = True) -> str:
    """Return the last event of the log that can change a file, as its position and digest; or one of a decision."""
    names = names_where(lambda event_type: _matters(event_type) and (of_memories or event_type.group is not MEMORIES))
    last = log.events().of_type(*names).last()
    return f"{last.position}:{last.chain_digest}" if last else ""


def _matters(event_type: EventType[Any]) -> bool:
    is_captured = event_type.group in (MESSAGES, ACTIONS, WORK, USE) or event_type.name.startswith("turn.")
    return not is_captured and event_type.name != MEMORY_SEEN.name


def live_memories() -> Any:
    return Memory.objects.live().exclude(scope=MemoryScope.SESSION)


def with_topics(topics: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the id and the topic of the memories that have one of the topics."""
    for batch in _batches(sorted(filter(None, topics))):
        yield from live_memories().filter(topic_key__in=batch).values_list("id", "topic_key")


class MirrorListing:
    """The memories and decisions of the current store, without their texts."""

    def __init__(self) -> None:
        rows = live_memories().order_by("id").values_list(*_LISTED)
        self.memories: dict[int, tuple[Any, ...]] = {row[0]: row for row in rows}
        decisions = outside_quarantine(Decision.objects.order_by("id"))
        self.decisions: dict[int, str] = dict(decisions.values_list("id", "title"))
        # All that were ever written here, by the id that is the same in each hub
        self.memory_ids = _entity_ids(MEMORY_WRITTEN)
        self.decision_ids = _entity_ids(DECISION_RECORDED)
        self.edges: dict[int, list[tuple[str, int]]] = {}
        ends = (EndType.MEMORY, EndType.DECISION)
        relations = Relation.objects.filter(source_type=EndType.MEMORY, target_type__in=ends).order_by("relation", "id")
        for source, relation, target in relations.values_list("source_id", "relation", "target_id"):
            if source in self.memories and (target in self.memories or target in self.decisions):
                self.edges.setdefault(source, []).append((relation, target))
        self.authorships = _authorships()

    def version(self, memory_id: int) -> int:
        return int(self.memories[memory_id][_VERSION])

    def refresh(self, memory_id: int) -> None:
        """Read the row of a memory again."""
        before = self.memories.pop(memory_id, None)
        self.memories |= {row[0]: row for row in live_memories().filter(id=memory_id).values_list(*_LISTED)}
        if before and memory_id in self.memories and self.version(memory_id) != before[_VERSION]:
            self.authorships.pop(memory_id, None)  # a version that was read from the folder

    def digest(self, memory_id: int, paths: Mapping[int, str]) -> str:
        """Return a digest of everything that the file of a memory contains."""
        edges = [(relation, paths.get(target, "")) for relation, target in self.edges.get(memory_id, ())]
        parts: tuple[Any, ...] = (self.memories[memory_id], edges)
        if authorship := self.authorships.get(memory_id):
            parts += (authorship.matter(paths.get),)
        content = repr(parts).encode("utf-8", "surrogatepass")
        return blake2b(content, digest_size=16).hexdigest()


# Entries that were learnt in this hub, in a working tree. Files of other hubs keep the line that these wrote.
def _authorships() -> dict[int, Authorship]:
    events = {entity_id: entity_id for entity_id in Provenance.objects.values_list("id", flat=True)}
    versions = MemoryVersion.objects.filter(memory_id__in=Provenance.objects.values("id"))
    for memory_id, position, source in versions.order_by("version").values_list("memory_id", "id", "source"):
        events[memory_id] = 0 if source in NOT_LEARNT_HERE else position
    return authorships({entity_id: position for entity_id, position in events.items() if position})


def redacted_since(erasure: int) -> set[int]:
    """Return the ids of what had text redacted after an event of the log."""
    positions: set[int] = set()
    for payload in log.events().of_type(PAYLOAD_REDACTED).window(after=erasure).payloads().values():
        positions |= set(map(int, payload["digests"]))
    streams = log.events().at(positions).order_by().values("stream_id")
    return set(log.events().filter(stream_seq=1, stream_id__in=streams).positions())


# A memory that came from a file has the id of that file in its key; others have the id of their event
def _entity_ids(event_type: EventType[Any]) -> dict[str, int]:
    values = list(log.events().of_type(event_type).values_list("position", "event_id", "idempotency_key"))
    ids = {event_id: position for position, event_id, key in values if not (key or "").startswith(KEY)}
    for position, event_id, key in values:
        if key and key.startswith(KEY):
            uid = key.removeprefix(KEY)
            ids[event_id if uid in ids else uid] = position
    return ids


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory as its file shows it."""

    id: int
    uid: str
    version: int
    state: MemoryState
    matter: Mapping[str, Any]

    @property
    def revision(self) -> str:
        return revision(self.state)

    def text(self, document: MirrorDocument | None = None) -> str:
        """Return the file's text, with the user's own keys of the file that there is."""
        lines = document.own_lines if document else ""
        matter = {MEMORY: self.uid, REVISION: self.revision, **self.matter}
        if document and document.revision == self.revision and PROVENANCE in document.matter:
            matter.setdefault(PROVENANCE, document.matter[PROVENANCE])
        return formatted(matter, self.state.title, self.state.content, lines)


def revision(state: MemoryState) -> str:
    values = (state.kind, state.known_type, state.title, state.content, sorted(set(state.tags)), state.attributes)
    return sha256(json.dumps(values, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:12]


def load(
    ids: Iterable[int], uids: Mapping[int, str], listing: MirrorListing, paths: Mapping[int, str], form: FolderForm
) -> Iterator[Stored]:
    """Yield memories with their texts; those that are gone are left out."""
    for batch in _batches(ids):
        for memory in live_memories().filter(id__in=batch).order_by("id"):
            state = MemoryState.of_stored(vars(memory))
            matter: dict[str, Any] = {"kind": memory.kind, "type": memory.type}
            matter["tags"] = [vault_tag(tag) for tag in memory.tags] if form is FolderForm.OBSIDIAN else memory.tags
            matter |= {name: value for name in _OPTIONAL if (value := getattr(memory, name))}
            if memory.review != ReviewState.ACCEPTED:
                matter["review"] = memory.review
            if authorship := listing.authorships.get(memory.id):
                matter[PROVENANCE] = authorship.matter(paths.get)
            for relation, target in listing.edges.get(memory.id, ()):
                if target in paths:
                    path = paths[target]
                    if form is FolderForm.OBSIDIAN:
                        path = f"[[{path.removesuffix('.md')}]]"
                    matter.setdefault(relation, []).append(path)
            yield Stored(memory.id, uids[memory.id], memory.version, state, matter)


def _batches(keys: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(keys)
    while batch := list(islice(remaining, _BATCH)):
        yield batch


_MADR_LINK = re.compile(r"\[([^\]]+)\]\(\1\.md\)")


def changes_of(document: MirrorDocument, state: MemoryState) -> dict[str, Any]:
    """Return the fields of ``MemoryUpdate`` that a file sets to another value than a version has."""
    changes: dict[str, Any] = {}
    if document.title and document.title != flat(state.title).strip():
        changes["title"] = document.title
    if document.content != _as_read(state.content):
        changes["content"] = document.content
    tags = tags_of(document)
    if tags is not None and tags not in (_sorted(state.tags), _sorted(map(vault_tag, state.tags))):
        changes["tags"] = tags
    type_name = document.matter.get("type")
    if isinstance(type_name, str) and type_name.strip().lower() not in ("", state.known_type):
        changes["type"] = type_name
    attributes = document.matter.get("attributes")
    if isinstance(attributes, dict) and attributes != state.attributes:
        changes["attributes"] = {**dict.fromkeys(state.attributes), **attributes}
    return changes


def _as_read(content: str) -> str:
    return content.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


def _sorted(tags: Iterable[str]) -> list[str]:
    return sorted({tag.strip().lower() for tag in tags})


def tags_of(document: MirrorDocument) -> list[str] | None:
    """Return the tags that the front matter of a file has, or None if it has none."""
    tags = document.matter.get("tags")
    if tags is None:
        return None
    listed = tags if isinstance(tags, list) else str(tags).replace(",", " ").split()
    return _sorted(tag.removeprefix("#") for tag in map(str, listed) if tag.strip())


def find_version(memory_id: int, revision_text: str) -> int | None:
    """Return the newest version of a revision, or None."""
    if not revision_text:
        return None
    versions = MemoryVersion.objects.filter(memory_id=memory_id).order_by("-version")
    positions: dict[int, int] = dict(versions.values_list("id", "version"))
    payloads = log.events().at(positions).payloads()
    for position in sorted(payloads, reverse=True):
        payload = payloads[position]
        state = MemoryState.of_stored(payload)
        if revision(state) == revision_text:
            return positions[position]
    return None


def without_redacted(changes: Mapping[str, Any], state: MemoryState) -> dict[str, Any]:
    """Return the changes to a version that has been redacted since, with the redacted lines as they are now."""
    unredacted = dict(changes)
    if PLACEHOLDER in state.title:
        unredacted.pop("title", None)
    if "content" not in changes:
        return unredacted
    old, new = _as_read(state.content).split("\n"), changes["content"].split("\n")
    lines: list[str] = []
    for operation, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        is_redacted = operation != "equal" and any(PLACEHOLDER in line for line in old[start:end])
        lines += old[start:end] if is_redacted else new[new_start:new_end]
    unredacted["content"] = "\n".join(lines)
    if lines == old:
        del unredacted["content"]
    return unredacted


def decision_texts(
    listing: MirrorListing, uids: Mapping[int, str], paths: Mapping[int, str], form: FolderForm
) -> Iterator[tuple[int, str]]:
    """Yield the id and the text of each decision."""
    names = {decision_id: Path(path).name for decision_id, path in paths.items()}
    for batch in _batches(listing.decisions):
        for decision in decision_views(list(Decision.objects.filter(id__in=batch).order_by("id")), with_heads=False):
            text = madr_document(decision, names)
            if form is FolderForm.OBSIDIAN:
                text = _MADR_LINK.sub(r"[[\1]]", text)
            lines = f"{DECISION}: {uids[decision['id']]}\n"
            if authorship := listing.authorships.get(decision["id"]):
                lines += f"{PROVENANCE}: {yaml_value(authorship.matter(paths.get))}\n"
            yield decision["id"], text.replace("---\n", f"---\n{lines}", 1)
