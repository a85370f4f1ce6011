"""The form in which a client takes context from its hooks. Standard library only: hooks use it."""

from __future__ import annotations


def hook_answer(key: str, event: str, text: str) -> dict[str, object]:
    """Return what a hook prints so that its client adds ``text`` to its model's context.

    Args:
        key: ``answer`` in the client's table; "" for the form of Claude Code.
        event: the client's name of the event.
        text: the context.
    """
    return {key: text} if key else {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
