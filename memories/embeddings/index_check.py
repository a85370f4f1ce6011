"""The head of an index file, and whether the file is as it was written. Needs no numpy."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

MAGIC = b"MEMHUBV1"
# Magic, revision, rows, dimensions; after it a checksum of these and of all that follows.
HEAD = struct.Struct("<8sQQI")
SUM = struct.Struct("<I")
BEGIN = HEAD.size + SUM.size
_AT_ONCE = 1 << 20


def damaged_files(store: Path) -> list[Path]:
    """Return the vector index files beside a store that are not as they were written.

    A search replaces them without a word; but what changed them may have changed other files.
    """
    return [path for path in sorted(store.with_name("index").glob("vectors-*.bin")) if not _is_whole(path)]


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head, stored = file.read(HEAD.size), file.read(SUM.size)
            total = zlib.crc32(head)
            while some := file.read(_AT_ONCE):
                total = zlib.crc32(some, total)
    except FileNotFoundError:  # a search has replaced it meanwhile
        return True
    except OSError:
        return False
    return head.startswith(MAGIC) and stored == SUM.pack(total)
