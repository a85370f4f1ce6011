from __future__ import annotations

from collections.abc import Sequence

from memories import scopes
from memories.events import TAG_CREATED, TagCreated
from memories.models import PROJECT, EndType, Tag
from memories.references import end_id, require_ends, view_end
from memories.schemas import MemoryUpdate, WriteStatus
from memories.schemas.links import TagAttach, TagCreate, TagDetach, TagResult, TagsChanged
from memories.selectors.tags import tag_names, view_tags
from memories.services.results import live_memory
from memories.services.revise import update_memory
from memories.vocabulary import PREDEFINED
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Gone, Invalid
from memoryhub.core.text import flat
from sessions_app.events.work import PROJECT_DESCRIBED
from sessions_app.schemas import OrgDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe

MAX_ON_MEMORY = 32
MAX_ON_PROJECT = 50


def create_tag(*, command: TagCreate) -> TagResult:
    """Describe a new tag; a tag that is only used so far can be described.

    Raises:
        Conflict: it is predefined or described already.
    """
    payload = TagCreated(name=command.name, category=command.category, description=command.description)
    draft = log.prepare(TAG_CREATED, payload)
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, TAG_CREATED)
        if first:
            return _described(first.position, draft.redactions)
        _refuse_known(draft.payload.name)
        event = log.append(draft, entity="tag", idempotency_key=command.idempotency_key)
        return _described(event.position, draft.redactions)


def _refuse_known(name: str) -> None:
    if name in PREDEFINED:
        raise Conflict(
            f"tag {name!r} is predefined in category {PREDEFINED[name]}; use it as it is, or describe another name"
        )
    described = Tag.objects.filter(name=name).first()
    if described:
        raise Conflict(
            f"tag {name!r} is described already in category {described.category}; use it as it is, or describe another "
            "name",
            id=described.id,
        )


def _described(tag_id: int, redactions: Sequence[str]) -> TagResult:
    found = [tag for tag in view_tags() if tag.id == tag_id]
    if not found:
        raise Gone(
            f"the description of tag #{tag_id} was erased; create it again under a new idempotency_key", id=tag_id
        )
    return TagResult(**found[0].model_dump(), redacted=list(redactions))


def attach_tags(*, command: TagAttach) -> TagsChanged:
    """Add tags to a memory, as a new version, or to the project.

    Raises:
        NotFound: there is no such memory or tag id.
        Gone: the memory is deleted.
        Invalid: there would be too many tags, or the reference names an entity of another store.
    """
    return _retag(command, "attached")


def detach_tags(*, command: TagDetach) -> TagsChanged:
    """Remove tags from a memory, as a new version, or from the project.

    Raises:
        NotFound, Gone, Invalid: as ``attach_tags``.
    """
    return _retag(command, "detached")


def _retag(command: TagAttach, verb: str) -> TagsChanged:
    with scopes.writing(command.scope), log.transaction():
        target, names = end_id("id", command.id, command.entry_type), tag_names(command.tags)
        if target == PROJECT:
            return _retag_project(names, command, verb)
        if command.entry_type:
            require_ends(("id", target, command.entry_type))
        return _retag_memory(target, names, command, verb)


def _retag_memory(memory_id: int, names: list[str], command: TagAttach, verb: str) -> TagsChanged:
    # Older versions of the hub accepted tags with line breaks
    before = [flat(tag) for tag in live_memory(memory_id).tags]
    changed = _changed(before, names, verb)
    result = update_memory(
        command=MemoryUpdate(
            id=memory_id,
            scope=command.scope,
            tags=_after(before, changed, verb, MAX_ON_MEMORY),
            change_reason=f"tags {verb}: {', '.join(changed)}"[:1_000],
            idempotency_key=command.idempotency_key,
        )
    )
    if result.status is not WriteStatus.UNCHANGED:
        changed = changed or names  # a repeated call
    return TagsChanged(
        type=EndType.MEMORY,
        changed=changed,
        tags=live_memory(memory_id).tags,
        **result.model_dump(include={"id", "title", "scope", "version", "status", "redacted"}),
    )


def _retag_project(names: list[str], command: TagAttach, verb: str) -> TagsChanged:
    before = [flat(tag) for tag in profile().tags]
    is_repeated = log.find_by_key(command.idempotency_key, PROJECT_DESCRIBED)
    changed = names if is_repeated else _changed(before, names, verb)
    redacted: tuple[str, ...] = ()
    if changed and not is_repeated:
        tags = _after(before, changed, verb, MAX_ON_PROJECT)
        redacted = describe(command=OrgDescribe(tags=tags, idempotency_key=command.idempotency_key)).redacted
    (end,) = require_ends(("id", PROJECT, None))
    return TagsChanged(
        **view_end(end).model_dump(include={"id", "type", "title"}),
        scope=scopes.own_scope(),
        version=None,
        status=WriteStatus.UPDATED if changed else WriteStatus.UNCHANGED,
        changed=changed,
        tags=profile().tags,
        redacted=list(redacted),
    )


def _changed(before: list[str], names: list[str], verb: str) -> list[str]:
    return [name for name in names if (name in before) == (verb == "detached")]


def _after(before: list[str], changed: list[str], verb: str, most: int) -> list[str]:
    if verb == "detached":
        return [name for name in before if name not in changed]
    after = [*before, *changed]
    if len(after) > most:
        raise Invalid(f"'tags': {len(after)} tags are too many, the limit is {most}; detach some first")
    return after
