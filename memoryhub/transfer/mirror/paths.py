"""The places of a mirror's files: where they are, were, or are created."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from memoryhub.core.slugs import file_slug
from memoryhub.transfer.mirror.files import Document, Stamp
from memoryhub.transfer.mirror.state import Entry


@dataclass(slots=True)
class Found:
    """The file of a memory or decision; without a document it is unchanged, or was skipped."""

    path: str
    stamp: Stamp
    document: Document | None = None
    is_skipped: bool = False


class Paths:
    """The path of each memory and decision, by id; other files link to them."""

    def __init__(self, folder: Path, taken: Iterable[str], redacted: Collection[int]) -> None:
        self.folder, self.redacted = folder, redacted
        # In lower case: some disks do not tell cases apart
        self.taken = {path.lower() for path in taken}
        self.by_id: dict[int, str] = {}

    def assign(
        self,
        folder: str,
        titles: Mapping[int, str],
        ids: Mapping[str, int],
        entries: Mapping[str, Entry],
        found: Mapping[str, Found],
    ) -> None:
        """Choose the path of each memory or decision: where its file is, or was, or a new one in ``folder``.

        The file of a redacted one is named after its title again, because its name may have the text.
        """
        for uid in entries.keys() & found.keys():
            entries[uid].path = found[uid].path
        for uid, entity_id in ids.items():
            known = found.get(uid) or entries.get(uid)
            if known and entity_id in titles:
                title = titles[entity_id]
                is_old = entity_id in self.redacted and file_name(title) not in known.path
                parent = str(PurePosixPath(known.path).parent)
                self.by_id[entity_id] = self.free(parent, title) if is_old else known.path
        for entity_id, title in titles.items():
            if entity_id not in self.by_id:
                self.by_id[entity_id] = self.free(folder, title)

    def free(self, folder: str, title: str) -> str:
        """Return a path for a new file that no other file has."""
        name, number = file_name(title), 1
        path = f"{folder}/{name}.md"
        while path.lower() in self.taken or os.path.lexists(self.folder / path):
            number += 1
            path = f"{folder}/{name}-{number}.md"
        self.taken.add(path.lower())
        return path


def file_name(title: str) -> str:
    """Return the name of a new file with this title, without its ending."""
    return file_slug(title) or "memory"
