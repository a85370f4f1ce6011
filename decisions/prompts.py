"""The MCP prompts of decisions: to ask what was decided, and to record what is decided now."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from memoryhub.core.schemas import Command
from memoryhub.core.text import hanging
from memoryhub.core.tools import Prompt, register_prompts

AGENT_FILE = Path(__file__).with_name("librarian.md")
"""Front matter between ``---`` lines (name, description, tools, model, colour), then what the librarian is told."""


def agent_file() -> str:
    """Return the whole agent file."""
    return AGENT_FILE.read_text()


def instructions() -> str:
    """Return what the librarian is told, without the front matter."""
    return agent_file().split("\n---\n", 1)[1].strip()


class LibrarianQuestion(Command):
    """What ``librarian`` takes."""

    question: str = Field("", max_length=2_000, description="what you want to know about the past")


class DecisionToRecord(Command):
    """What ``record-decision`` takes."""

    decision: str = Field("", max_length=2_000, description="what was decided; default: the last choice made here")


def ask_librarian(given: LibrarianQuestion) -> str:
    """Return what the librarian is told, with the question."""
    asked = (
        f"The question: {hanging(given.question)}" if given.question else "Ask me what I want to know, and wait for it."
    )
    return f"{instructions()}\n\n{asked}"


def record_decision(given: DecisionToRecord) -> str:
    """Return the request to record a decision."""
    subject = hanging(given.decision) or "the last choice that we made in this conversation"
    return f"""\
Record this decision, so that whoever comes later can know it and why it was made: {subject}

1. Call memory_search with its subject, sources=["decision"], to see what was decided about it before. Where an \
earlier decision is replaced, read it with decision_get.
2. Call decision_record with: title (what it is about, short), context (the problem and what constrains it), chosen \
(the choice, in a sentence or two), alternatives (each as option and why_not, also those that were dismissed at \
once), rationale (why this one), impact (low, medium, high or critical), files (what it concerns), and supersedes with \
the id of the decision that it replaces, if there is one. Take all of it from this conversation; ask me for what is \
missing rather than inventing it.
3. If commits already carry it out, name their hashes in commits; in later ones, write a line "Decision: #id" at the \
end of the message.
4. Show me the id, and what you recorded, in a few lines."""


PROMPTS = [
    Prompt(
        "librarian",
        "Ask about the project's past: answered from the records alone, each statement with its source",
        LibrarianQuestion,
        ask_librarian,
    ),
    Prompt(
        "record-decision",
        "Record a decision with its context, alternatives and reasons",
        DecisionToRecord,
        record_decision,
    ),
]

register_prompts(*PROMPTS)
