"""A user who edits files at random, and a process that mirrors them and kills itself at a given call.

Run as ``python -m tests.transfer.mirror_process FOLDER SEED KILL_AT EDIT_AT``; both counts are of calls in the mirror.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

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


WATCHED = ("memoryhub/transfer/mirror", "memories/services/", "memoryhub/core/log/append", "/pathlib.py")


class Interruption:
    """Counts calls into the watched modules; edits a file at one of them, and ends the process at another."""

    def __init__(self, user: User, kill_at: int, edit_at: int) -> None:
        self.user, self.kill_at, self.edit_at, self.calls = user, kill_at, edit_at, 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if not any(name in frame.f_code.co_filename for name in WATCHED):
            return
        self.calls += 1
        if self.calls == self.edit_at:
            sys.setprofile(None)
            self.user.act()
            sys.setprofile(self)
        if self.calls == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, seed: int, kill_at: int, edit_at: int) -> None:
    import django

    django.setup()
    from memoryhub.core.origin import use_origin
    from memoryhub.core.stores.store import project_store, use_store
    from memoryhub.transfer.folder import Form
    from memoryhub.transfer.mirror.run import Mirror

    user = User(folder, random.Random(seed), f"m{seed}")
    with use_store(project_store("alpha")), use_origin(source="service", actor="ada"):
        sys.setprofile(Interruption(user, kill_at, edit_at))
        Mirror(folder, Form.MARKDOWN, adopt=True, allow_deletions=True).run()
        sys.setprofile(None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
