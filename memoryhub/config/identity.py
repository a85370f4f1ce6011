"""Find the project of a folder or of a client's session. Standard library only: hooks and the MCP front import it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from memoryhub.config.repository import (
    Repository,
    find_repository,
    is_file,
    is_folder,
    remote_identity,
    remote_name,
    resolved,
)
from memoryhub.core.disk import replacing
from memoryhub.core.errors import HubError, Invalid, NotFound
from memoryhub.core.foreign_files import check_toml, read_foreign
from memoryhub.core.session_places import SessionPlace, find_place, note_place
from memoryhub.core.slugs import project_id_of, project_slug
from memoryhub.env import database_url, home

# Order: what the caller names; ``project`` in the nearest ``.memory-hub.toml``; the git repository, by its remote's
# or main folder's name, so that worktrees and subfolders share a project; the folder's own name. If two projects are
# possible, the answer is an error with the choices, never a guess.


SETTINGS_FILE = ".memory-hub.toml"
ORIGIN_FILE = "origin.json"
_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NAME_BY = ("folder", "remote")
# How much of a wrong value, and how many possible projects, an error names
_MAX_QUOTED, _MAX_CHOICES = 100, 10
_HOW = f'pass --project ID, or write project = "ID" to {SETTINGS_FILE}'


def identify_project(*, project: str | None, directory: Path) -> str:
    """Return the id of the project that ``directory`` belongs to; a given ``project`` decides.

    Raises:
        Invalid: an id is not a slug, a settings file cannot be read, the folder's name yields no id, or several
            projects are possible; the data then has ``choices``.
    """
    if project is not None:
        return check_project_id(project, "--project")
    directory = resolved(directory)
    repository = find_repository(directory)
    named_project, name_by = _settings(directory, repository)
    if named_project is not None:
        return named_project
    if repository is None and not is_folder(directory):
        raise Invalid(f"the folder {directory} no longer exists, so its project is unknown; {_HOW}")
    if repository is None:
        longer = f"{directory.parent.name}-{directory.name}"
        return _unless_taken(_slug_of(directory.name, directory), _origin(directory, None), [longer])
    return _of_repository(repository, name_by)


def check_project_id(value: object, source: str) -> str:
    """Return the value if it is a project id; otherwise raise Invalid, naming ``source``."""
    if isinstance(value, str) and _SLUG.fullmatch(value):
        return value
    raise Invalid(
        f"{source}: {repr(value)[:_MAX_QUOTED]} is not a project id; use 1 to 64 lower-case letters, digits, '.', '_' "
        "or '-', starting with a letter or digit"
    )


def bind_project(project_id: str, directory: Path) -> None:
    """Record beside the project's store that the folder's repository belongs to it.

    No effect without a store in this home. With stores in a database, the caller knows that there is one.
    """
    import json

    # The record tells two repositories of the same name apart.
    folder = _store_folder(check_project_id(project_id, "project"))
    directory = resolved(directory)
    mine = _origin(directory, find_repository(directory))
    origins = _bound_origins(project_id)
    if database_url():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not folder.is_dir() or any(mine == origin for origin in origins):
        return
    origins = [origin for origin in origins if not _is_same(mine, origin)]
    with replacing(folder / ORIGIN_FILE, synced=False) as file:
        file.write(f"{json.dumps({'origins': [*origins, mine]}, indent=1)}\n".encode("utf-8", "surrogateescape"))


def bound_folders(project_id: str) -> list[Path]:
    """Return the existing folders that are recorded for a project; for a repository, its main folder."""
    return [folder for folder in map(_folder_of, _bound_origins(project_id)) if is_folder(folder)]


def _folder_of(origin: dict[str, str]) -> Path:
    place = Path(origin.get("directory") or origin.get("common_dir") or "/")
    if place.name == ".git":
        return place.parent
    return place


def is_project_folder(directory: Path, project_id: str) -> bool:
    """Return whether a folder is that project's for sure: a repository, named by a settings file, or used before."""
    directory = resolved(directory)
    repository = find_repository(directory)
    if repository or "project" in _nearest_settings(directory, repository)[1] or is_file(directory / SETTINGS_FILE):
        return True
    return _owner(project_id, _origin(directory, None)) in ("mine", "unknown")


def renamed_hint(directory: Path, project_id: str) -> str:
    """Return a sentence on a project that this folder may have had under another name; "" if there is none.

    Such a project has no remote, its only folder is gone, and that was beside this one.
    """
    if _store_folder(project_id).is_dir():
        return ""
    directory = resolved(directory)
    repository = find_repository(directory)
    if repository and repository.remotes:
        return ""
    folder = repository.folder if repository else directory
    for path in sorted((home() / "projects").glob(f"*/{ORIGIN_FILE}")):
        name, origins = path.parent.name, _bound_origins(path.parent.name)
        places = [_folder_of(origin) for origin in origins if not origin.get("remote")]
        if len(places) == len(origins) == 1 and places[0].parent == folder.parent and not is_folder(places[0]):
            return (
                f"the folder of the project {name}, {places[0]}, is gone; if {folder.name} is that folder under "
                f'another name, write project = "{name}" to {folder / SETTINGS_FILE}'
            )
    return ""


def settings_of_folder(directory: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return the settings file for a folder, and its keys; None if there is none."""
    directory = resolved(directory)
    return _nearest_settings(directory, find_repository(directory))


# The project that a settings file names, and whether to name it after the folder or the remote
def _settings(directory: Path, repository: Repository | None) -> tuple[str | None, str | None]:
    path, keys = _nearest_settings(directory, repository)
    source = str(path)
    project = keys.get("project")
    name_by, where = os.environ.get("MEMORY_HUB_IDENTITY") or None, "MEMORY_HUB_IDENTITY"
    if "identity" in keys:
        name_by, where = keys["identity"], f"{source}: identity"
    if name_by is not None and name_by not in _NAME_BY:
        raise Invalid(f'{where} is {repr(name_by)[:_MAX_QUOTED]}; it must be "folder" or "remote"')
    if project is not None:
        project = check_project_id(project, f"{source}: project")
    return project, name_by


def _nearest_settings(directory: Path, repository: Repository | None) -> tuple[Path | None, dict[str, Any]]:
    for path in _settings_files(directory, repository):
        if is_file(path):
            return path, _parse_settings(path)
    return None, {}


def _settings_files(directory: Path, repository: Repository | None) -> Iterator[Path]:
    # Up the tree, not above a submodule, then in the main worktree.
    last = None
    if repository and repository.is_submodule:
        last = repository.folder
    yield from _upwards(directory, last)
    if repository and repository.is_linked:
        yield from _upwards(repository.folder, last)


def _upwards(directory: Path, last: Path | None) -> Iterator[Path]:
    user_home = Path("~").expanduser()
    for folder in (directory, *directory.parents):
        if folder == user_home and folder != directory:
            return
        yield folder / SETTINGS_FILE
        if folder in (last, user_home):
            return


def _parse_settings(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        text = read_foreign(path).decode()
        check_toml(text)
        return tomllib.loads(text)
    except RecursionError as error:
        raise Invalid(f"{path} cannot be read: it is nested too deeply; fix or remove it", path=str(path)) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Invalid(f"{path} cannot be read: {reason}; fix or remove it", path=str(path)) from error


def _of_repository(repository: Repository, name_by: str | None) -> str:
    mine = _origin(repository.folder, repository)
    names = _project_names(repository, name_by)
    owners = {name: _owner(name, mine) for name in names}
    # A name that is bound to the repository wins over an unambiguous one.
    bound = [name for name in names if owners[name] == "mine"]
    if len(bound) == 1:
        return bound[0]
    name: str | None = names[0]
    if len(names) > 1:
        name = _beyond_doubt(repository, names, owners)
    if name is None:
        raise Invalid(
            f"{repository.folder} could be any of {', '.join(names[:_MAX_CHOICES])}; {_HOW}, "
            'or set identity = "folder" or "remote" there',
            choices=names[:_MAX_CHOICES],
        )
    # Longer names that tell repositories of the same name apart: with the owner or the parent folder.
    owners_of_remotes = [remote_identity(url).split("/")[-2:] for url in repository.remotes.values()]
    longer = ["-".join(parts) for parts in owners_of_remotes]
    return _unless_taken(name, mine, longer or [f"{repository.folder.parent.name}-{repository.folder_name}"])


def _beyond_doubt(repository: Repository, names: list[str], owners: dict[str, str]) -> str | None:
    folder = project_slug(repository.folder_name)
    # Without ``origin``, the one of several remotes that the folder is named after.
    if "origin" not in repository.remotes and len(repository.remotes) > 1:
        remotes = map(project_slug, map(remote_name, repository.remotes.values()))
        if folder and folder in remotes:
            return folder
        return None
    rival = owners[names[-1]]
    # The remote's name, unless a store with the folder's name is possible too.
    both_exist = owners[names[0]] != "nobody" and rival != "nobody"
    if both_exist or rival in ("unknown", "mine"):
        return None
    return names[0]


def _project_names(repository: Repository, name_by: str | None) -> list[str]:
    folder = project_slug(repository.folder_name)
    remotes = repository.remotes
    chosen = [remotes["origin"]] if "origin" in remotes else list(remotes.values())
    names = [slug for slug in map(project_slug, map(remote_name, chosen)) if slug]
    if name_by == "folder" or not names:
        return [folder or _slug_of(repository.folder_name, repository.folder)]
    if name_by != "remote" and folder:
        names.append(folder)
    return list(dict.fromkeys(names))


def _slug_of(name: str, directory: Path) -> str:
    if not name:
        raise Invalid(f"the folder {directory} has no name and so yields no project id; {_HOW}")
    return project_id_of(name)


def _unless_taken(name: str, mine: dict[str, str], alternatives: list[str]) -> str:
    if _owner(name, mine) != "other":
        return name
    # What was imported into another project by name makes that the repository's
    names = (path.parent.name for path in (home() / "projects").glob(f"*/{ORIGIN_FILE}"))
    bound = [project for project in names if _owner(project, mine) == "mine"]
    if len(bound) == 1:
        return bound[0]
    choices = list(dict.fromkeys([name, *(slug for slug in map(project_slug, alternatives[:_MAX_CHOICES]) if slug)]))
    if len(choices) == 1:
        choices.append(f"{name[:62]}-2")
    theirs = " and ".join(_where(origin) for origin in _bound_origins(name))
    raise Invalid(
        f"the project {name} belongs to {theirs}, and this is {_where(mine)}; {_HOW}: the same id to share its "
        "memories, another to keep them apart",
        choices=choices,
    )


def _store_folder(project_id: str) -> Path:
    return home() / "projects" / project_id


def _origin(directory: Path, repository: Repository | None) -> dict[str, str]:
    if repository is None:
        return {"directory": str(directory)}
    origin = {"common_dir": str(repository.common_dir)}
    if url := repository.remotes.get("origin") or next(iter(repository.remotes.values()), ""):
        origin["remote"] = remote_identity(url)
    return origin


def _bound_origins(project_id: str) -> list[dict[str, str]]:
    import json

    try:
        origins = json.loads((_store_folder(project_id) / ORIGIN_FILE).read_text("utf-8", "surrogateescape"))["origins"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not isinstance(origins, list):
        return []
    return [origin for origin in origins if isinstance(origin, dict)]


def _owner(project_id: str, mine: dict[str, str]) -> str:
    if not _store_folder(project_id).is_dir():
        return "nobody"
    origins = _bound_origins(project_id)
    if not origins:
        return "unknown"
    if any(_is_same(mine, origin) for origin in origins):
        return "mine"
    return "other"


def _is_same(mine: dict[str, str], origin: dict[str, str]) -> bool:
    # The same place or remote, or a place that no longer exists.
    if any(mine.get(key) and mine.get(key) == origin.get(key) for key in ("common_dir", "remote", "directory")):
        return True
    place = origin.get("common_dir") or origin.get("directory") or ""
    # Path.exists raises for what no file system can hold.
    return not origin.get("remote") and not mine.get("remote") and not os.path.exists(place)  # noqa: PTH110


def _where(origin: dict[str, str]) -> str:
    return origin.get("remote") or origin.get("common_dir") or origin.get("directory") or "an unknown place"


# A hook's event is passive: nobody asked for it. So it creates a project only for a folder that is one for sure; a
# command, a tool call or an import creates one for any folder.


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
    if place.project:
        return place
    try:
        return replace(place, project=project_of_folder(place.folder))
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
