"""The header and checksum of vector index files. Needs no numpy, so that ``doctor`` can check them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

MAGIC = b"MEMHUBV1"
# Magic, revision, rows, dimensions; then a CRC-32 of the header and of everything after the checksum
HEAD = struct.Struct("<8sQQI")
SUM = struct.Struct("<I")
BEGIN = HEAD.size + SUM.size
_AT_ONCE = 1 << 20


def damaged_files(folder: Path) -> list[Path]:
    # A search rebuilds them silently, but whatever damaged them may have damaged other files
    return [path for path in sorted((folder / "index").glob("vectors-*.bin")) if not _is_whole(path)]


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head, stored = file.read(HEAD.size), file.read(SUM.size)
            total = zlib.crc32(head)
            while chunk := file.read(_AT_ONCE):
                total = zlib.crc32(chunk, total)
    except FileNotFoundError:  # a search has just replaced it
        return True
    except OSError:
        return False
    return head.startswith(MAGIC) and stored == SUM.pack(total)
