"""Find the project of a folder, and list the hub's projects for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from memoryhub.config.current_settings import project_settings, settings_decided_by
from memoryhub.config.identity import bound_folders, identify_project, renamed_hint, settings_of_folder
from memoryhub.config.repository import Repository, find_repository, remote_identity, remote_name, resolved
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import NotFound
from memoryhub.core.slugs import project_slug
from memoryhub.core.stores.store import StoreId, folder_of, list_projects, project_store, require_stayed
from memoryhub.registry.projects import ProjectCard, ProjectDetails, card_fields, details_fields
from memoryhub.registry.store_cards import StoreOverview, overview_fields, read_card
from sessions_app.selectors import profile


@dataclass(frozen=True, slots=True)
class ProjectLookup:
    project: str
    because: str


class ProjectRow(StoreOverview, ProjectCard):
    folder: str = Field("", description="recorded folder, else the one in its description")
    bytes: int = 0


def locate(directory: Path) -> ProjectLookup:
    """Return the project of a folder, and the reason.

    Raises:
        Invalid: the project is ambiguous or its name can't be an id; ``choices`` in the data lists the candidates.
    """
    directory = resolved(directory)
    project = identify_project(project=None, directory=directory)
    path, settings = settings_of_folder(directory)
    if "project" in settings:
        return ProjectLookup(project, f"{path} says so")
    repository = find_repository(directory)
    if repository:
        return ProjectLookup(project, _of_repository(repository, project))
    return ProjectLookup(project, f"the folder is named {directory.name}, and is in no git repository")


def project_rows() -> list[ProjectRow]:
    """Return the hub's projects by id; ``problem`` is set if a store cannot be read."""
    return [_project_row(project) for project in list_projects()]


def row_of(project: str) -> ProjectRow | None:
    """Return one project as in the list; None if it has no store yet."""
    if not stores.exists(project_store(project)):
        return None
    return _project_row(project)


def project_in_full() -> tuple[ProjectDetails, dict[str, tuple[Any, str]]]:
    """Return the current project, and each setting that isn't a default with its value and source."""
    values = project_settings().model_dump(mode="json")
    decided = {name: (values[name], by) for name, by in settings_decided_by().items()}
    return ProjectDetails(**details_fields()), decided


def require_project(project: str) -> None:
    if not stores.exists(project_store(project)):
        require_stayed(project_store(project))
        raise NotFound(f"there is no project {project!r}; see `memory-hub project list`", choices=list_projects())


def require_project_of(directory: Path, project: str) -> None:
    """Raise NotFound, with the next command, if the project of a folder does not exist yet."""
    if project in list_projects():
        return
    require_stayed(project_store(project))
    if hint := renamed_hint(directory, project):
        raise NotFound(f"the project {project!r} does not exist yet; {hint}")
    if find_repository(resolved(directory)):
        raise NotFound(
            f"the project {project!r} of this repository does not exist yet; `memory-hub import git` creates it"
        )
    raise NotFound(
        f"this folder belongs to no project; pass --project ID (`memory-hub project list` shows them), or create one "
        f"with `memory-hub project create {project}`"
    )


def _of_repository(repository: Repository, project: str) -> str:
    urls = {name: url for name, url in repository.remotes.items() if project_slug(remote_name(url)) == project}
    if urls:
        name, url = next(((name, url) for name, url in urls.items() if name == "origin"), next(iter(urls.items())))
        return f"the git remote {name} is {remote_identity(url)}"
    return f"the git repository is in {repository.folder}"


def _project_row(project: str) -> ProjectRow:
    store = project_store(project)
    return read_card(store, ProjectRow, lambda: _fields(project), project_id=project, bytes=_bytes(store))


def _fields(project: str) -> dict[str, Any]:
    folder = next((str(folder) for folder in bound_folders(project)), "") or profile().root_path
    return {**card_fields(), **overview_fields(), "folder": folder}


def _bytes(store: StoreId) -> int:
    folder = folder_of(store)
    files = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return sum({**files, **stores.sizes(store)}.values())
