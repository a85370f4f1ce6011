"""The effects on memories, relations and quarantine. Apps declare their own beside their events."""

from __future__ import annotations

from governance.taint import perform
from governance.taint.relations import plan_relations
from governance.taint.reversing import plan_memories
from governance.taint.undoing import undo_memories, undo_nothing, undo_quarantine, undo_relations
from memories.events import MEMORY_DELETED, MEMORY_RESTORED
from memoryhub.core.rollback import Effect, define_effect

# Names are made free before others take them; which decisions are in force is known before one is marked.
for effect in (
    Effect("quarantine", 10, "set aside", apply=perform.quarantine, undo=undo_quarantine, in_one_event=True),
    Effect("delete", 20, "deleted", apply=perform.touching(MEMORY_DELETED), plan=plan_memories, undo=undo_memories),
    Effect("unrelate", 30, "no longer related", apply=perform.unrelate, undo=undo_nothing),
    Effect(
        "revert", 40, "put back to an earlier version", apply=perform.revert, plan=plan_memories, undo=undo_memories
    ),
    Effect("restore", 50, "restored", apply=perform.touching(MEMORY_RESTORED), plan=plan_memories, undo=undo_memories),
    Effect("lift", 60, "let out", apply=perform.lift, undo=undo_nothing, in_one_event=True),
    Effect("review", 70, "review put back", apply=perform.review, plan=plan_memories, undo=undo_memories),
    Effect("relate", 80, "related again", apply=perform.relate, plan=plan_relations, undo=undo_relations),
):
    define_effect(effect)
