"""The MCP prompts of sessions and memories: what a user may ask for in one step."""

from __future__ import annotations

from pydantic import Field

from memoryhub.core.schemas import Command
from memoryhub.core.text import hanging
from memoryhub.core.tools import Prompt, register_prompts


class SessionBeginning(Command):
    """What ``session-start`` takes."""

    purpose: str = Field(min_length=1, max_length=2_000, description="what the session is for")


class SessionSummary(Command):
    """What ``session-summary`` takes."""

    focus: str = Field("", max_length=2_000, description="what the summary should dwell on")


def begin_session(given: SessionBeginning) -> str:
    """Return the request to begin a session with what is known."""
    return f"""\
Begin a session of work: {hanging(given.purpose)}

1. Call session_start with this purpose.
2. Call memory_search with the purpose as a question in plain words, and again with the names of the things it speaks \
of; read with memory_get what looks decisive.
3. Tell me in a few lines what is known that bears on it: preferences, decisions, earlier attempts, open ends. Cite \
the id of each memory, such as #412, and its date. Where nothing is known, say so; infer nothing.
4. Then say what you would do first, and wait for my word."""


def summarize_session(given: SessionSummary) -> str:
    """Return the request to end a session with a summary."""
    dwell = f" Dwell on: {hanging(given.focus)}." if given.focus else ""
    return f"""\
End this session of work with a summary for whoever goes on with it.{dwell}

1. Look back over the whole session. What came up that will hold beyond it (a preference, a fix, a convention, a fact \
about the code) and is not kept yet, keep with memory_write, one thing a memory; what turned out to be wrong, correct \
with memory_update.
2. Call session_end with a summary in three parts: what was done, with the files and commits; what was learnt, with \
the ids of the memories; what is left open, with the next step.
3. Show me the summary as you sent it."""


PROMPTS = [
    Prompt(
        "session-start",
        "Begin a session: what is known about its purpose, with evidence",
        SessionBeginning,
        begin_session,
    ),
    Prompt(
        "session-summary",
        "End the session: keep what was learnt, and sum up what is done and open",
        SessionSummary,
        summarize_session,
    ),
]

register_prompts(*PROMPTS)
