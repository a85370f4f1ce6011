"""Where a client's sessions began: a note for each session, in ``run/sessions`` in the home folder.

A session belongs to the project in which it began, whatever folder a later event names: after a `cd`, a nested
repository, a temporary or a deleted one. Standard library only, because hooks import it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from memoryhub.core.disk import replacing
from memoryhub.core.text import flat
from memoryhub.env import home_text

FOLDER = "run/sessions"
# The key under which a hook adds the client's root to an event
ROOT_KEY = "memory_hub_root"
# Characters of a session's name
_MAX_NAME = 200
# Notes older than this are removed
_DAYS = 90


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """The folder in which a session began, and its project; "" until that folder has one."""

    folder: str
    project: str = ""


def find_place(client: str, session_id: str) -> SessionPlace | None:
    """Return where a session began, or None if that is not known or there is no session."""
    if not session_id:
        return None
    try:
        fields = json.loads(_note_path(client, session_id).read_text("utf-8", "surrogateescape"))
        return SessionPlace(str(fields["folder"]), str(fields["project"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note_place(client: str, session_id: str, place: SessionPlace) -> None:
    """Note where a session began. Without a note, as on a full disk, each event is placed by its own folder."""
    if not session_id:
        return
    path = _note_path(client, session_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path, synced=False) as file:
        file.write(json.dumps(asdict(place)).encode("utf-8", "surrogateescape"))


def session_name(value: object) -> str:
    """Return a session's name in a client's data as it is recorded, or ""."""
    return flat(value.strip())[:_MAX_NAME] if isinstance(value, str) else ""


def forget_old_places() -> None:
    """Remove the notes that have not been written for a long time."""
    oldest = time.time() - _DAYS * 86_400
    try:
        entries = list(os.scandir(f"{home_text()}/{FOLDER}"))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry.path)  # noqa: PTH108
        except OSError:
            continue


def _note_path(client: str, session_id: str) -> Path:
    name = hashlib.sha256(f"{client}\0{session_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(home_text(), FOLDER, name)
