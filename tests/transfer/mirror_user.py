"""A user who edits the files of a folder at random, and remembers which words must not be lost."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

WORD = re.compile(r"\bw[a-z]+\d+x\d+\b")


class User:
    """Each edit has a word of its own. Words that the user removes from a file are no longer expected anywhere.

    The journal is beside the folder and is written before the file, so that a killed process loses nothing of it.
    """

    def __init__(self, folder: Path, chance: random.Random, name: str) -> None:
        self.folder, self.chance, self.name = folder, chance, name
        self.journal = folder.with_name(f"{folder.name}.journal")
        self.count = 0

    def word(self) -> str:
        self.count += 1
        return f"w{self.name[0]}{self.name[1:] or 0}x{self.count}"

    def note(self, *, wrote: str = "", removed: str = "") -> None:
        with self.journal.open("a") as file:
            file.write(json.dumps({"wrote": WORD.findall(wrote), "removed": WORD.findall(removed)}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def act(self) -> None:
        files = sorted(path for path in self.folder.rglob("*.md") if ".conflict-" not in path.name)
        often = [self.append, self.append, self.append, self.replace, self.replace]
        actions = [*often, *often, self.rename, self.rename, self.remove, self.copy, self.cut]
        if not files or self.chance.random() < 0.05:
            self.create()
        else:
            self.chance.choice(actions)(self.chance.choice(files))

    def create(self) -> None:
        text = f"# Note {self.word()}\n\nNew text {self.word()}.\n"
        self.save(self.folder / f"note-{self.chance.randrange(10**6)}.md", text, "")

    def append(self, path: Path) -> None:
        old = path.read_text()
        self.save(path, f"{old}\nAppended {self.word()}.\n", old)

    def replace(self, path: Path) -> None:
        old = path.read_text()
        head = re.match(r"---\n.*?^---\n", old, re.DOTALL | re.MULTILINE)
        self.save(path, f"{head[0] if head else ''}\n# Title {self.word()}\n\nReplaced {self.word()}.\n", old)

    def rename(self, path: Path) -> None:
        target = self.folder / self.chance.choice(["", "sub"]) / f"moved-{self.chance.randrange(10**6)}.md"
        target.parent.mkdir(exist_ok=True)
        path.rename(target)

    def remove(self, path: Path) -> None:
        self.note(removed=path.read_text())
        path.unlink()

    def copy(self, path: Path) -> None:
        text = path.read_text()
        self.save(self.folder / f"copy-{self.chance.randrange(10**6)}.md", f"{text}\nOf the copy {self.word()}.\n", "")

    # A save that was interrupted: the end is missing
    def cut(self, path: Path) -> None:
        old = path.read_text()
        self.save(path, old[: self.chance.randrange(len(old) + 1)], old)

    # As editors do: some write into the file, others replace it
    def save(self, path: Path, text: str, old: str) -> None:
        gone = set(WORD.findall(old)) - set(WORD.findall(text))
        self.note(wrote=text, removed=" ".join(gone))
        if self.chance.random() < 0.5:
            path.write_text(text)
        else:
            temporary = path.with_name(f".{path.name}.swp")
            temporary.write_text(text)
            temporary.replace(path)

    def expected(self) -> set[str]:
        """Return the words that must be found somewhere."""
        words: set[str] = set()
        for line in self.journal.read_text().splitlines():
            entry = json.loads(line)
            words = words - set(entry["removed"]) | set(entry["wrote"])
        return words
