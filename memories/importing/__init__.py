"""Import Markdown, reStructuredText and plain text, one memory per section."""

from memories.importing.files import find_files
from memories.importing.markdown import (
    MAX_HEADINGS,
    MarkdownReport,
    count_repeated,
    define_known_files,
    delete_repeated,
    delete_sections,
    import_markdown,
    preview_new,
)

__all__ = [
    "MAX_HEADINGS",
    "MarkdownReport",
    "count_repeated",
    "define_known_files",
    "delete_repeated",
    "delete_sections",
    "find_files",
    "import_markdown",
    "preview_new",
]
