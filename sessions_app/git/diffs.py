"""Compare texts with git, such as a file of the working tree with that of a commit."""

from __future__ import annotations

import tempfile
from pathlib import Path

from memoryhub.core.errors import Unavailable
from sessions_app.git.process import reason_of, run, text_of

# What a repository's configuration could change
_FILE_OPTIONS = ("--no-index", "--no-color", "--no-ext-diff", "--no-textconv")
# Bounds the size of a diff: git prints no content of binary files
_BIG_IS_BINARY = ("-c", "core.bigFileThreshold=512k")
# Bytes of a file in a commit
_MAX_BYTES = 8 * 2**20


def changes_since(repository: Path, sha: str, path: str, content: bytes) -> str | None:
    """Return the unified diff of a file from a commit to ``content``; None if the repository lacks that commit.

    The file is not read from the working tree: git would run it through a program that the repository's attributes
    name.

    Args:
        repository: the top of the working tree.
        sha: full hash of the commit.
        path: of the file, relative to the top; a file that the commit does not have counts as empty.
        content: of the file now.

    Raises:
        Unavailable: git is not installed or does not answer, or the file is too large.
    """
    if run(repository, "cat-file", "-e", f"{sha}^{{commit}}").returncode:
        return None
    answer = run(repository, "cat-file", "blob", f"{sha}:{path}", max_output=_MAX_BYTES)
    before = answer.stdout if answer.returncode == 0 else b""
    compared = compare_texts(before, content, *_BIG_IS_BINARY, "diff", *_FILE_OPTIONS)
    lines = [f"diff --git a/{path} b/{path}"]
    _, has_hunks, hunks = compared.partition(b"\n@@ ")
    if has_hunks:
        lines.append("@@ " + text_of(hunks).strip("\n"))
    elif compared:
        lines.append("Binary files differ")
    return "\n".join(lines)


def compare_texts(old: bytes, new: bytes, *command: str) -> bytes:
    """Return what a ``diff`` of git prints about two texts.

    Raises:
        Unavailable: git is not installed or does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="memory-hub-") as name:
        folder = Path(name)
        (folder / "old").write_bytes(old)
        (folder / "new").write_bytes(new)
        answer = run(folder, *command, "old", "new")
    if answer.returncode > 1:
        raise Unavailable(f"git cannot compare the file with its last commit: {reason_of(answer.stderr)}")
    return answer.stdout
