"""Create, describe and list projects. Needs only the stores, not hub.db.

From inside a project's store, as in an MCP server, other projects can be created but not changed, and only their
cards can be read.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memoryhub.config.current_settings import project_settings, settings_decided_by
from memoryhub.config.identity import bound_folders, identify_project, renamed_hint, settings_of_folder
from memoryhub.config.repository import Repository, find_repository, remote_identity, remote_name, resolved
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.permissions import TO_MAKE_PLACES, Act, demand
from memoryhub.core.schemas import Command, Listing, Paging, self_evident
from memoryhub.core.slugs import DIGEST_PREFIX, project_id_of, project_slug
from memoryhub.core.stores.store import StoreId, current_store, folder_of, project_store, require_stayed, use_store
from memoryhub.core.stores.store import list_projects as project_ids
from memoryhub.registry.store_cards import (
    IfTaken,
    Problem,
    Redacted,
    ShortDescription,
    StoreOverview,
    WithIdFromName,
    create_described,
    name_fields,
    occurred_at,
    overview_fields,
    page_of_cards,
    place_to_describe,
    project_line,
    read_card,
    store_here,
)
from sessions_app.events import Slug
from sessions_app.models import Commit, Session
from sessions_app.schemas import ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe


class ProjectCreate(WithIdFromName, ProjectDescribe):
    project_id: Slug = Field(alias="id", description="1-64 of a-z 0-9 . _ -")
    if_exists: IfTaken = Field(
        IfTaken.ERROR, description="update: describe the existing one", json_schema_extra=self_evident
    )


class ProjectList(Paging):
    org_id: Slug | None = Field(None, description="only of this organisation", json_schema_extra=self_evident)


class ProjectGet(Command):
    """Get one project."""

    model_config = ConfigDict(populate_by_name=True)

    project_id: Slug | None = Field(None, alias="id", description="default: this one")


class ProjectCard(BaseModel):
    """What every project can see of another."""

    project_id: str
    name: str = ""
    description: ShortDescription = ""
    org_id: str | None = None
    problem: Problem = ""


class ProjectDetails(StoreOverview, ProjectCard):
    description: str = ""
    root_path: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    sessions: int = 0
    commits: int = 0
    created_at: datetime | None = Field(None, description="time of its first event")
    described_at: datetime | None = None
    redacted: Redacted = Field(default_factory=list)


class ProjectRow(StoreOverview, ProjectCard):
    folder: str = Field("", description="recorded folder, else the one in its description")
    bytes: int = 0


def create_project(*, command: ProjectCreate) -> ProjectCard:
    """Create a project's store and describe it, or update an existing one.

    Returns:
        ``ProjectDetails``, or only the card if the caller works in another project.

    Raises:
        ConflictError: the id exists, and ``if_exists`` is ``error``.
        Forbidden: it exists, and the caller works in another project.
        NotFound: there is no such organisation.
    """
    store = project_store(command.project_id)
    demand(Act.GOVERN, to=TO_MAKE_PLACES, place=place_to_describe(store))
    here = store_here()
    refusal = ""
    if here not in (None, store):
        refusal = f"project {store.name!r} can be described only from inside it; this server is bound to {here.name!r}"
    redacted = create_described(store=store, command=command, if_exists=command.if_exists, refusal=refusal)
    return _view(store, redacted)


def describe_project(*, project_id: str, command: ProjectDescribe) -> ProjectDetails:
    """Change a project's description; omitted fields stay unchanged."""
    with use_store(project_store(project_id)):
        return ProjectDetails(redacted=list(describe(command=command).redacted), **details_fields())


def list_projects(*, command: ProjectList) -> Listing:
    return page_of_cards(projects_of(command.org_id), command, project_card, id_field="project_id", line=project_line)


def get_project(*, command: ProjectGet) -> ProjectCard:
    """Return the details of the caller's project, or the card of another one."""
    here = store_here()
    if command.project_id:
        return _view(project_store(command.project_id))
    if here is None:
        raise Invalid("there is no current project; pass an id")
    return _view(here)


def projects_of(org_id: str | None) -> list[str]:
    """Return the ids of an organisation's projects, or of all projects."""
    if org_id is None:
        return project_ids()
    return projects_by_org().get(org_id, [])


def projects_by_org() -> dict[str, list[str]]:
    projects: dict[str, list[str]] = {}
    for project_id in project_ids():
        org = project_card(project_id).org_id
        if org is not None:
            projects.setdefault(org, []).append(project_id)
    return projects


def project_card(project_id: str) -> ProjectCard:
    return read_card(project_store(project_id), ProjectCard, card_fields, project_id=project_id)


def card_fields() -> dict[str, Any]:
    described = profile()
    fields = name_fields(described)
    return {**fields, "name": fields["name"] or _name_of_folder(current_store().name), "org_id": described.org}


# An id that is a digest says nothing
def _name_of_folder(project_id: str) -> str:
    if not project_id.startswith(DIGEST_PREFIX):
        return ""
    names = (folder.name for folder in bound_folders(project_id))
    return next((name for name in names if project_id_of(name) == project_id), "")


def details_fields() -> dict[str, Any]:
    described = profile()
    return {
        "project_id": current_store().name,
        **card_fields(),
        **described.model_dump(include={"description", "root_path", "metadata", "tags"}),
        **overview_fields(),
        "sessions": Session.objects.count(),
        "commits": Commit.objects.count(),
        "created_at": occurred_at(1),
        "described_at": described.updated_at,
    }


def _view(store: StoreId, redacted: tuple[str, ...] = ()) -> ProjectCard:
    sees_details = store_here() in (None, store)
    with use_store(store):
        if sees_details:
            return ProjectDetails(**details_fields(), redacted=list(redacted))
        return ProjectCard(project_id=store.name, **card_fields())


def locate(directory: Path) -> tuple[str, str]:
    """Return the project of a folder, and the reason.

    Raises:
        Invalid: the project is ambiguous or its name can't be an id; ``choices`` in the data lists the candidates.
    """
    directory = resolved(directory)
    project = identify_project(project=None, directory=directory)
    path, settings = settings_of_folder(directory)
    if "project" in settings:
        return project, f"{path} says so"
    repository = find_repository(directory)
    if repository:
        return project, _of_repository(repository, project)
    return project, f"the folder is named {directory.name}, and is in no git repository"


def project_rows() -> list[ProjectRow]:
    """Return the hub's projects by id; ``problem`` is set if a store cannot be read."""
    return [_project_row(project) for project in project_ids()]


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
        raise NotFound(f"there is no project {project!r}; see `memory-hub project list`", choices=project_ids())


def require_project_of(directory: Path, project: str) -> None:
    """Raise NotFound, with the next command, if the project of a folder does not exist yet."""
    if project in project_ids():
        return
    require_stayed(project_store(project))
    if hint := renamed_hint(directory, project):
        raise NotFound(f"the project {project!r} does not exist yet; {hint}")
    if find_repository(resolved(directory)):
        raise NotFound(f"the project {project!r} of this repository does not exist yet; `memory-hub start` creates it")
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
