"""MCP tools of organisations and projects."""

from __future__ import annotations

from memoryhub.core.schemas import Paging
from memoryhub.core.tools import Answer, Tool, ToolGroup, listed, register_tools
from memoryhub.registry import organizations, projects
from memoryhub.registry.organizations import OrgCreate
from memoryhub.registry.projects import ProjectCard, ProjectCreate, ProjectGet, ProjectList
from memoryhub.registry.store_cards import org_line, org_text, project_line, project_text


class OrgList(Paging):
    """List organisations in order of their ids."""


def create_org(command: OrgCreate) -> Answer:
    data = organizations.create_org(command=command).model_dump(mode="json")
    return Answer(org_text(data), data)


def list_orgs(command: OrgList) -> Answer:
    return listed(
        organizations.list_orgs(command=command), org_line, none="no organisation yet; create one with org_create"
    )


def create_project(command: ProjectCreate) -> Answer:
    return _project_answer(projects.create_project(command=command))


def list_projects(command: ProjectList) -> Answer:
    return listed(projects.list_projects(command=command), project_line, none="no project matches")


def get_project(command: ProjectGet) -> Answer:
    return _project_answer(projects.get_project(command=command))


def _project_answer(project: ProjectCard) -> Answer:
    data = project.model_dump(mode="json")
    return Answer(project_text(data), data)


TOOLS = [
    Tool(
        "org_create",
        "Create an organisation; its projects inherit its memories.",
        OrgCreate,
        create_org,
        group=ToolGroup.SCOPES,
        writes=True,
        full_name="memory_org_create",
    ),
    Tool("org_list", "List organisations.", OrgList, list_orgs, group=ToolGroup.SCOPES, full_name="memory_org_list"),
    Tool(
        "project_create",
        "Create a project, or with if_exists=update describe this one.",
        ProjectCreate,
        create_project,
        group=ToolGroup.SCOPES,
        writes=True,
        full_name="memory_project_create",
    ),
    Tool(
        "project_list",
        "List projects.",
        ProjectList,
        list_projects,
        group=ToolGroup.SCOPES,
        full_name="memory_project_list",
    ),
    Tool(
        "project_get",
        "Describe this project: organisation, metadata, counts.",
        ProjectGet,
        get_project,
        group=ToolGroup.SCOPES,
        full_name="memory_project_get",
    ),
]

register_tools(*TOOLS)
