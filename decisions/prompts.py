"""MCP prompts: ask about past decisions, and record a new one."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from memoryhub.core.schemas import Command
from memoryhub.core.text import hanging
from memoryhub.core.tools import Prompt, register_prompts

# Front matter between `---` lines (name, description, tools, model, color), then the instructions.
AGENT_FILE = Path(__file__).with_name("librarian.md")


def agent_file() -> str:
    return AGENT_FILE.read_text("utf-8")


def instructions() -> str:
    return agent_file().split("\n---\n", 1)[1].strip()


class LibrarianQuestion(Command):
    question: str = Field("", max_length=2_000, description="your question about the project's history")


class DecisionToRecord(Command):
    decision: str = Field("", max_length=2_000, description="what was decided; default: the last choice made here")


def ask_librarian(command: LibrarianQuestion) -> str:
    question = "Ask me for my question and wait for the answer."
    if command.question:
        question = f"Question: {hanging(command.question)}"
    return f"{instructions()}\n\n{question}"


def record_decision(command: DecisionToRecord) -> str:
    subject = hanging(command.decision) or "the last choice that we made in this conversation"
    return f"""\
Record this decision and its reasons for later readers: {subject}

1. Call memory_search with its subject and sources=["decision"] to find earlier decisions on it. If one is replaced, \
read it with decision_get.
2. Call decision_record with: title (what it is about, short), context (the problem and what constrains it), chosen \
(the choice, in a sentence or two), alternatives (each with option and why_not, including those dismissed at \
once), rationale (why this one), impact (low, medium, high or critical), files (the files it concerns), and \
supersedes with the id of the decision that it replaces, if any. Use only this conversation; ask me for missing \
facts instead of inventing them.
3. If commits already implement it, pass their hashes in commits; end the messages of later ones with the line \
"Decision: #id".
4. Show me the id and a short summary of what you recorded."""


PROMPTS = [
    Prompt("librarian", "Ask about the project's history; answers cite records only", LibrarianQuestion, ask_librarian),
    Prompt(
        "record-decision",
        "Record a decision with its context, alternatives and reasons",
        DecisionToRecord,
        record_decision,
    ),
]

register_prompts(*PROMPTS)
