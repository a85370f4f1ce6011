from __future__ import annotations

from pydantic import Field

from memoryhub.core.schemas import Command
from memoryhub.core.text import hanging
from memoryhub.core.tools import Prompt, register_prompts


class SessionBeginning(Command):
    purpose: str = Field(min_length=1, max_length=2_000, description="goal of the session")


class SessionSummary(Command):
    focus: str = Field("", max_length=2_000, description="what the summary should focus on")


def begin_session(session: SessionBeginning) -> str:
    return f"""\
Start a work session: {hanging(session.purpose)}

1. Call session_start with this purpose.
2. Call memory_search with the purpose as a question in plain words, and again with the names that it \
mentions; read decisive hits with memory_get.
3. Summarise in a few lines what is known about it: preferences, decisions, earlier attempts, open questions. Cite \
the id of each memory, such as #412, and its date. If nothing is known, report that; infer nothing.
4. Propose the first step, and wait for my confirmation."""


def summarize_session(summary: SessionSummary) -> str:
    focus = f" Focus on: {hanging(summary.focus)}." if summary.focus else ""
    return f"""\
End this work session with a summary for the next session.{focus}

1. Review the whole session. Store what stays useful beyond it (a preference, a fix, a convention, a fact about the \
code) with memory_write, one fact per memory, unless it is stored already; correct what turned out to be wrong with \
memory_update.
2. Call session_end with a summary in three parts: what was done, with the files and commits; what was learnt, with \
the ids of the memories; what is open, with the next step.
3. Show me the summary as you sent it."""


PROMPTS = [
    Prompt("session-start", "Start a session with what is known about its purpose", SessionBeginning, begin_session),
    Prompt(
        "session-summary",
        "End the session: store what was learnt and summarise what is done and open",
        SessionSummary,
        summarize_session,
    ),
]

register_prompts(*PROMPTS)
