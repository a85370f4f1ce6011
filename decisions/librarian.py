"""The librarian's one text: an agent file as clients install it, whose body is the prompt of the same name."""

from __future__ import annotations

from pathlib import Path

AGENT_FILE = Path(__file__).with_name("librarian.md")
"""Front matter between ``---`` lines (name, description, tools, model, colour), then what the librarian is told."""


def agent_file() -> str:
    """Return the whole agent file."""
    return AGENT_FILE.read_text()


def instructions() -> str:
    """Return what the librarian is told, without the front matter."""
    return agent_file().split("\n---\n", 1)[1].strip()
