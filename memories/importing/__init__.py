"""Bring in what is written elsewhere: Markdown, reStructuredText and plain text, a memory a section."""

from memories.importing.files import find_files
from memories.importing.markdown import MarkdownReport, import_markdown

__all__ = ["MarkdownReport", "find_files", "import_markdown"]
