"""Bring in what is written elsewhere: Markdown, reStructuredText and plain text, a memory a section."""

from memories.importing.files import find_files
from memories.importing.markdown import MAX_HEADINGS, MarkdownReport, import_markdown

__all__ = ["MAX_HEADINGS", "MarkdownReport", "find_files", "import_markdown"]
