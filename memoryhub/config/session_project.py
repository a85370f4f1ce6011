"""Find the project of a client's session. Standard library only, because hooks import it."""

# A hook's event is passive: nobody asked for it. So it creates a project only for a folder that is one for sure; a
# command, a tool call or an import creates one for any folder.

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from memoryhub.config.identity import SETTINGS_FILE, identify_project, is_project_folder
from memoryhub.config.repository import is_folder
from memoryhub.core.errors import HubError, NotFound
from memoryhub.core.session_places import SessionPlace, find_place, note_place


def place_session(client: str, session_id: str, folder: str) -> SessionPlace:
    """Return where a session began, with its project. The first event of the session notes it.

    Raises:
        NotFound: the session began in a folder that has no project, or that no longer exists.
        Invalid: several projects are possible, or a settings file cannot be read.
    """
    place = begin_session(client, session_id, folder)
    if not place.project:
        place = replace(place, project=project_of_folder(place.folder))
        _note(client, session_id, place)
    return place


def begin_session(client: str, session_id: str, folder: str) -> SessionPlace:
    """Return where a session began: at its first event, in the folder of that event."""
    place = find_place(client, session_id)
    if place is None:
        place = SessionPlace(os.path.realpath(folder))
        if os.path.isdir(place.folder):  # noqa: PTH112
            _note(client, session_id, place)
    return place


def peek_session(client: str, session_id: str, folder: str) -> SessionPlace:
    """Return the same as ``place_session`` and note nothing; without a project if there is none."""
    place = find_place(client, session_id) or SessionPlace(os.path.realpath(folder))
    try:
        return place if place.project else replace(place, project=project_of_folder(place.folder))
    except HubError:
        return place


def project_of_folder(folder: str) -> str:
    """Return the project of a folder for an event of a hook.

    Raises:
        NotFound: the folder has no project, or no longer exists.
        Invalid: several projects are possible, or a settings file cannot be read.
    """
    directory = Path(folder)
    if not is_folder(directory):
        raise NotFound(f"the folder {folder} no longer exists, so its project is unknown")
    project = identify_project(project=None, directory=directory)
    if not is_project_folder(directory, project):
        raise NotFound(
            f"{folder} is in no git repository and has no project, so nothing of this session is recorded; to record "
            f'it, write project = "{project}" to {SETTINGS_FILE} there'
        )
    return project


def _note(client: str, session_id: str, place: SessionPlace) -> None:
    try:
        note_place(client, session_id, place)
    except OSError:
        return  # the event itself is recorded
