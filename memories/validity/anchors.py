"""Tie an entry to the code that it is about: files, definitions and lines that its text or its session's edits name.

An anchor has words of the entry that its lines have, such as names and values. The entry holds as long as the lines are
the same, or still have these words beside each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from memories.events import AnchorRecord
from memories.models import AnchorSource
from memories.validity.claims import (
    CODE_SPAN,
    NAME,
    SIGN_OF_CODE,
    VALUE,
    Claim,
    Words,
    claims_about,
    is_stated,
    is_vague,
    states,
    value_of_name,
    word_within,
    words_of_text,
)
from memories.validity.definitions import Definition
from memories.validity.working_files import (
    IS_VALUE,
    LITERALS,
    UNFIT,
    TrackedFiles,
    WorkingFile,
    defining_files,
    lines_with,
    read_working_file,
    tokens_of_code,
    tracked_files,
    words_of_code,
)
from memoryhub.core.errors import Unavailable
from sessions_app.git import read_changes
from sessions_app.git.process import run
from sessions_app.git.worktree import WorkingTree

MAX_ANCHORS = 8
# Characters of a text that are read; mentions and names that are looked up
_MAX_TEXT, _MAX_MENTIONS, _MAX_SYMBOLS = 20_000, 24, 32
# Lines that a digest stands for, where words of the entry are in them or not
_MOST_LINES, _SHORT_LINES = 30, 12
# Characters of a note; longer texts are documents, which are about much besides the files that they name
_SHORT = 1_000
_SECONDS = 0.5


class CodeChange(NamedTuple):
    """A change of a file, as lines of a diff or as the new text; without one, the file was read."""

    path: str
    change: str = ""
    made_from: AnchorSource = AnchorSource.SESSION


_BARE_NAMES = "Makefile|Dockerfile|Gemfile|Rakefile|Procfile|Justfile|justfile"
_PATH = re.compile(
    rf"(?<![\w./:@<~$-])(?P<path>(?:\./)?(?:[\w.@+-]+/)+(?:[\w.@+\[\]-]*\w)?|[\w.@+-]*\w\.[A-Za-z]\w{{0,9}}|{_BARE_NAMES})"
    r"(?:(?::L?|#L)(?P<first>\d{1,6})(?:[-–]L?(?P<last>\d{1,6}))?)?(?![\w/])"
)
_PROTOTYPE = ".prototype."
_SYMBOL = re.compile(r"(?<![\w./$@-])(?P<name>[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_$][\w$]*){0,3}[?!]?)(?P<call>\()?")
_MAX_SEARCHED = 5
_DOCUMENT = re.compile(r".*\.(?:md|mdx|rst|adoc)", re.IGNORECASE)
# Edits of these go with the work that an entry is about
_SIDE_WORK = re.compile(
    r".*\.(?:md|mdx|rst|adoc)|(?:.*/)?(?:tests?|__tests__|spec|docs?)/.*|(?:.*/)?(?:test_[^/]*|[^/]*[._-](?:test|spec)\.\w+)",
    re.IGNORECASE,
)
_GENERATED = re.compile(
    r"@generated|code generated .{0,80}do not edit|automatically generated|auto-?generated", re.IGNORECASE
)
_LINK_TARGET = re.compile(r"\]\([^()\s]*\)")
# Paragraphs and items of lists
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+|]|\d+[.)])\s)")


def anchors_of_text(
    text: str,
    tree: WorkingTree,
    edits: Sequence[CodeChange] = (),
    files: Sequence[str] = (),
    *,
    searches: bool = True,
) -> list[AnchorRecord]:
    """Return the parts of a working tree that a text is about, the surest first.

    Args:
        text: of the entry.
        tree: where it was written.
        edits: what its session, or the commits that implement it, changed.
        files: paths that the entry governs.
        searches: whether git looks for lines that state what a note states which names no code.
    """
    text = text[:_MAX_TEXT]
    if not (edits or files or searches) and not any(sign in text for sign in "/`._("):
        return []
    return _Making(text, tree, edits, files, searches=searches and len(text) <= _SHORT).anchors()


def edits_of_commits(tree: WorkingTree, shas: Sequence[str]) -> list[CodeChange]:
    """Return what commits changed, without those of many files; their hashes are full ones."""
    edits: list[CodeChange] = []
    if not shas:
        return edits
    try:
        diffs = read_changes(tree.top, list(shas)[:_MOST_COMMITS], ())
    except Unavailable:
        return edits
    for diff in diffs.values():
        files = re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]
        if len(files) > _MOST_FILES:
            continue
        for file in files:
            if path := _NEW_PATH.search(file):
                edits.append(CodeChange(path[1], file[path.end() : path.end() + _MAX_CHANGE], AnchorSource.COMMIT))
    return edits


_MOST_COMMITS, _MOST_FILES, _MAX_CHANGE = 5, 50, 20_000
_NEW_PATH = re.compile(r"^\+\+\+ b/(.+?)\t?$", re.MULTILINE)


def anchor_record(
    file: WorkingFile, part: Definition, words: list[str], made_from: AnchorSource = AnchorSource.TEXT
) -> AnchorRecord:
    """Return an anchor on lines of a file, which hold the words, or on all of it where the part has no lines."""
    symbol, first, last = part
    digest = ""
    if first or words:
        digest = file.digest(first or 1, last or len(file.lines))
    return AnchorRecord(
        path=file.path, symbol=symbol, first=first, last=last, digest=digest, words=words, made_from=made_from
    )


class _Mention(NamedTuple):
    path: str
    block: int
    first: int
    last: int


class _Making:
    def __init__(
        self, text: str, tree: WorkingTree, edits: Sequence[CodeChange], files: Sequence[str], *, searches: bool
    ) -> None:
        self._tree = tree
        self._blocks = [block for block in _BLOCK.split(text) if block.strip()]
        self._is_note = len(text) <= _SHORT
        self._searches = searches
        self._edits = edits
        self._governed = files
        self._files: dict[str, WorkingFile | None] = {}

    def anchors(self) -> list[AnchorRecord]:
        mentions = list(self._mentions())
        edits = list(self._fit_edits())
        sources = dict.fromkeys([mention.path for mention in mentions], AnchorSource.TEXT)
        for edit in edits:
            sources.setdefault(edit.path, edit.made_from)
        anchors = [self._lines(mention) for mention in mentions if mention.first]
        anchors += self._symbol_anchors(sources, {(mention.path, mention.block) for mention in mentions})
        anchored = {anchor.path for anchor in anchors if anchor}
        for path in sources:
            if path not in anchored and sources[path] is AnchorSource.TEXT:
                blocks = {mention.block for mention in mentions if mention.path == path}
                anchors.append(self._whole_file(path, blocks, is_only=len(sources) == 1))
        fresh = [edit for edit in edits if edit.path not in anchored and edit.path in sources]
        anchors += self._edited([edit for edit in fresh if edit.change], _LEAST_OF_EDIT)[:_MOST_EDITED]
        if not any(anchors):
            anchors += self._edited([edit for edit in fresh if not edit.change], _LEAST_OF_READ)[:1]
            if self._searches:
                anchors += self._edited(list(self._stated()), _LEAST_OF_EDIT)[:1]
        unique = {(anchor.path, anchor.symbol, anchor.first): anchor for anchor in reversed(anchors) if anchor}
        return list(reversed(unique.values()))[:MAX_ANCHORS]

    @cached_property
    def _tracked(self) -> TrackedFiles:
        return tracked_files(self._tree.top)

    def _file(self, path: str) -> WorkingFile | None:
        if path not in self._files:
            file = read_working_file(self._tree.top, path)
            if file is not None and _GENERATED.search(file.text[:1_000]):
                file = None
            self._files[path] = file
        return self._files[path]

    def _mentions(self) -> Iterator[_Mention]:
        count = 0
        for file in self._governed:
            path = self._resolved(self._relative(file))
            if path is not None:
                yield from (_Mention(path, number, 0, 0) for number in range(len(self._blocks)))
        for number, block in enumerate(self._blocks):
            for match in _PATH.finditer(_LINK_TARGET.sub("]", block)):
                path = self._resolved(match["path"])
                if path is None:
                    continue
                first = int(match["first"] or 0)
                yield _Mention(path, number, first, max(first, int(match["last"] or 0)))
                count += 1
                if count == _MAX_MENTIONS:
                    return

    # The path of a tracked file or folder, or of a new file that git does not ignore
    def _resolved(self, mention: str) -> str | None:
        path = mention.removeprefix("./").rstrip("/")
        if not path or ".." in path.split("/") or UNFIT.fullmatch(path):
            return None
        if path in self._tracked.paths or ("/" in path and path in self._tracked.folders):
            return path
        matches = self._tracked.ending_with(path)
        if len(matches) == 1 and not UNFIT.fullmatch(matches[0]):
            return matches[0]
        if not matches and "/" in path and self._is_new(path):
            return path
        return None

    def _is_new(self, path: str) -> bool:
        if self._file(path) is None:
            return False
        try:
            return run(self._tree.top, "check-ignore", "--quiet", "--", path, seconds=_SECONDS).returncode == 1
        except Unavailable:
            return False

    def _fit_edits(self) -> Iterator[CodeChange]:
        for edit in self._edits:
            path = self._relative(edit.path)
            if path.startswith("/") or ".." in path.split("/") or UNFIT.fullmatch(path):
                continue
            if not _SIDE_WORK.fullmatch(path) and (path in self._tracked.paths or self._is_new(path)):
                yield edit._replace(path=path)

    # The lines of the tracked sources that state best what the note states, if they are in few files
    def _stated(self) -> Iterator[CodeChange]:
        words = self._words_of(set(range(len(self._blocks))))
        weights = words.weights
        values = [word for word in weights if weights[word] == VALUE and word not in LITERALS and word not in "01"]
        names = [word for word in weights if word in words.names]
        plain = [word for word in weights if word not in names and word not in values and len(word) > 2]
        lines = lines_with(self._tree, values[:_MOST_VALUES], names[:_MOST_VALUES], plain[:_MOST_PLAIN])
        words_of_lines = [words_of_code(line) & weights.keys() for _, line in lines]
        paths_of: dict[str, list[str]] = {}
        for (path, _), in_line in zip(lines, words_of_lines, strict=True):
            for word in in_line:
                paths_of.setdefault(word, []).append(path)
        rare = {name for name in names if len(paths_of.get(name, ())) <= _FEW_LINES}
        # A name that the code of few files has must go on to be there, whatever the note says of it
        code_names = {
            name for name in names if weights[name] == NAME and len({*paths_of.get(name, ())}) <= _MOST_STATED
        }
        scores: dict[tuple[str, str], float] = {}
        for (path, line), in_line in zip(lines, words_of_lines, strict=True):
            is_dependency = not rare.isdisjoint(in_line) and len(tokens_of_code(line)) <= _FEW_WORDS
            if is_dependency or not code_names.isdisjoint(in_line) or states(line, in_line, words):
                in_path = (words_of_code(path) & weights.keys()) - in_line
                scores[path, line.strip()] = sum(map(weights.__getitem__, in_line)) + len(in_path) / 2
        best = max(scores.values(), default=0)
        closest = [place for place, score in scores.items() if score == best]
        paths = {path for path, _ in closest}
        if len(paths) <= _MOST_STATED:
            for path in sorted(paths):
                yield CodeChange(path, "\n".join(line for place, line in closest if place == path), AnchorSource.TEXT)

    def _relative(self, path: str) -> str:
        return path.removeprefix("file://").removeprefix(f"{self._tree.top}/").removeprefix("./")

    def _lines(self, mention: _Mention) -> AnchorRecord | None:
        file = self._file(mention.path)
        if file is None or mention.last > len(file.lines):
            return None
        return anchor_record(file, Definition("", mention.first, mention.last), [])

    def _symbol_anchors(
        self, sources: dict[str, AnchorSource], places: set[tuple[str, int]]
    ) -> list[AnchorRecord | None]:
        files = [file for path in sources if (file := self._file(path)) and not _DOCUMENT.fullmatch(path)]
        anchors: list[AnchorRecord | None] = []
        missing: dict[str, set[int]] = {}
        for symbol, blocks in self._symbols().items():
            matches = [(file, match) for file in files for match in file.definitions_of(symbol)]
            is_plain = "." not in symbol and SIGN_OF_CODE.search(symbol) is None
            if is_plain:
                matches = [match for match in matches if any((match[0].path, block) in places for block in blocks)]
            if len(matches) == 1:
                anchors.append(self._definition(*matches[0], blocks, sources[matches[0][0].path]))
            elif not matches and not is_plain and len(missing) < _MAX_SEARCHED:
                missing[symbol] = blocks
        if not anchors and missing and self._is_note:
            for symbol, path in defining_files(self._tree, tuple(missing)).items():
                file = self._file(path)
                definitions = file.definitions_of(symbol) if file else []
                if file and len(definitions) == 1:
                    anchors.append(self._definition(file, definitions[0], missing[symbol], AnchorSource.TEXT))
        return anchors

    # Names that may be those of definitions, with the numbers of their blocks
    def _symbols(self) -> dict[str, set[int]]:
        symbols: dict[str, set[int]] = {}
        for number, block in enumerate(self._blocks):
            in_code = " ".join(CODE_SPAN.findall(block))
            for source, is_code in ((in_code, True), (CODE_SPAN.sub(" ", block), False)):
                for match in _SYMBOL.finditer(source):
                    name = match["name"].replace("::", ".").replace("#", ".").replace(_PROTOTYPE, ".")
                    if _is_symbol(name, is_code=is_code or bool(match["call"])):
                        symbols.setdefault(name, set()).add(number)
        return dict(list(symbols.items())[:_MAX_SYMBOLS])

    def _definition(
        self, file: WorkingFile, definition: Definition, blocks: set[int], made_from: AnchorSource
    ) -> AnchorRecord:
        words = self._words_of(blocks)
        length = definition.last - definition.first
        states_all = length < _SHORT_LINES and is_stated(words, file, definition.first, definition.last)
        parts = {definition.name.lower(), *definition.name.lower().split(".")}
        claims = claims_about(words, file, definition.first, definition.last)
        texts = [claim.text for claim in claims if claim.text.strip("`").lower() not in parts]
        name = definition.name.rpartition(".")[2]
        if states_all and length:
            texts = []
        elif states_all or not texts:
            texts = value_of_name(file.lines[definition.first - 1], name)
            if not texts and not states_all:
                texts = word_within(words, file, definition) or [name.lower()]
        return anchor_record(file, definition, texts, made_from)

    def _whole_file(self, path: str, blocks: set[int], *, is_only: bool) -> AnchorRecord | None:
        file = self._file(path)
        if file is None:
            return AnchorRecord(path=path) if path in self._tracked.folders else None
        if _DOCUMENT.fullmatch(path):
            return AnchorRecord(path=path)
        if is_only and self._is_note:
            blocks = set(range(len(self._blocks)))
        return self._claimed(file, claims_about(self._words_of(blocks), file), AnchorSource.TEXT)

    # Lines of edits, or of files that were read, that share enough with the text, the surest first
    def _edited(self, edits: list[CodeChange], least: float) -> list[AnchorRecord]:
        if not edits:
            return []
        words = self._words_of(set(range(len(self._blocks))))
        scored: list[tuple[float, AnchorRecord]] = []
        for edit in edits:
            file = self._file(edit.path)
            if file is None:
                continue
            claims = claims_about(words, file)
            if edit.change:
                added = {line[1:].strip() for line in edit.change.split("\n") if line.startswith("+")}
                added = added or {line.strip() for line in edit.change.split("\n")}
                claims = [claim for claim in claims if file.lines[claim.line - 1].strip() in added]
            score = sum(claim.score for claim in claims)
            if score >= least:
                scored.append((score, self._claimed(file, claims, edit.made_from)))
        return [anchor for _, anchor in sorted(scored, key=lambda pair: -pair[0])]

    def _words_of(self, blocks: set[int]) -> Words:
        blocks_without_paths = (_PATH.sub(self._without_path, self._blocks[number]) for number in sorted(blocks))
        return words_of_text("\n\n".join(blocks_without_paths))

    def _without_path(self, match: re.Match[str]) -> str:
        is_path = "/" in match["path"] or self._resolved(match["path"]) is not None
        return " " if is_path else match[0]

    def _claimed(self, file: WorkingFile, claims: list[Claim], made_from: AnchorSource) -> AnchorRecord:
        lines = [claim.line for claim in claims] or [0]
        first, last = min(lines), max(lines)
        if 0 < last < len(file.lines) and IS_VALUE.fullmatch(file.lines[last]):
            last += 1
        if last - first >= _MOST_LINES:
            first = last = 0
        return anchor_record(file, Definition("", first, last), [claim.text for claim in claims], made_from)


# What the claims on an edit score at least, and on a file that was read; files of edits that a text is about
_LEAST_OF_EDIT, _LEAST_OF_READ, _MOST_EDITED = 1.0, 1.5, 3
# Words of a note by which its code is looked up; lines that have a rare name, and the words of a line that is little
# more than that name, such as an import; files that state the same
_MOST_VALUES, _MOST_PLAIN, _FEW_LINES, _FEW_WORDS, _MOST_STATED = 6, 12, 3, 5, 2


def _is_symbol(name: str, *, is_code: bool) -> bool:
    last = name.rpartition(".")[2]
    if len(last) < 3 or is_vague(name):
        return False
    return is_code or "." in name or SIGN_OF_CODE.search(name) is not None
