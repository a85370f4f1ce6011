"""The worst words of an earlier vocabulary do not come back into the code, the pages and the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from django.test import SimpleTestCase

ROOT = Path(__file__).parent.parent
FOLDERS = ("memoryhub", "memories", "decisions", "governance", "sessions_app", "benchmarks", "templates", "docs")
SUFFIXES = {".py", ".html", ".js", ".css", ".md", ".toml"}
OLD_WORDS = re.compile(
    r"\b(told|whoever|lest|anew|hers|herself|she|mend(?:s|ed|ing)?|hearers?|none but|at all doors)\b", re.IGNORECASE
)
# Lines with one of these: names that are stored, and words that are data.
STORED = ("told = ", '"told"', "Told by a context pack", "# stop words", "| i\\ (?:said|")
# Migrations repeat help texts as they were; the other is a list of stop words.
LEFT_OUT = ("migrations/", "memories/search/text.py")


def pages() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md")
    for folder in FOLDERS:
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


class LanguageTests(SimpleTestCase):
    def test_no_text_uses_the_old_words(self) -> None:
        found = []
        for path in pages():
            name = str(path.relative_to(ROOT))
            if any(part in name for part in LEFT_OUT):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if OLD_WORDS.search(line) and not any(stored in line for stored in STORED):
                    found.append(f"{name}:{number}: {line.strip()[:100]}")
        self.assertEqual([], found)
