"""Files of a working tree as anchors compare them: their lines, words and definitions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path, PurePosixPath

from memories.validity.definitions import Definition, definitions
from memoryhub.config.repository import find_repository
from memoryhub.core.errors import Unavailable
from memoryhub.core.foreign_files import read_foreign
from sessions_app.git.process import run
from sessions_app.git.worktree import WorkingTree

# Bytes of a file that is read
MAX_BYTES = 1_000_000
_SECONDS = 0.5
_MOST_TRACKED = 100_000
# What tools write, others wrote, or holds secrets
UNFIT = re.compile(
    r"(?:^|.*/)(?:node_modules|vendor|third_party|\.git|dist|__snapshots__|site-packages)/.*"
    r"|(?:^|.*/)(?:\.env(?:\.(?!example|sample|template).*)?|\.netrc|\.npmrc|\.pypirc|id_[a-z0-9]+|credentials[^/]*"
    r"|secrets?\.(?:json|ya?ml|toml)|package-lock\.json|pnpm-lock\.yaml|go\.sum|npm-shrinkwrap\.json)"
    r"|.*\.(?:pem|key|p12|pfx|keystore|lock|min\.js|min\.css|map|snap|pb\.go|svg|csv|jsonl|ipynb)|.*_pb2(?:_grpc)?\.pyi?",
    re.IGNORECASE,
)
# Device, inode, size and time of a file
Signature = tuple[int, int, int, int]


def signature_of(path: str) -> Signature | None:
    """Return what ``stat`` tells of a file or folder; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  (a path object takes as long as the call)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class WorkingFile:
    """The text of a file, and what is found in it, each computed when it is first needed."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.lines = text.split("\n")

    @cached_property
    def definitions(self) -> list[Definition]:
        return definitions(self.path, self.text)

    def definitions_of(self, symbol: str) -> list[Definition]:
        """Return the definitions of a name, or of the end of one: ``send`` finds ``Client.send``."""
        name = symbol.rstrip("!?")  # a macro is called with a sign, which a method has in its name
        matches: dict[str, Definition] = {}
        for definition in self.definitions:
            full_name = definition.name.rstrip("!?")
            if full_name == name or full_name.endswith(f".{name}"):
                # Overloads, and what reads and sets a property, are one
                first = matches.get(full_name, definition).first
                matches[full_name] = definition._replace(first=first)
        return list(matches.values())

    def digest(self, first: int, last: int) -> str:
        """Return the digest of lines, which does not depend on white space; "" if they are blank."""
        packed = "".join(map(_packed, self.lines[first - 1 : last]))
        return _digest(packed) if packed else ""

    def place_of(self, digest: str, near: int) -> tuple[int, int] | None:
        """Return the first and last line of the whole lines with a digest, the nearest to a line."""
        length = int(digest[_HASH:], 16)
        packed, starts, numbers = self._stream
        ends = {start: index for index, start in enumerate([*starts[1:], len(packed)])}
        places = [index for index, start in enumerate(starts) if start + length in ends]
        for index in sorted(places, key=lambda index: abs(numbers[index] - near)):
            start = starts[index]
            if _digest(packed[start : start + length]) == digest:
                return numbers[index], numbers[ends[start + length]]
        return None

    # The text without white space, and the offset and number of each line that is not blank
    @cached_property
    def _stream(self) -> tuple[str, list[int], list[int]]:
        parts: list[str] = []
        starts: list[int] = []
        numbers: list[int] = []
        offset = 0
        for number, line in enumerate(self.lines, 1):
            packed = _packed(line)
            if packed:
                parts.append(packed)
                starts.append(offset)
                numbers.append(number)
                offset += len(packed)
        return "".join(parts), starts, numbers

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Map words, in the form of ``words_of_code``, to the numbers of the lines that have them."""
        places: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines, 1):
            numbers = [number]
            if IS_VALUE.fullmatch(line):
                numbers = [max(number - 1, 1), number]
            for word in words_of_code(line):
                places.setdefault(word, []).extend(numbers)
        return places

    def lines_of(self, piece: str, first: int = 0, last: int = 0) -> list[int]:
        """Return the numbers of the lines where a piece of code begins, however it is spaced or quoted."""
        tokens = _PIECE_TOKEN.findall(piece)
        if not tokens:
            return []
        text = self.text
        if last:
            text = "\n".join(self.lines[first - 1 : last])
        starts = [match.start() for match in islice(_pattern_of(tuple(tokens)).finditer(text), _MOST_PLACES)]
        return [text.count("\n", 0, start) + max(first, 1) for start in starts]

    def holds(self, claim: str, first: int = 0, last: int = 0) -> bool:
        """Return whether a line still has the pieces of code and the words of a claim."""
        numbers = [self.lines_of(piece, first, last) for piece in _PIECE.findall(claim)]
        for word in _PIECE.sub(" ", claim).split():
            numbers.append([number for number in self.places.get(word, ()) if not last or first <= number <= last])
        return bool(numbers) and bool(set(numbers[0]).intersection(*numbers[1:]))


_MOST_PLACES = 200
# A value alone on its line belongs to the name before it
IS_VALUE = re.compile(r"\s*(?:-?\d[\w.]*|[Tt]rue|[Ff]alse|None|null|nil)\s*,?\s*")
# In a claim, code is between backticks
_PIECE = re.compile(r"`([^`]*)`")
_PIECE_TOKEN = re.compile(r"\w+|[^\w\s]")


# Between a name and its value; a type may come before the value, and both may be quoted
_SIGNS = {"=": r"[\"']?\s*(?::[^=\n]{0,80})?=\s*[\"']?", ":": r"[\"']?\s*:\s*[\"']?"}


def _is_word(*tokens: str) -> bool:
    return all(token.isalnum() or "_" in token for token in tokens)


_QUOTES_SIGNS = ("'", '"')


@lru_cache(maxsize=512)
def _pattern_of(tokens: tuple[str, ...]) -> re.Pattern[str]:
    parts = []
    for place, sign in enumerate(tokens):
        part = re.escape(sign)
        if sign in _QUOTES_SIGNS:
            part = "[\"']"
        elif sign in _SIGNS and 0 < place < len(tokens) - 1 and _is_word(tokens[place - 1], tokens[place + 1]):
            part = _SIGNS[sign]
        parts.append(part)
    begins = r"(?<!\w)" if _is_word(tokens[0]) else ""
    ends = r"(?!\w)" if _is_word(tokens[-1]) else ""
    return re.compile(begins + r"\s*".join(parts) + ends)


# Hexadecimal digits of the hash; eight more are the length of the text
_HASH = 24
_QUOTES = str.maketrans("'", '"')


def _packed(line: str) -> str:
    return "".join(line.split()).translate(_QUOTES)


def _digest(packed: str) -> str:
    return blake2b(packed.encode("utf-8", "replace"), digest_size=_HASH // 2).hexdigest() + f"{len(packed):08x}"


def read_working_file(top: Path, path: str) -> WorkingFile | None:
    """Return a file of a working tree; None if it is outside, no plain text or too large."""
    signature = signature_of(f"{top}/{path}")
    if signature is None or signature[2] > MAX_BYTES:
        return None
    return _read(str(top), path, signature)


@lru_cache(maxsize=32)
def _read(top: str, path: str, _: Signature) -> WorkingFile | None:
    place = os.path.realpath(f"{top}/{path}")
    if not place.startswith(f"{os.path.realpath(top)}/"):
        return None
    try:
        content = read_foreign(place, limit=MAX_BYTES, follows_links=False)
    except OSError:
        return None
    if b"\0" in content:
        return None
    return WorkingFile(path, content.decode("utf-8", "replace").replace("\r\n", "\n"))


class TrackedFiles:
    """The files that git tracks in a working tree, by their names."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = frozenset(paths)
        self._by_name: dict[str, list[str]] = {}
        for path in self.paths:
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)

    @cached_property
    def folders(self) -> frozenset[str]:
        return frozenset(str(folder) for path in self.paths for folder in PurePosixPath(path).parents)

    def ending_with(self, end: str) -> list[str]:
        """Return the files whose path ends with a name, or with folders and a name."""
        named = self._by_name.get(end.rpartition("/")[2], [])
        return [path for path in named if path == end or path.endswith(f"/{end}")]

    def like(self, path: str) -> str:
        """Return the file with the name of a path, and with its last folders where several have the name; or ""."""
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            ending = self.ending_with("/".join(parts[-count:]))
            if len(ending) == 1:
                return ending[0]
        return ""


def tracked_files(top: Path) -> TrackedFiles:
    """Return what git tracks; nothing if it does not answer in time."""
    repository = find_repository(top)
    if repository is None:
        return TrackedFiles(())
    return _tracked(str(top), signature_of(f"{repository.git_dir}/index"))


@lru_cache(maxsize=8)
def _tracked(top: str, _: Signature | None) -> TrackedFiles:
    try:
        answer = run(Path(top), "ls-files", "-z", "--cached", seconds=_SECONDS)
    except Unavailable:
        return TrackedFiles(())
    names = answer.stdout.split(b"\0")
    return TrackedFiles(os.fsdecode(name) for name in names[:_MOST_TRACKED] if name)


# Plain strings, which git finds some times faster than patterns
_GREP = ("grep", "--no-color", "--no-textconv", "--no-recurse-submodules", "-I", "-z", "-F")
_SOURCES = (
    ".",
    *(f":(exclude)*.{ending}" for ending in "md mdx rst adoc lock min.js min.css svg csv".split()),
    *(f":(exclude,glob)**/{folder}/**" for folder in "test* t __tests__ spec docs example* bench*".split()),
)


# Lines of tracked sources with their paths; none if git does not answer in time
def _lines_with(top: Path, options: Sequence[str]) -> list[tuple[str, str]]:
    try:
        answer = run(top, *_GREP, *options, "--", *_SOURCES, max_output=_MAX_MATCHES, seconds=_SECONDS)
    except Unavailable:
        return []
    listed = (entry.partition("\0") for entry in answer.stdout.decode("utf-8", "replace").split("\n"))
    return [(path, line) for path, _, line in listed if line and not UNFIT.fullmatch(path)]


# A line that seems to define a name
_DEFINED = re.compile(
    r"\b(?:def|class|func|fn|fun|function|struct|interface|type|enum|trait|union|const|let|var|val|static|module|define)"
    r"\b(?:\s*\([^()]*\)\s*|[^=(]*?[^\w=(])(?:\w+(?:\.|::))*([A-Za-z_$][\w$]*)|(?:^\s*|\.)([A-Za-z_]\w*)\s*(?::[^=]*)?=(?![=>])"
    r"|\bmacro_rules!\s*(\w+)"
)
_MAX_MATCHES = 100_000


def defining_files(tree: WorkingTree, symbols: tuple[str, ...]) -> dict[str, str]:
    """Map names to the one tracked file that seems to define each, by one search of git."""
    repository = find_repository(tree.top)
    index = signature_of(f"{repository.git_dir}/index") if repository else None
    return _defining(str(tree.top), tree.head, index, symbols)


@lru_cache(maxsize=256)
def _defining(top: str, _: str, __: Signature | None, symbols: tuple[str, ...]) -> dict[str, str]:
    names = {symbol: symbol.rpartition(".")[2].rstrip("!?") for symbol in symbols}
    patterns = [option for name in sorted(set(names.values())) for option in ("-e", name)]
    assigned = {symbol: re.compile(rf"(?<![\w.]){re.escape(symbol)}\s*=[^=]") for symbol in symbols if "." in symbol}
    paths: dict[str, set[str]] = {}
    for path, code in _lines_with(Path(top), ["-w", *patterns]):
        for name in _DEFINED.findall(code):
            paths.setdefault("".join(name), set()).add(path)
        for symbol, pattern in assigned.items():
            if pattern.search(code):
                paths.setdefault(symbol, set()).add(path)
    places = {symbol: paths.get(symbol) or paths.get(name, set()) for symbol, name in names.items()}
    return {symbol: min(files) for symbol, files in places.items() if len(files) == 1}


_MOST_LINES, _LONGEST_LINE = 400, 200
# Files of a tree that is searched at a write; 10,000 take some 200 ms
_MOST_SEARCHED = 20_000


def lines_with(
    tree: WorkingTree, values: Sequence[str], names: Sequence[str], words: Sequence[str]
) -> list[tuple[str, str]]:
    """Return lines of tracked sources that have a name, or a value and one of the words, each with its path.

    None are returned if there are very many, if git does not answer in time, or in a very large working tree.
    """
    if len(tracked_files(tree.top).paths) > _MOST_SEARCHED:
        return []
    options = [option for name in names for option in ("--or", "-e", name)]
    if values and (names or words):
        spellings = [spelling for value in values for spelling in _spellings(value)]
        numbers = [option for spelling in spellings for option in ("--or", "-e", spelling)]
        partners = [option for word in (*names, *words) for option in ("--or", "-e", word)]
        options += ["--or", "(", "(", *numbers[1:], ")", "--and", "(", *partners[1:], ")", ")"]
    if not options:
        return []
    lines = _lines_with(tree.top, ["-i", *options[1:]])
    if len(lines) > _MOST_LINES:
        return []
    return [place for place in lines if len(place[1]) <= _LONGEST_LINE and not _COMMENT.search("\0".join(place))]


# Lines of prose or about people, and files of them
_COMMENT = re.compile(
    r"^[^\0]*(?:readme|licen[cs]e|authors|contribut|change|history|news|maintainers|codeowners)[^/\0]*\0"
    r"|\0\s*(?:#(?!\s*define|\[)|//|/?\*|--\s|;|%|\"{3}|<!--)|\b(?:author|maintainer|contributor|copyright|e-?mail)",
    re.IGNORECASE,
)


# A number may have its thousands apart
def _spellings(value: str) -> Iterator[str]:
    yield value
    if value.isdigit() and len(value) > _GROUP:
        yield f"{int(value):_}"
        yield f"{int(value):,}"


_GROUP = 3


# Values that are words, and modifiers of definitions
LITERALS = frozenset("true false none null nil async static private protected abstract readonly final".split())
TOKEN = re.compile(r"[^\W\d]\w*|0[xX][0-9a-fA-F]{1,16}\b|\d[\d_,]*(?:\.\d+)*")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[^\W\d_a-zA-Z]+|\d+")
MAX_LINE = 1_000


def tokens_of_code(line: str) -> list[str]:
    """Return the whole identifiers and numbers of a line, in lower case, or their stems."""
    return [_forms(token)[0] for token in dict.fromkeys(TOKEN.findall(line[:MAX_LINE]))]


def words_of_code(line: str) -> frozenset[str]:
    """Return the identifiers of a line, their parts and its numbers, in lower case."""
    words: set[str] = set()
    for token in TOKEN.findall(line[:MAX_LINE]):
        words.update(_forms(token))
    return frozenset(words)


@lru_cache(maxsize=20_000)
def _forms(token: str) -> tuple[str, ...]:
    if token[0].isdigit():
        return tuple(dict.fromkeys((number_form(token), *_beginnings(token))))
    parts = _PART.findall(token)
    whole = token.lower()
    if len(parts) == 1 and whole not in LITERALS:
        whole = stem(token)
    return tuple(dict.fromkeys((whole, token.lower(), *(stem(part) for part in parts if len(part) > 1))))


# A version is named by its beginning, too
def _beginnings(number: str) -> list[str]:
    parts = number.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))] if len(parts) > 2 else []


def number_form(token: str) -> str:
    """Return a number as it is compared: ``1_000``, ``1,000`` and ``1000.0`` are one, and 1.21 and 1.21.0."""
    if token[1:2] in ("x", "X"):
        return str(int(token, 16))
    digits = re.sub(r"[_,](?=\d{3})", "", token).rstrip(",_")
    return digits.removesuffix(".0") if digits.count(".") <= 2 else digits


def stem(word: str) -> str:
    """Return a word in lower case without an English ending."""
    singular = word.lower()
    if singular.endswith("ies") and len(singular) > 5:
        singular = f"{singular[:-3]}y"
    elif singular.endswith("s") and len(singular) > 3 and singular[-2] not in "sui":
        singular = singular[:-1]
    for ending in ("ing", "ed", "e"):
        if singular.endswith(ending) and len(singular) - len(ending) >= 4:
            return singular[: -len(ending)]
    return singular
