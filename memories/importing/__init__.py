"""Import Markdown, reStructuredText and plain text, one memory per section."""

from memories.importing.files import find_files
from memories.importing.markdown import (
    MAX_HEADINGS,
    MarkdownReport,
    define_known_files,
    delete_sections,
    import_markdown,
)

__all__ = [
    "MAX_HEADINGS",
    "MarkdownReport",
    "define_known_files",
    "delete_sections",
    "find_files",
    "import_markdown",
]
