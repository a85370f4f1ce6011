"""Imports Markdown, reStructuredText and plain text, one memory per section."""

from memories.importing.files import find_files
from memories.importing.markdown import MAX_HEADINGS, MarkdownReport, import_markdown

__all__ = ["MAX_HEADINGS", "MarkdownReport", "find_files", "import_markdown"]
