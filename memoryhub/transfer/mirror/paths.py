"""The places of a mirror's files: where they are, were, or are created."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from memoryhub.transfer.mirror.files import Document, Stamp
from memoryhub.transfer.mirror.state import Entry

_MAX_SLUG = 60


@dataclass(slots=True)
class Found:
    """The file of a memory or decision; without a document it is unchanged, or was skipped."""

    path: str
    stamp: Stamp
    document: Document | None = None
    is_skipped: bool = False


class Paths:
    """The path of each memory and decision, by id; other files link to them."""

    def __init__(self, folder: Path, taken: Iterable[str]) -> None:
        self.folder = folder
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
        """Choose the path of each memory or decision: where its file is, or was, or a new one in ``folder``."""
        for uid in entries.keys() & found.keys():
            entries[uid].path = found[uid].path
        for uid, entity_id in ids.items():
            known = found.get(uid) or entries.get(uid)
            if known and entity_id in titles:
                self.by_id[entity_id] = known.path
        for entity_id, title in titles.items():
            if entity_id not in self.by_id:
                self.by_id[entity_id] = self.free(folder, title)

    def free(self, folder: str, title: str) -> str:
        """Return a path for a new file that no other file has."""
        name, number = slug(title), 1
        path = f"{folder}/{name}.md"
        while path.lower() in self.taken or os.path.lexists(self.folder / path):
            number += 1
            path = f"{folder}/{name}-{number}.md"
        self.taken.add(path.lower())
        return path


def slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title[: 4 * _MAX_SLUG]).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:_MAX_SLUG].strip("-") or "memory"
