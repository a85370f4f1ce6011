"""Import the records of a source into the current store: a preview, or a batch that can be undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice

from pydantic import ValidationError

from governance.imports import end_import, import_batch
from memories.duplicates import ExistingMemories
from memories.events import MEMORY_WRITTEN, MemoryWritten
from memories.importing.files import without_deleted
from memories.kinds import check_attributes, check_type
from memories.models import Memory
from memories.pack.echo import is_echo
from memories.projectors.memories import content_hash
from memories.schemas import MAX_CONTENT, MemoryWrite
from memories.schemas.links import LinkStatus, RelationCreate
from memories.services import write_memories
from memories.services.relations import create_relation
from memoryhub.core import log
from memoryhub.core.errors import HubError
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.text import flat, shortened
from memoryhub.core.validation import explain
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record

_BATCH = 500
_MAX_TITLE = 200
_MAX_KEY = 200
_MAX_PLACE = 1_000
_NOT_STATE = {"if_exists", "named", "related_chunks", "idempotency_key"}
# Texts that are left out, and named in a report
_MOST_NAMED = 100
Progress = Callable[[int], None]


@dataclass
class Report:
    """What an import does, or would do, with each record."""

    created: int = 0
    revised: int = 0
    unchanged: int = 0
    # Exact copies, in the source or in the store
    duplicates: int = 0
    # Deleted by a person since an earlier import
    deleted: int = 0
    sessions: int = 0
    relations: int = 0
    # Types of the secrets that are masked, with the number of texts
    secrets: Counter[str] = field(default_factory=Counter)
    # By the source's names of projects
    projects: Counter[str] = field(default_factory=Counter)
    left_out: list[LeftOut] = field(default_factory=list)
    left_out_count: int = 0
    # The batch, None for a preview
    batch: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        names = ("created", "revised", "unchanged", "duplicates", "deleted", "sessions", "relations", "left_out_count")
        return {name: value for name in names if (value := getattr(self, name))}

    def leave(self, place: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < _MOST_NAMED:
            self.left_out.append(LeftOut(place, why))


def preview_import(records: Iterable[Record], *, tool: str) -> Report:
    """Return what ``run_import`` would do; writes nothing."""
    plan = _Plan(records, tool)
    for batch in plan.batches():
        for command in batch:
            plan.report.secrets.update(log.prepare(MEMORY_WRITTEN, _state(command)).redactions)
    return plan.report


def run_import(records: Iterable[Record], *, tool: str, place: str, progress: Progress = lambda _: None) -> Report:
    """Import records as one batch. Records of an earlier import are revised where they differ.

    What was written before an error stays, and can be undone with the batch; importing again writes the rest.
    """
    plan = _Plan(records, tool)
    report = plan.report
    with import_batch(tool=tool, place=shortened(flat(place), _MAX_PLACE)) as report.batch:
        done = 0
        for batch in plan.batches():
            for result in write_memories(commands=batch):
                report.secrets.update(result.redacted)
            progress(done := done + len(batch))
        report.relations = _relate(plan.relations)
        end_import(report.batch, report.counts)
    return report


class _Plan:
    """Decides what becomes of each record; ``batches`` yields what has to be written."""

    def __init__(self, records: Iterable[Record], tool: str) -> None:
        self._records = iter(records)
        self._tool = tool
        self._texts: set[str] = set()
        self.report = Report()
        # (topic of the source, relation, topic of the target)
        self.relations: list[tuple[str, str, str]] = []

    def batches(self) -> Iterator[list[MemoryWrite]]:
        while records := list(islice(self._records, _BATCH)):
            commands = [command for record in records if (command := self._command(record))]
            present = without_deleted(commands)
            self.report.deleted += len(commands) - len(present)
            yield self._differing(present)

    def _command(self, record: Record) -> MemoryWrite | None:
        if isinstance(record, LeftOut):
            self.report.leave(record.place, record.why)
            return None
        if not isinstance(record, MemoryRecord):
            return None
        self.report.projects[record.project] += 1
        why = self._refused(record)
        if why:
            self.report.leave(record.place or record.key, why)
            return None
        topic = topic_of(self._tool, record.key)
        self.relations += [(topic, relation, topic_of(self._tool, key)) for relation, key in record.relations]
        try:
            return _command(record, topic)
        except (ValidationError, HubError) as error:
            why = explain(error) if isinstance(error, ValidationError) else error.message
            self.report.leave(record.place or record.key, why)
            return None

    # Why a text is worth nothing, "" if it is worth something
    def _refused(self, record: MemoryRecord) -> str:
        if not record.content.strip():
            return "it has no text"
        if len(record.content) > MAX_CONTENT:
            return f"it is longer than {MAX_CONTENT:,} characters"
        return "it is a context pack of this hub" if is_echo(record.content) else ""

    def _differing(self, commands: Sequence[MemoryWrite]) -> list[MemoryWrite]:
        states = [_state(command) for command in commands]
        by_topic = ExistingMemories(states, "")
        by_text = ExistingMemories([state.model_copy(update={"topic_key": None}) for state in states], "")
        wanted = []
        for command, state in zip(commands, states, strict=True):
            own = by_topic.of_topic(state)
            text = f"{state.kind} {content_hash(state.content)}"
            if own and not own.differs(log.prepare(MEMORY_WRITTEN, state).payload):
                self.report.unchanged += 1
            elif not own and (text in self._texts or by_text.of_content(state)):
                self.report.duplicates += 1
            else:
                self.report.created += own is None
                self.report.revised += own is not None
                wanted.append(command)
            self._texts.add(text)
        return wanted


def _command(record: MemoryRecord, topic: str) -> MemoryWrite:
    fields = {"type": record.type} if record.type else {}
    command = MemoryWrite(
        title=shortened(flat(record.title) or flat(record.content), _MAX_TITLE),
        content=record.content,
        kind=record.kind,
        tags=list(record.tags),
        topic_key=topic,
        source=shortened(flat(record.place), _MAX_PLACE),
        attributes=dict(record.attributes),
        **fields,
    )
    if command.type:
        check_type(command.kind, command.type)
    check_attributes(command.kind, command.attributes)
    return command


def topic_of(tool: str, key: str) -> str:
    """Return the topic under which a record is found again when it is imported again."""
    # Sanitised because the log sanitises topics too
    topic = sanitize_text(f"import:{tool}:{flat(key)}")[0]
    digest = sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return topic if len(topic) <= _MAX_KEY else f"{topic[: _MAX_KEY - 13]}~{digest}"


def _state(command: MemoryWrite) -> MemoryWritten:
    return MemoryWritten(**command.model_dump(exclude=_NOT_STATE, exclude_unset=True))


def _relate(relations: Sequence[tuple[str, str, str]]) -> int:
    topics = sorted({topic for source, _, target in relations for topic in (source, target)})
    ids: dict[str, int] = {}
    for start in range(0, len(topics), _BATCH):
        found = Memory.objects.live().filter(topic_key__in=topics[start : start + _BATCH])
        ids |= {str(topic): memory_id for topic, memory_id in found.values_list("topic_key", "id")}
    made = 0
    for source, relation, target in relations:
        if source in ids and target in ids and source != target:
            command = RelationCreate(source=ids[source], relation=relation, target=ids[target])
            made += create_relation(command=command).status is LinkStatus.CREATED
    return made
