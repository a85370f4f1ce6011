"""What a range of commits changes in a mirrored folder that the repository contains. No store is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from memories.models import ReviewState
from memoryhub.core.errors import NotFound
from memoryhub.core.kinds import DEFAULT_KIND
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text
from memoryhub.core.text import flat
from memoryhub.transfer.authorship import Authorship
from memoryhub.transfer.changes.report import ChangeKind, ChangeReport, EntryChange, EntryText
from memoryhub.transfer.mirror import files
from memoryhub.transfer.mirror.files import PROVENANCE, MirrorDocument, Skipped
from memoryhub.transfer.mirror.store import tags_of
from sessions_app.git.ranges import CommitRange, CommittedFile, authors_of_files, list_committed, read_committed

_MOST_FILES = 1_000
_MOST_BYTES = 32 * 2**20
_DECISIONS = "decisions/"
_HIDDEN = (".", "~")


def committed_changes(span: CommitRange, folder: str) -> ChangeReport:
    """Compare a mirrored folder at the ends of a range.

    Args:
        span: the commits.
        folder: path of the folder from the top of the working tree.

    Raises:
        NotFound: the folder has no files at either end.
        Unavailable: git cannot read the commits.
    """
    report = ChangeReport(span.name, span.base, span.head, span.branch, folder)
    before = _entry_files(list_committed(span.top, span.fork, folder, ".md"), folder)
    after = _entry_files(list_committed(span.top, span.head, folder, ".md"), folder)
    if not before and not after:
        raise NotFound(
            f"no commit of {flat(span.name)} has Markdown files in {folder or span.top}; commit the folder of "
            "`memory-hub mirror`, and name it with --mirror"
        )
    differing = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    chosen = _bounded(differing, before, after)
    report.omitted = len(differing) - len(chosen)
    old = _documents(span, {path: before[path] for path in chosen if path in before}, report)
    new = _documents(span, {path: after[path] for path in chosen if path in after}, report)
    unread = {path for path, _ in report.unread}
    authors = authors_of_files(span, folder) if chosen else {}
    for key in sorted(old.keys() | new.keys(), key=lambda key: (new.get(key) or old[key]).path):
        ends = [end for end in (old.get(key), new.get(key)) if end]
        # A file of which one end cannot be read is neither new nor gone
        if not any(end.path in unread for end in ends):
            report.results += _changes(old.get(key), new.get(key), authors, folder)
    return report


def _entry_files(listed: Mapping[str, CommittedFile], folder: str) -> dict[str, CommittedFile]:
    start = len(f"{folder}/") if folder else 0
    entries = {}
    for path, file in listed.items():
        names = path[start:].split("/")
        if not any(name.startswith(_HIDDEN) for name in names) and not files.is_conflict(path):
            entries[path] = file
    return entries


def _bounded(paths: list[str], before: Mapping[str, CommittedFile], after: Mapping[str, CommittedFile]) -> list[str]:
    chosen = []
    size = 0
    for path in paths[:_MOST_FILES]:
        size += sum(side[path].size for side in (before, after) if path in side)
        if size > _MOST_BYTES:
            break
        chosen.append(path)
    return chosen


@dataclass(frozen=True, slots=True)
class _CommittedEntry:
    path: str
    document: MirrorDocument


# By the id of the entry, or by the path of a file without one, such as a new note
def _documents(
    span: CommitRange, committed: Mapping[str, CommittedFile], report: ChangeReport
) -> dict[str, _CommittedEntry]:
    documents: dict[str, _CommittedEntry] = {}
    readable = {path: file for path, file in committed.items() if file.size <= files.MAX_BYTES}
    for path in committed.keys() - readable.keys():
        report.unread.append((_name(path), f"it is larger than {files.MAX_BYTES:,} bytes"))
    for path, content in zip(readable, read_committed(span.top, list(readable.values())), strict=True):
        try:
            document = files.parse(content)
        except Skipped as reason:
            report.unread.append((_name(path), str(reason)))
            continue
        key = document.uid or f"file {path}"
        if key in documents:  # a copy
            key = f"file {path}"
        documents[key] = _CommittedEntry(path, document)
    return documents


# Stored text is sanitised; files of a repository, and their names, are whatever people committed
def _name(path: str) -> str:
    return flat(sanitize_text(path)[0])


def _changes(
    old: _CommittedEntry | None, new: _CommittedEntry | None, authors: Mapping[str, list[str]], folder: str
) -> Iterator[EntryChange]:
    before = _parts(old, folder) if old else None
    after = _parts(new, folder) if new else None
    entry = new or old
    if entry is None or before == after:
        return
    kind = ChangeKind.CHANGED
    if before is None:
        kind = ChangeKind.ADDED
    elif after is None:
        kind = ChangeKind.REMOVED
    provenance: object = None
    # A text that changed without its revision was edited by hand since the hub wrote the file
    is_edited = bool(old and new and old.document.revision == new.document.revision)
    if new and not is_edited:
        provenance = new.document.matter.get(PROVENANCE)
    unsafe = {
        "before": before,
        "after": after,
        "path": entry.path,
        "committers": authors.get(entry.path, []),
        "provenance": provenance,
    }
    clean, _ = sanitize(unsafe)
    yield EntryChange(
        change=kind,
        thing="decision" if _is_decision(entry, folder) else "memory",
        id=0,
        path=flat(clean["path"]),
        before=EntryText(*clean["before"]) if before else None,
        after=EntryText(*clean["after"]) if after else None,
        authorship=Authorship.of_matter(clean["provenance"]),
        is_proposed=bool(new and new.document.matter.get("review") == ReviewState.PROPOSED),
        committers=clean["committers"],
        uid=entry.document.uid,
    )


def _is_decision(entry: _CommittedEntry, folder: str) -> bool:
    below = entry.path.removeprefix(f"{folder}/")
    return bool(entry.document.decision) or (not entry.document.memory and below.startswith(_DECISIONS))


# Title, facts and text
def _parts(entry: _CommittedEntry, folder: str) -> list[str]:
    document = entry.document
    matter = document.matter
    facts = [str(matter.get("kind") or DEFAULT_KIND), str(matter.get("type") or "")]
    if _is_decision(entry, folder):
        facts = ["decision", str(matter.get("status") or "")]
    if tags := tags_of(document):
        facts.append(f"tags: {', '.join(tags)}")
    title = document.title or PurePosixPath(entry.path).stem
    return [flat(title), flat(", ".join(filter(None, facts))), document.content]
