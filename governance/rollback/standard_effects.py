"""Effects on memories, relations and quarantine. Apps declare others beside their events."""

from __future__ import annotations

from governance.rollback import reversal
from governance.rollback.plan import plan_relations
from governance.rollback.reversal import plan_memories
from governance.rollback.service import undo_memories, undo_nothing, undo_quarantine, undo_relations
from memories.events import MEMORY_DELETED, MEMORY_RESTORED
from memoryhub.core.events.event_types import require_effects
from memoryhub.core.events.rollback import Effect, define_effect

# In this order: names are freed before others take them, and decisions are in force before one is marked
for effect in (
    Effect("quarantine", 10, "quarantined", apply=reversal.quarantine, undo=undo_quarantine, in_one_event=True),
    Effect(
        "delete",
        20,
        "deleted",
        apply=reversal.append_to_memories(MEMORY_DELETED),
        plan=plan_memories,
        undo=undo_memories,
    ),
    Effect("unrelate", 30, "no longer related", apply=reversal.unrelate, undo=undo_nothing),
    Effect(
        "revert", 40, "reverted to an earlier version", apply=reversal.revert, plan=plan_memories, undo=undo_memories
    ),
    Effect(
        "restore",
        50,
        "restored",
        apply=reversal.append_to_memories(MEMORY_RESTORED),
        plan=plan_memories,
        undo=undo_memories,
    ),
    Effect("lift", 60, "released from quarantine", apply=reversal.lift, undo=undo_nothing, in_one_event=True),
    Effect("review", 70, "review restored", apply=reversal.review, plan=plan_memories, undo=undo_memories),
    Effect("relate", 80, "related again", apply=reversal.relate, plan=plan_relations, undo=undo_relations),
):
    define_effect(effect)

# Here, because this module is imported last, when every app has defined its event types and effects (decision 40)
require_effects()
