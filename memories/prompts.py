"""MCP prompts to begin and to end a session."""

from __future__ import annotations

from pydantic import Field

from memoryhub.core.schemas import Command
from memoryhub.core.text import hanging
from memoryhub.core.tools import Prompt, register_prompts


class SessionBeginning(Command):
    purpose: str = Field(min_length=1, max_length=2_000, description="goal of the session")


class SessionSummary(Command):
    focus: str = Field("", max_length=2_000, description="what the summary should focus on")


def begin_session(given: SessionBeginning) -> str:
    return f"""\
Begin a session: {hanging(given.purpose)}

1. Call session_start with this purpose.
2. Call memory_search with the purpose as a question in plain words, and again with the names that it mentions; read \
the relevant results with memory_get.
3. Summarize in a few lines what is relevant: preferences, decisions, earlier attempts, open work. Cite the id of \
each memory, such as #412, and its date. If there is nothing, say so; infer nothing.
4. Propose the first step and wait for my answer."""


def summarize_session(given: SessionSummary) -> str:
    focus = f" Focus on: {hanging(given.focus)}." if given.focus else ""
    return f"""\
End this session with a summary for the next one.{focus}

1. Review the whole session. Save what is useful beyond it and not stored yet (a preference, a fix, a convention, a \
fact about the code) with memory_write, one fact per memory. Correct what turned out to be wrong with memory_update.
2. Call session_end with a summary in three parts: what was done, with the files and commits; what was learnt, with \
the ids of the memories; what is left open, with the next step.
3. Show me the summary that you sent."""


PROMPTS = [
    Prompt(
        "session-start",
        "Begin a session with what is known about its purpose",
        SessionBeginning,
        begin_session,
    ),
    Prompt(
        "session-summary",
        "End the session: save what was learnt, and summarize what is done and open",
        SessionSummary,
        summarize_session,
    ),
]

register_prompts(*PROMPTS)
