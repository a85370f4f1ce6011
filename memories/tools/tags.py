from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from memories.present import relation_line, relation_text, tag_line, tag_text, tags_changed_text
from memories.schemas.links import (
    RelationCreate,
    RelationDelete,
    RelationList,
    RelationResult,
    TagAttach,
    TagCreate,
    TagDetach,
    TagList,
)
from memories.selectors import memories as existing_tags
from memories.selectors import relations as existing_relations
from memories.services import links
from memoryhub.core.errors import Invalid
from memoryhub.core.tools import Answer, Tool, ToolGroup, listed, register_tools
from memoryhub.core.validation import explain

C = TypeVar("C", bound=BaseModel)


def parsed(schema: type[C], parameters: dict[str, Any]) -> C:
    try:
        return schema.model_validate(parameters)
    except ValidationError as error:
        raise Invalid(explain(error)) from error


_ENTRY = {"entry_id": "id", "memory_id": "id", "tag": "tags", "tag_id": "tags", "tag_name": "tags"}
_ENDS = {"source_id": "source", "target_id": "target", "relation_type": "relation"}
_RELATED = {**_ENDS, "created_by": "author"}


def create_tag(command: TagCreate) -> Answer:
    result = links.create_tag(command=command)
    return Answer(tag_text(result), result.model_dump(mode="json"))


def list_tags(command: TagList) -> Answer:
    return listed(existing_tags.list_tags(command=command), tag_line, none="no tag matches")


def attach_tags(command: TagAttach) -> Answer:
    result = links.attach_tags(command=command)
    return Answer(tags_changed_text(result, "attached"), result.model_dump(mode="json"))


def detach_tags(command: TagDetach) -> Answer:
    result = links.detach_tags(command=command)
    return Answer(tags_changed_text(result, "detached"), result.model_dump(mode="json"))


def create_relation(command: RelationCreate) -> Answer:
    return _answer(links.create_relation(command=command))


def list_relations(command: RelationList) -> Answer:
    return listed(existing_relations.list_relations(command=command), relation_line, none="no relation matches")


def delete_relation(command: RelationDelete) -> Answer:
    return _answer(links.delete_relation(command=command))


def _answer(result: RelationResult) -> Answer:
    return Answer(relation_text(result), result.model_dump(mode="json"))


TOOLS = [
    Tool(
        "tag_create",
        "Describe a tag. Tags can be used without.",
        TagCreate,
        create_tag,
        group=ToolGroup.TAGS,
        writes=True,
        full_name="memory_tag_create",
    ),
    Tool(
        "tag_list",
        "List tags with category and number of memories.",
        TagList,
        list_tags,
        group=ToolGroup.TAGS,
        full_name="memory_tag_list",
        renamed={"entry_id": "id", "memory_id": "id"},
    ),
    Tool(
        "tag_attach",
        "Attach tags to a memory or the project, as a new version.",
        TagAttach,
        attach_tags,
        group=ToolGroup.TAGS,
        writes=True,
        idempotent=True,
        full_name="memory_tag_attach",
        renamed=_ENTRY,
    ),
    Tool(
        "tag_detach",
        "Detach tags from a memory or the project, as a new version.",
        TagDetach,
        detach_tags,
        group=ToolGroup.TAGS,
        writes=True,
        idempotent=True,
        full_name="memory_tag_detach",
        renamed=_ENTRY,
    ),
    Tool(
        "relation_create",
        "Relate two memories, decisions, commits, sessions, or the project.",
        RelationCreate,
        create_relation,
        group=ToolGroup.TAGS,
        writes=True,
        idempotent=True,
        full_name="memory_relation_create",
        renamed=_RELATED,
    ),
    Tool(
        "relation_list",
        "List relations, of one thing or all.",
        RelationList,
        list_relations,
        group=ToolGroup.TAGS,
        full_name="memory_relation_list",
        renamed={"entry_id": "id", **_ENDS},
    ),
    Tool(
        "relation_delete",
        "Delete a relation.",
        RelationDelete,
        delete_relation,
        group=ToolGroup.TAGS,
        writes=True,
        full_name="memory_relation_delete",
        renamed={"relation_id": "id", **_ENDS},
    ),
]

register_tools(*TOOLS)
