"""Effects on memories, relations and quarantine. Apps declare others beside their events."""

from __future__ import annotations

from functools import partial

from governance.rollback import reversal
from memories.events import MEMORY_DELETED, MEMORY_RESTORED
from memoryhub.core.events.event_types import require_effects
from memoryhub.core.events.rollback import Effect, define_effect

_put_memories_back = partial(Effect, plan=reversal.plan_memories, undo=reversal.undo_memories)

# In this order: names are freed before others take them, and decisions are in force before one is marked
for effect in (
    Effect(
        "quarantine", 10, "quarantined", apply=reversal.quarantine, undo=reversal.undo_quarantine, in_one_event=True
    ),
    _put_memories_back("delete", 20, "deleted", apply=reversal.append_to_memories(MEMORY_DELETED)),
    Effect("unrelate", 30, "no longer related", apply=reversal.unrelate, undo=reversal.undo_nothing),
    _put_memories_back("revert", 40, "reverted to an earlier version", apply=reversal.revert),
    _put_memories_back("restore", 50, "restored", apply=reversal.append_to_memories(MEMORY_RESTORED)),
    Effect("lift", 60, "released from quarantine", apply=reversal.lift, undo=reversal.undo_nothing, in_one_event=True),
    _put_memories_back("review", 70, "review restored", apply=reversal.review),
    Effect(
        "relate", 80, "related again", apply=reversal.relate, plan=reversal.plan_relations, undo=reversal.undo_relations
    ),
):
    define_effect(effect)

# Here, because this module is imported last, when every app has defined its event types and effects (decision 40)
require_effects()
