"""Show and change the anchors of an entry, which people and clients write as ``src/auth.py:10-24``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from memories.events import ENTRY_ANCHORED, AnchorRecord, EntryAnchored
from memories.models import AnchorSource, CodeAnchor
from memories.schemas.validity import AnchorsChange, AnchorsResult, AnchorView
from memories.search import engine
from memories.validity.anchors import anchor_record
from memories.validity.claims import claims_about, words_of_text
from memories.validity.definitions import Definition
from memories.validity.freshness import State, check, lines_of, name_of
from memories.validity.working_files import WorkingFile, read_working_file, tracked_files
from memoryhub.core import log
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.errors import ConflictError, Gone, Invalid, NotFound
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.text import counted
from sessions_app.git.worktree import WorkingTree
from sessions_app.selectors import caller_tree

_NAME = re.compile(r"(?P<path>[^#]+?)(?::(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?|#(?P<symbol>[^\s#]+))?")


def record_of(anchor: CodeAnchor) -> AnchorRecord:
    return AnchorRecord.model_construct(
        path=anchor.path,
        symbol=anchor.symbol,
        first=anchor.first,
        last=anchor.last,
        digest=anchor.digest,
        words=anchor.words,
        made_from=AnchorSource(anchor.made_from),
    )


def anchor_names(ids: Collection[int]) -> dict[int, list[str]]:
    """Map entries that have anchors to these, as people write them; one query."""
    names: dict[int, list[str]] = {}
    for anchor in CodeAnchor.objects.filter(entity_id__in=ids).order_by("entity_id", "number"):
        names.setdefault(anchor.entity_id, []).append(name_of(anchor))
    return names


def anchor_views(entity_id: int, tree: WorkingTree | None, commit: str = "") -> list[AnchorView]:
    """Return the anchors of an entry with their state in a working tree; ``commit`` is where it was learnt."""
    views: list[AnchorView] = []
    for anchor in CodeAnchor.objects.filter(entity_id=entity_id).order_by("number"):
        state, now_at = "", ""
        if tree is not None:
            finding = check(record_of(anchor), tree, commit)
            state = finding.state.value
            if finding.state is State.MOVED:
                now_at = lines_of(finding.path, finding.first, finding.last)
        views.append(AnchorView(name=name_of(anchor), state=state, now_at=now_at, made_from=anchor.made_from))
    return views


def change_anchors(*, command: AnchorsChange, key: str | None = None) -> AnchorsResult:
    """Replace the anchors of a memory or decision; those that it has already stay as they are.

    Args:
        command: the entry and its anchors.
        key: idempotency key of the call.

    Raises:
        NotFound: no memory or decision has this id.
        Gone: the memory is deleted.
        ConflictError: it is quarantined.
        Invalid: an anchor names nothing in the working tree.
    """
    with log.transaction():
        entity = find_entities([command.id]).get(command.id)
        if entity is None or entity.type not in ("memory", "decision"):
            raise NotFound(f"there is no memory or decision #{command.id} in this store", id=command.id)
        if entity.deleted:
            raise Gone(f"#{command.id} is deleted; restore it before you change its anchors", id=command.id)
        if quarantined_among([command.id]):
            raise ConflictError(f"#{command.id} is in quarantine; release it before you change it", id=command.id)
        anchors = CodeAnchor.objects.filter(entity_id=command.id).order_by("number")
        present = {name_of(anchor): record_of(anchor) for anchor in anchors}
        tree = caller_tree()
        records = anchors_named(command.anchors, _text_of(entity), tree, present)
        is_changed = records != list(present.values())
        if is_changed:
            payload = EntryAnchored(entity_id=command.id, anchors=records, reason=command.reason)
            draft = log.prepare(ENTRY_ANCHORED, payload)
            log.append(draft, stream=f"{entity.type}:{command.id}", idempotency_key=key)
    return AnchorsResult(id=command.id, is_changed=is_changed, anchors=anchor_views(command.id, tree))


def _text_of(entity: Entity) -> str:
    documents = engine.documents_of([entity.id])
    return f"{entity.title}\n{engine.texts_of(documents).get(entity.id, '')}"


def anchors_named(
    names: Sequence[str], text: str, tree: WorkingTree | None, present: Mapping[str, AnchorRecord] | None = None
) -> list[AnchorRecord]:
    """Return the anchors that a person or a client names.

    Args:
        names: such as ``src/auth.py:10-24``.
        text: of the entry.
        tree: the working tree that has the files.
        present: anchors of the entry that may be named again.

    Raises:
        Invalid: a name is no such name, or there is no such file, line or definition.
        ConflictError: the project has no working tree here.
    """
    records: dict[str, AnchorRecord] = {}
    for name in names:
        records[name] = (present or {}).get(name) or _anchor_named(name, text, tree)
    return list(records.values())


def _anchor_named(name: str, text: str, tree: WorkingTree | None) -> AnchorRecord:
    match = _NAME.fullmatch(name)
    if match is None:
        raise Invalid(f"{name!r} is no anchor; write src/auth.py, src/auth.py:10-24 or src/auth.py#Session.renew")
    path = match["path"].removeprefix("./").rstrip("/")
    if path.startswith(("/", "~")) or "\\" in path:
        raise Invalid(f"{path!r} is an absolute path; name the file from the top of the working tree, as src/auth.py")
    if tree is None:
        raise ConflictError("there is no working tree of this project here, so its files cannot be anchors")
    file = read_working_file(tree.top, path)
    if file is None or ".." in path.split("/"):
        if path in tracked_files(tree.top).folders and not (match["first"] or match["symbol"]):
            return AnchorRecord(path=path, made_from=AnchorSource.PERSON)
        raise Invalid(f"there is no text file {path} in the working tree {tree.top.name}")
    if match["symbol"]:
        return _definition(file, match["symbol"], text)
    if match["first"]:
        first = int(match["first"])
        return _lines(file, first, int(match["last"] or first))
    words = [claim.text for claim in claims_about(words_of_text(text), file)]
    return anchor_record(file, Definition("", 0, 0), words, AnchorSource.PERSON)


def _lines(file: WorkingFile, first: int, last: int) -> AnchorRecord:
    count = len(file.lines) - (not file.lines[-1])
    if not 0 < first <= last <= count:
        lines = str(first) if first == last else f"{first}-{last}"
        raise Invalid(f"there is no line {lines} in {file.path}, which has {counted(count, 'line')}")
    return anchor_record(file, Definition("", first, last), [], AnchorSource.PERSON)


def _definition(file: WorkingFile, symbol: str, text: str) -> AnchorRecord:
    matches = file.definitions_of(symbol.replace("::", "."))
    if len(matches) != 1:
        if not matches:
            raise Invalid(f"there is no definition of {symbol} in {file.path}; name its lines instead")
        names = ", ".join(match.name for match in matches[:4])
        raise Invalid(f"there are several definitions of {symbol} in {file.path}: {names}")
    name, first, last = matches[0]
    words = words_of_text(text)
    for part in name.split("."):
        words.weights.pop(part.lower(), None)
    claims = [claim.text for claim in claims_about(words, file, first, last)]
    return anchor_record(file, matches[0], claims, AnchorSource.PERSON)
