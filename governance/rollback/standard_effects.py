"""The effects on memories, relations and quarantine. Apps declare their own beside their events."""

from __future__ import annotations

from governance.rollback import execute
from governance.rollback.changes import plan_memories
from governance.rollback.tracing import plan_relations
from governance.rollback.undo import undo_memories, undo_nothing, undo_quarantine, undo_relations
from memories.events import MEMORY_DELETED, MEMORY_RESTORED
from memoryhub.core.events.event_types import require_effects
from memoryhub.core.events.rollback import Effect, define_effect

# Names are made free before others take them; which decisions are in force is known before one is marked.
for effect in (
    Effect("quarantine", 10, "set aside", apply=execute.quarantine, undo=undo_quarantine, in_one_event=True),
    Effect("delete", 20, "deleted", apply=execute.touching(MEMORY_DELETED), plan=plan_memories, undo=undo_memories),
    Effect("unrelate", 30, "no longer related", apply=execute.unrelate, undo=undo_nothing),
    Effect(
        "revert", 40, "put back to an earlier version", apply=execute.revert, plan=plan_memories, undo=undo_memories
    ),
    Effect("restore", 50, "restored", apply=execute.touching(MEMORY_RESTORED), plan=plan_memories, undo=undo_memories),
    Effect("lift", 60, "let out", apply=execute.lift, undo=undo_nothing, in_one_event=True),
    Effect("review", 70, "review put back", apply=execute.review, plan=plan_memories, undo=undo_memories),
    Effect("relate", 80, "related again", apply=execute.relate, plan=plan_relations, undo=undo_relations),
):
    define_effect(effect)

# This module is imported last, when every app has defined its event types and effects.
require_effects()
