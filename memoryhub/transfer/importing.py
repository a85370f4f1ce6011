"""Import records of other tools into projects, in batches that can be undone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from governance.imports import ImportRun
from memories.duplicates import Existing, ExistingMemories, current_topic
from memories.events import MEMORY_WRITTEN, MemoryWritten
from memories.importing import count_repeated, delete_repeated
from memories.importing.files import imported_times, without_deleted
from memories.kinds import check_attributes, check_type
from memories.models import Memory, RelationType
from memories.pack.sections import is_echo
from memories.projectors import content_hash
from memories.schemas import MAX_CONTENT, ImportedMemory
from memories.schemas.links import LinkStatus, RelationCreate
from memories.selectors.versions import imported_states
from memories.services import write_memories
from memories.services.links import create_relation
from memoryhub.config.current_settings import NO_FOLDER, use_folder
from memoryhub.config.identity import identify_project
from memoryhub.config.repository import find_repository, resolved
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, HubError, Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import Act, demand
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.slugs import project_id_of
from memoryhub.core.stores.store import list_projects, project_store, use_store
from memoryhub.core.text import flat, shortened
from memoryhub.core.validation import explain
from memoryhub.transfer.records import ImportReport, LeftOutRecord, MemoryRecord, Record, SessionRecord
from sessions_app.services.past_sessions import (
    Fate,
    PastSession,
    PlannedSession,
    drafts_of,
    plan_past_sessions,
    record_past_session,
)

# Records that are compared with the store at once; fewer if their texts are long
_BATCH = 500
_BATCH_CHARACTERS = 8_000_000
# Projects that one import may create: each is a database
_MAX_PROJECTS = 500
Progress = Callable[[int], None]


def project_of(name: str, default: str) -> str:
    """Return the project for a source's name of one, which may be a folder; ``default`` if it yields no id.

    A folder that is gone, such as that of a removed working tree, is of the repository that it was in.
    """
    if not name:
        return default
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    try:
        if folder := _existing_folder(Path(name)):
            return identify_project(project=None, directory=folder)
    except (Invalid, OSError, ValueError):
        pass  # it is named like the folder, as on a machine that has no such folder
    return project_id_of(last) or default


def _existing_folder(path: Path) -> Path | None:
    if not path.is_absolute():
        return None
    if path.is_dir():
        return path
    above = next(parent for parent in path.parents if parent.is_dir())
    return above if find_repository(resolved(above)) else None


@dataclass
class Importer:
    """Imports the records of one source.

    Args:
        tool: the source's name.
        project: of records that name none.
        is_only: whether all records go there, whatever they name.
        only: import only what goes to this project, "" for everything.
        batch: the import that this is a part of, which its caller ends; None for one of its own in each project.
    """

    tool: str
    project: str
    is_only: bool = False
    only: str = ""
    batch: ImportRun | None = None
    _plans: dict[str, ProjectImport] = field(default_factory=dict, init=False)

    def preview(self, records: Iterable[Record]) -> list[ImportReport]:
        """Return what ``run`` would do; writes nothing, and creates no project."""
        for project, group in self._groups(records):
            self._plan(project).preview(group)
        return self._reports()

    def run(self, records: Iterable[Record], *, place: str, progress: Progress = lambda _: None) -> list[ImportReport]:
        """Import records as one batch a project. Records of an earlier import are revised where they differ.

        What was written before an error stays, and can be undone with the batch; importing again writes the rest.
        """
        count = 0
        for project, group in self._groups(records):
            self._plan(project).write(group, place)
            progress(count := count + len(group))
        for plan in self._plans.values():
            plan.finish()
        return self._reports()

    def _groups(self, records: Iterable[Record]) -> Iterator[tuple[str, list[Record]]]:
        for chunk in _record_chunks(records):
            groups: dict[str, list[Record]] = {}
            for record in chunk:
                project = self.project
                if not self.is_only and not isinstance(record, LeftOutRecord):
                    project = project_of(record.project, self.project)
                groups.setdefault(project, []).append(record)
            for project, group in groups.items():
                if self.only in ("", project):
                    yield project, group

    def _plan(self, project: str) -> ProjectImport:
        if project not in self._plans and len(self._plans) >= _MAX_PROJECTS:
            raise Invalid(
                f"the data names more than {_MAX_PROJECTS} projects; "
                "import one of them with --only ID, or all into one with --project ID"
            )
        return self._plans.setdefault(project, ProjectImport(self.tool, project, self.batch))

    def _reports(self) -> list[ImportReport]:
        return [plan.report for plan in self._plans.values()]


def _record_chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    chunk: list[Record] = []
    size = 0
    for record in records:
        chunk.append(record)
        if isinstance(record, SessionRecord):
            size += sum(len(turn.prompt) + len(turn.answer) for turn in record.turns)
        elif isinstance(record, MemoryRecord):
            size += len(record.content)
        if len(chunk) == _BATCH or size > _BATCH_CHARACTERS:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


_TOPICS_AT_ONCE = 500
_MAX_TITLE = 200
_MAX_KEY = 200
_MAX_PLACE = 1_000
_MAX_TAGS, _MAX_TAG = 32, 64
_NOT_STATE = {"if_exists", "named", "related_chunks", "idempotency_key"}
# Names that are the same in every hub: a UUID, or an id of OpenCode
_UNIQUE = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|ses_[0-9A-Za-z]{26}")


class ProjectImport:
    """Decides what becomes of each record in one project, and writes it."""

    def __init__(self, tool: str, project: str, batch: ImportRun | None) -> None:
        self.report = ImportReport(project)
        self._tool = tool
        self._texts: set[str] = set()
        # Texts of guidelines: notes of the same text are deleted
        self._rule_hashes: set[str] = set()
        # (topic of the source, relation, topic of the target)
        self._relations: list[tuple[str, str, str]] = []
        self._run = batch
        self._ends_batch = batch is None
        # By the key of a record that several sources read
        self._topics: dict[str, str] = {}

    def preview(self, records: Sequence[Record]) -> None:
        exists = self.report.project in list_projects()
        with _opened(self.report.project) if exists else use_folder(NO_FOLDER):
            for planned in self._sessions(records, is_new=not exists):
                self._attempt(planned, lambda of: {name for *_, draft in drafts_of(of) for name in draft.redactions})
            for command in self._memories(records, is_new=not exists):
                self.report.secrets.update(log.prepare(MEMORY_WRITTEN, _memory_state(command)).redactions)
            if exists and self.report.changes:
                self.report.replaced = count_repeated(self._rule_hashes)

    def write(self, records: Sequence[Record], place: str) -> None:
        with _opened(self.report.project):
            sessions = self._sessions(records)
            memories = self._memories(records)
            if not self.report.changes:
                return
            demand(Act.WRITE)
            self._run = self._run or ImportRun(self._tool, place)
            session_of = {}
            for record in records:
                if isinstance(record, MemoryRecord) and record.session:
                    session_of[self._topic(record)] = session_name(self._tool, record.session)
            with self._recording(self._run):
                for planned in sessions:
                    self._attempt(planned, lambda of: record_past_session(planned=of))
                self._write(memories, session_of)

    def finish(self) -> None:
        report = self.report
        if self._run is None:
            return
        with _opened(report.project), self._recording(self._run):
            report.relations = _relate(self._relations)
            report.replaced = delete_repeated(self._rule_hashes)
            if self._ends_batch:
                report.batch = self._run.end(report.counts)

    @contextmanager
    def _recording(self, run: ImportRun) -> Iterator[None]:
        with run.recording(), use_origin(source="import", actor=f"import:{self._tool}"):
            yield

    # By session, which is in the header of an event
    def _write(self, commands: Sequence[ImportedMemory], session_of: dict[str, str]) -> None:
        groups: dict[str, list[ImportedMemory]] = {}
        for command in commands:
            groups.setdefault(session_of.get(command.topic_key or "", ""), []).append(command)
        for session, group in groups.items():
            with use_origin(session_id=session):
                for result in write_memories(commands=group):
                    self.report.secrets.update(result.redacted)

    def _attempt(self, planned: PlannedSession, act: Callable[[PlannedSession], set[str]]) -> None:
        try:
            self.report.secrets.update(act(planned))
        except (ValidationError, HubError) as error:
            self.report.leave(planned.session.session_id, _why(error))
            self.report.sessions -= planned.fate is Fate.CREATED
            self.report.sessions_extended -= planned.fate is Fate.EXTENDED

    def _sessions(self, records: Sequence[Record], *, is_new: bool = False) -> list[PlannedSession]:
        sessions = []
        for record in records:
            if isinstance(record, SessionRecord):
                self.report.names[record.project] += 1
                if any(turn.prompt.strip() or turn.answer.strip() for turn in record.turns) or record.summary.strip():
                    sessions.append(self._past_session(record))
                else:
                    self.report.leave(record.place or record.key, "the session has no text")
        if is_new:
            planned = [PlannedSession(session, Fate.CREATED) for session in sessions]
        else:
            planned = plan_past_sessions(sessions)
        fates = Counter(session.fate for session in planned)
        self.report.sessions += fates[Fate.CREATED]
        self.report.sessions_extended += fates[Fate.EXTENDED]
        self.report.sessions_known += fates[Fate.UNCHANGED] + fates[Fate.CAPTURED]
        return [session for session in planned if session.fate in (Fate.CREATED, Fate.EXTENDED)]

    def _past_session(self, record: SessionRecord) -> PastSession:
        return PastSession(
            session_id=session_name(self._tool, record.key),
            purpose=flat(record.purpose),
            agent=shortened(flat(record.agent) or self._tool, _MAX_KEY),
            turns=record.turns,
            summary=record.summary,
            started_at=record.started,
            ended_at=record.ended,
        )

    # A text that another source has imported keeps its topic
    def _find_topics(self, records: Sequence[Record]) -> None:
        shared = [record for record in records if isinstance(record, MemoryRecord) and record.shared_by]
        names = {record.key: [topic_of(tool, record.key) for tool in record.shared_by] for record in shared}
        topics = list(chain.from_iterable(names.values()))
        deleted: dict[str, bool] = {}
        for start in range(0, len(topics), _TOPICS_AT_ONCE):
            memories = Memory.objects.filter(topic_key__in=topics[start : start + _TOPICS_AT_ONCE]).order_by("id")
            for topic, deleted_at in memories.values_list("topic_key", "deleted_at"):
                deleted[str(topic)] = deleted_at is not None
        for key, alternatives in names.items():
            existing = [topic for topic in alternatives if topic in deleted]
            if existing:
                self._topics[key] = min(existing, key=deleted.__getitem__)

    def _topic(self, record: MemoryRecord) -> str:
        return self._topics.get(record.key) or topic_of(self._tool, record.key)

    def _memories(self, records: Sequence[Record], *, is_new: bool = False) -> list[ImportedMemory]:
        if not is_new:
            self._find_topics(records)
        commands = list(filter(None, map(self._command, records)))
        present = commands if is_new else without_deleted(commands)
        self.report.deleted += len(commands) - len(present)
        self._rule_hashes |= {content_hash(command.content) for command in present if command.kind == "guideline"}
        return self._differing(present, is_new=is_new)

    def _command(self, record: Record) -> ImportedMemory | None:
        if isinstance(record, LeftOutRecord):
            self.report.leave(record.place, record.why)
        if not isinstance(record, MemoryRecord):
            return None
        self.report.names[record.project] += 1
        try:
            command = self._checked(record)
        except (ValidationError, HubError) as error:
            self.report.leave(record.place or record.key, _why(error))
            return None
        for relation, key in record.relations:
            self._relations.append((command.topic_key or "", relation, topic_of(self._tool, key)))
        return command

    def _checked(self, record: MemoryRecord) -> ImportedMemory:
        if not record.content.strip():
            raise Invalid("it has no text")
        if len(record.content) > MAX_CONTENT:
            raise Invalid(f"it is longer than {MAX_CONTENT:,} characters")
        if is_echo(record.content):
            raise Invalid("it is a context pack of this hub")
        fields = imported_times(record.created, record.updated)
        if record.type:
            fields["type"] = record.type
        # Tags of another tool can be longer, or sentences
        tags = (shortened(flat(tag).strip(), _MAX_TAG) for tag in record.tags)
        command = ImportedMemory(
            title=shortened(flat(record.title) or flat(record.content), _MAX_TITLE),
            content=record.content,
            kind=record.kind,
            tags=list(dict.fromkeys(filter(None, tags)))[:_MAX_TAGS],
            topic_key=self._topic(record),
            source=shortened(flat(record.place), _MAX_PLACE),
            attributes=dict(record.attributes),
            **fields,
        )
        if command.type:
            check_type(command.kind, command.type)
        check_attributes(command.kind, command.attributes)
        return command

    def _differing(self, commands: Sequence[ImportedMemory], *, is_new: bool) -> list[ImportedMemory]:
        states = list(map(_memory_state, commands))
        sought = [] if is_new else states
        by_topic = ExistingMemories(sought, "")
        by_text = ExistingMemories([state.model_copy(update={"topic_key": None}) for state in sought], "")
        ids = [existing.id for state in states if (existing := by_topic.of_topic(state))]
        imported = imported_states(ids) if ids else {}
        differing = []
        for command, state in zip(commands, states, strict=True):
            existing = by_topic.of_topic(state)
            payload = log.prepare(MEMORY_WRITTEN, state).payload
            text = f"{state.kind} {content_hash(state.content)}"
            if existing and not existing.differs(payload):
                self.report.unchanged += 1
            elif existing and existing.id in imported:
                is_changed = Existing(existing.id, 1, "", imported[existing.id]).differs(payload)
                self.report.unchanged += not is_changed
                self.report.conflicts += is_changed
                if is_changed:
                    self.report.leave(command.source, f"it was changed in #{existing.id} since it was imported, too")
            elif not existing and (text in self._texts or by_text.of_content(state)):
                self.report.duplicates += 1
            else:
                self.report.created += existing is None
                self.report.revised += existing is not None
                differing.append(command)
            self._texts.add(text)
        return differing


# Without the settings of the caller's folder, which need not be the project's
@contextmanager
def _opened(project: str) -> Iterator[None]:
    with use_store(project_store(project), create=True), use_folder(NO_FOLDER):
        yield


def _why(error: ValidationError | HubError) -> str:
    if isinstance(error, ValidationError):
        return explain(error)
    return error.message


def session_name(tool: str, key: str) -> str:
    """Return the name of an imported session: a client's own id of it stays, so that a recorded session is found."""
    if _UNIQUE.fullmatch(key):
        return key
    return topic_of(tool, key).removeprefix("import:")


def topic_of(tool: str, key: str) -> str:
    """Return the topic under which a record is found again when it is imported again."""
    name = f"import:{tool}:{flat(key)}"
    topic = sanitize_text(name)[0]  # as the log stores it
    if topic != name or len(topic) > _MAX_KEY:
        digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        topic = f"{topic[: _MAX_KEY - 13]}~{digest}"
    return current_topic(topic)


def _memory_state(command: ImportedMemory) -> MemoryWritten:
    return MemoryWritten(**command.model_dump(exclude=_NOT_STATE, exclude_unset=True))


def _relate(relations: Sequence[tuple[str, str, str]]) -> int:
    topics = sorted({source for source, *_ in relations} | {target for *_, target in relations})
    ids: dict[str, int] = {}
    for start in range(0, len(topics), _TOPICS_AT_ONCE):
        memories = Memory.objects.live().filter(topic_key__in=topics[start : start + _TOPICS_AT_ONCE])
        ids |= {str(topic): memory_id for topic, memory_id in memories.values_list("topic_key", "id")}
    count = 0
    for source, relation, target in relations:
        if source in ids and target in ids and source != target:
            command = RelationCreate(source=ids[source], relation=RelationType(relation), target=ids[target])
            try:
                link = create_relation(command=command)
            except ConflictError:
                # Other tools allow cycles
                command = command.model_copy(update={"relation": RelationType.RELATED_TO})
                link = create_relation(command=command)
            count += link.status is LinkStatus.CREATED
    return count
