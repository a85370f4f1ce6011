from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue

from memories.models import (
    AmendmentKind,
    AnchorSource,
    EndType,
    MemoryKind,
    MemoryScope,
    RelationType,
    Resolution,
    ReviewState,
)
from memories.pack_sorts import reference_of, sort_of
from memoryhub.core.entities import define_entity
from memoryhub.core.events.event_types import EventGroup, Retention, TurnRule, define_event
from memoryhub.core.events.rollback import NOTHING_DEPENDS, reverses, sets_aside
from memoryhub.core.kinds import DEFAULT_KIND, KINDS
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import STORED, DerivedName, EventRef, Generated, GitSha, Instant, Payload, Sha256, StoredTag
from memoryhub.core.stores.store import SLUG

AnchorDigest = Annotated[str, Generated("(?:[0-9a-f]{32})?", "a digest of 32 hexadecimal digits")]


# Type of a memory's link to a file or folder that it governs
GOVERNS = "governs"


class ResourceLink(Payload):
    uri: str = Field(min_length=1, max_length=2_000)
    type: str = Field("related", min_length=1, max_length=64)


class MemoryState(Payload):
    kind: MemoryKind = MemoryKind(DEFAULT_KIND)
    # Empty means the kind's default
    type: str = ""
    scope: MemoryScope = MemoryScope.PROJECT
    title: str = Field(min_length=1, max_length=300)
    content: str = Field(min_length=1)
    tags: list[StoredTag] = Field(default_factory=list)
    topic_key: DerivedName | None = None
    author: str = ""
    source: DerivedName = ""
    resource_links: list[ResourceLink] = Field(default_factory=list)
    attributes: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def known_type(self) -> str:
        return self.type or KINDS[self.kind].default_type

    def columns(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in MemoryState.model_fields},
            "type": self.known_type,
            "tags": sorted(set(self.tags)),
            "resource_links": [link.model_dump() for link in self.resource_links],
        }

    @classmethod
    def of_stored(cls, values: Mapping[str, Any]) -> Self:
        """Return the state of values that were checked when written; later secret rules do not refuse them."""
        return cls.model_validate({name: values[name] for name in cls.model_fields if name in values}, context=STORED)

    def with_changes(self, **changes: Any) -> MemoryState:
        """Return the state with values of a command, which were checked with the command."""
        return MemoryState.of_stored({**self.columns(), **changes})


class ReviewStatus(Payload):
    """Review state of a memory (decision 24)."""

    state: ReviewState = ReviewState.ACCEPTED
    # Why it is proposed, or was rejected
    reason: str = ""
    # The version in effect while a later one is proposed
    accepted_version: int | None = None


# The status of every memory where the project asks for no review
ACCEPTED = ReviewStatus()


class AnchorRecord(Payload):
    """A part of the code that an entry is about."""

    # From the top of the working tree
    path: DerivedName = Field(min_length=1, max_length=1_000)
    # Name of a definition; "" for lines or a whole file
    symbol: DerivedName = ""
    # Numbers of the lines, from 1; 0 for a whole file
    first: int = 0
    last: int = 0
    # Digest of the lines
    digest: AnchorDigest = ""
    # Words of the entry that the file had, such as names and values
    words: list[str] = Field(default_factory=list)
    made_from: AnchorSource = AnchorSource.TEXT


class ProvenanceRecord(Payload):
    """The state of the working tree in which an entry was written, and the code that it is about."""

    # "" where it is not known, or does not matter
    commit: GitSha | Literal[""] = ""
    branch: DerivedName = ""
    # Whether the session had edited files that were not committed yet
    has_edits: bool = False
    anchors: list[AnchorRecord] = Field(default_factory=list)


class EntryAnchored(Payload):
    """A person or a client changed the anchors of an entry, or they were renewed."""

    entity_id: EventRef
    anchors: list[AnchorRecord]
    reason: str = ""


class AmendmentFound(Payload):
    """An entry seems to amend or contradict an earlier one."""

    newer_id: EventRef
    older_id: EventRef
    kind: AmendmentKind
    # Explicit words of the same author on the same subject
    is_certain: bool = False


class AmendmentJudged(Payload):
    amendment_id: EventRef
    is_accepted: bool
    reason: str = ""


class CopiedFrom(StrEnum):
    """What a text was copied from: a page, the output of a tool, or what another tool had."""

    WEB = "web"
    TOOL = "tool"
    IMPORT = "import"


class MemoryWritten(MemoryState):
    # Set only if the memory is not accepted
    review: ReviewStatus | None = None
    # Set only if the text is a copy
    copied_from: CopiedFrom | None = None
    provenance: ProvenanceRecord | None = None
    # When another tool wrote it, and last changed it; set only if it is imported
    written_at: Instant | None = None
    revised_at: Instant | None = None


class MemoryRevised(MemoryState):
    """A new version, made from the version that the writer had read."""

    memory_id: EventRef
    version: int
    base_version: int
    reason: str = ""
    # The version the writer had not seen, if it was written within the conflict window (decision 15)
    conflicts_with: int | None = None
    # Set only if the memory is not accepted
    review: ReviewStatus | None = None
    # Set only if the text is a copy
    copied_from: CopiedFrom | None = None
    # When another tool changed it; set only if it is imported
    revised_at: Instant | None = None
    provenance: ProvenanceRecord | None = None


class Verdict(StrEnum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    # Undoes the previous verdict
    WITHDRAWN = "withdrawn"


class Merged(Payload):
    memory_id: EventRef
    # After the merge
    version: int
    before_version: int
    before: ReviewStatus


class MemoryReviewed(Payload):
    memory_id: EventRef
    verdict: Verdict
    # The version that was reviewed
    version: int
    # The current version after the verdict: another one if it was edited, or an earlier one became current again
    stands: int
    reason: str = ""
    before: ReviewStatus
    after: ReviewStatus
    merged: Merged | None = None


class MemoryTouched(Payload):
    memory_id: EventRef
    reason: str = ""


class ConflictResolved(Payload):
    conflict_id: EventRef
    memory_id: EventRef
    resolution: Resolution
    # Current after the resolution
    version: int
    # The memory created from the earlier version, where both were kept
    split_id: EventRef | None = None
    reason: str = ""
    # Empty: the actor of the event
    resolved_by: str = ""


class TagCreated(Payload):
    name: StoredTag
    category: str = Field(min_length=1, max_length=64)
    description: str = ""


class RelationCreated(Payload):
    relation: RelationType
    source_type: EndType
    source_id: EventRef
    target_type: EndType
    target_id: EventRef
    # Who related them, if a client acts for several
    author: str = ""


class RelationDeleted(Payload):
    relation_id: EventRef
    reason: str = ""


ItemReference = Annotated[
    str,
    Generated(r"[a-z_]+ (?:\d{1,9}-\d{1,9} )?[a-z]*#\d{1,20}", "a section and an id, such as 'facts #412'"),
]
ItemName = Annotated[str, Generated(r"[a-z]*#\d{1,20}", "a reference such as #412")]
ItemMark = Annotated[str, Generated("[0-9a-f]{10}", "a mark of 10 hexadecimal digits")]
StoreName = Annotated[
    str, Generated(f"(?:global|org|project):(?:{SLUG.pattern})", "a scope and a store, such as project:alpha")
]


class ContextPacked(Payload):
    """A context pack was sent. Its text is not stored but composed again from the logs (decision 16)."""

    session_id: str = ""
    query: str = ""
    max_tokens: int
    tokens: int
    digest: Sha256
    marks: dict[ItemReference, ItemMark]
    # Position in the log of each store, nearest store first
    positions: list[tuple[StoreName, int]]
    packed_at: Instant
    # The time zone of its dates; earlier versions used UTC
    zone: str = "UTC"
    # What the working tree was about, of a pack without a question
    work: str = ""
    # The session whose work it begins with
    progress_of: str = ""
    # Whether nothing stored was about the query
    absent: bool = False
    # What was known against its entries, by their references: of those that it gave with that remark, and of those
    # that it only listed for a recheck
    remarks: dict[ItemName, str] = Field(default_factory=dict)
    rechecks: dict[ItemName, str] = Field(default_factory=dict)


def _about_pack(payload: Mapping[str, Any]) -> str:
    keys = sorted(payload.get("marks", {}))
    return sort_of(keys).summary([reference_of(key) for key in keys], payload.get("query", ""))


def filled(**fields: Any) -> dict[str, Any]:
    """Return the fields that are neither None nor empty: a payload stores only what is set."""
    return {name: value for name, value in fields.items() if value}


MEMORIES = EventGroup("memories", "Memories", 50, "memory")
LINKS = EventGroup("links", "Tags and relations", 55)
USE = EventGroup("use", "Use of memories", 85)

_CREATED = sets_aside("memories_created", "Memories written", order=10, by="delete", thing="memory", is_cited=True)
_REVISED = reverses(
    "memories_revised", "Memories revised", order=20, by="revert", thing="memory", is_hidden=True, is_cited=True
)
_DELETED = reverses("memories_deleted", "Memories deleted", order=30, by="restore", thing="memory")
_RESTORED = reverses("memories_restored", "Memories restored", order=40, by="delete", thing="memory")
_REVIEWED = reverses("reviews", "Memories reviewed", order=50, by="review", thing="memory")
_RESOLVED = sets_aside("resolutions", "Conflicts resolved", order=70, follows_stream=True)

_define_change = partial(define_event, group=MEMORIES, retention=Retention.WITH_STREAM, changes_stream=True)

MEMORY_WRITTEN = _define_change(
    "memory.written",
    MemoryWritten,
    label="Memory written",
    rollback=_CREATED,
    nouns=("memory", "memories"),
    is_tallied=True,
)
MEMORY_REVISED = _define_change("memory.revised", MemoryRevised, label="Memory revised", rollback=_REVISED)
MEMORY_SEEN = define_event(
    "memory.seen",
    MemoryTouched,
    label="Memory seen again",
    group=MEMORIES,
    retention=Retention.WITH_STREAM,
    rollback=NOTHING_DEPENDS,
    changes_stream=False,
)
MEMORY_DELETED = _define_change("memory.deleted", MemoryTouched, label="Memory deleted", rollback=_DELETED)
MEMORY_RESTORED = _define_change("memory.restored", MemoryTouched, label="Memory restored", rollback=_RESTORED)
MEMORY_REVIEWED = _define_change(
    "memory.reviewed", MemoryReviewed, label="Memory reviewed", rollback=_REVIEWED, act=Act.REVIEW
)
CONFLICT_RESOLVED = _define_change(
    "conflict.resolved", ConflictResolved, label="Conflict resolved", rollback=_RESOLVED, own_icon="dot"
)

_DESCRIBED = sets_aside("tags", "Tags described", order=140)
_RELATED = sets_aside("relations", "Relations made", order=120)
_UNRELATED = reverses("relations_removed", "Relations taken away", order=130, by="relate")

_define_link = partial(define_event, group=LINKS, retention=Retention.KEPT, changes_stream=False)

TAG_CREATED = _define_link("tag.created", TagCreated, label="Tag created", rollback=_DESCRIBED)
RELATION_CREATED = _define_link("relation.created", RelationCreated, label="Relation created", rollback=_RELATED)
RELATION_DELETED = _define_link("relation.deleted", RelationDeleted, label="Relation deleted", rollback=_UNRELATED)

ENTRY_ANCHORED = define_event(
    "entry.anchored",
    EntryAnchored,
    label="Anchors changed",
    group=MEMORIES,
    retention=Retention.WITH_STREAM,
    rollback=sets_aside("anchors", "Anchors changed", order=212),
    changes_stream=False,
)
_define_amendment = partial(
    define_event, group=LINKS, retention=Retention.KEPT, rollback=NOTHING_DEPENDS, changes_stream=False
)
AMENDMENT_FOUND = _define_amendment("amendment.found", AmendmentFound, label="Amendment found")
AMENDMENT_JUDGED = _define_amendment("amendment.judged", AmendmentJudged, label="Amendment judged", act=Act.REVIEW)

CONTEXT_PACKED = define_event(
    "context.packed",
    ContextPacked,
    label="Context packed",
    is_local=True,  # a pack is composed again from positions of the log
    group=USE,
    retention=Retention.PACK,
    rollback=NOTHING_DEPENDS,
    changes_stream=False,
    act=Act.VIEW,
    turn=TurnRule.OPTIONAL,
    own_icon="note",
    nouns=("context pack", "context packs"),
    about=_about_pack,
)


define_entity(
    "memory", "SELECT id, title, kind, deleted_at IS NOT NULL AS deleted FROM memories_memory", shown_by="memory_get"
)
