"""Find and decode text files, and read their front matter."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from memories.events import MEMORY_DELETED
from memories.models import Memory
from memories.schemas import MemoryWrite
from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid
from memoryhub.core.foreign_files import read_foreign
from sessions_app import git

W = TypeVar("W", bound=MemoryWrite)

MARKDOWN = (".md", ".markdown", ".mdx")
ENDINGS = (*MARKDOWN, ".rst", ".txt")
MAX_BYTES = 2 * 2**20
_SKIPPED_FOLDER = "hidden, or a folder of installed packages"
_LINK = "a link, which may lead out of the folder, or not a file"
# Names of text files that hold data
_DATA_NAMES = re.compile(
    r"(?:.*[-_.])?(?:requirements|constraints|vocab|words|wordlist|stopwords|robots|SOURCES|top_level)"
    r"(?:[-_.].*)?\.txt",
    re.IGNORECASE,
)
# Keys of front matter with the time at which a text was written, and last changed
_WRITTEN = ("created", "date", "created_at")
_CHANGED = ("modified", "updated", "last_modified", "lastmod", "updated_at")
# What a generator says of its file, not what a text says about generators
_GENERATED = re.compile(
    r"@generated\b|\bthis (?:file|document|page|table|list) (?:is|was|has been) (?:automatically |auto-?)?generated\b"
    r"|\bgenerated\b.*(?-i:DO NOT (?:EDIT|MODIFY|CHANGE))|(?-i:DO NOT (?:EDIT|MODIFY|CHANGE)).*\bgenerated\b"
    r"|^\s*(?:<!--|\.\. |//|;).*\b(?:auto-?generated|automatically generated|generated (?:by|from|with))\b",
    re.IGNORECASE,
)
# Words of a line that is a sentence
_SENTENCE = 6
# Lines at the top of a file in which a generator says that it made it
_TOP = 5
# Plain text with at least so many lines is a list if fewer than this share of them have several words. It is minified
# if its lines are this long on average
_LEAST_LINES, _LEAST_PROSE, _MINIFIED = 50, 0.2, 2_000
# Plain text with fewer words is test data more often than knowledge
_LEAST_WORDS = 8
# A decision record by its place and name, such as docs/adr/0001-use-wal.md
_RECORD = re.compile(
    r"(?:.*/)?(?:adrs?|decisions?|decision[-_]records?|architect\w+[-_]decisions?(?:[-_]records?)?)/"
    r"(?:[^/]+/)*(?:adr[-_ ]?)?\d+(?:[-_. ][^/]*)?\.(?:md|markdown|mdx|rst)",
    re.IGNORECASE,
)
# Lines with which a text only brings in other files: @AGENTS.md
_IMPORT = re.compile(r"@\S+\.md")
SKIPPED_FOLDERS = {"node_modules", "venv", "__pycache__", "site-packages"}


def find_files(directory: Path) -> list[str]:
    """Return the text files below the folder as sorted relative paths, without hidden and ignored ones.

    Raises:
        Invalid: there is no such folder.
        Unavailable: it is in a repository that git cannot read.
    """
    names = []
    for name in list_names(directory):
        path = Path(name)
        if path.suffix.lower() in ENDINGS and not _skipped_part(path) and _is_regular_file(directory / name):
            names.append(name)
    return sorted(names)


def left_out(directory: Path) -> list[tuple[str, str]]:
    """Return what ``find_files`` leaves out, with the reason: links, and folders that are hidden or hold packages."""
    reasons = {}
    for path in map(Path, list_names(directory)):
        if path.suffix.lower() not in ENDINGS:
            continue
        folder = _skipped_part(path)
        if folder:
            reasons[f"{folder}/"] = _SKIPPED_FOLDER
        elif not _is_regular_file(directory / path):
            reasons[str(path)] = _LINK
            top = directory.resolve()
            target = (directory / path).resolve()
            if (directory / path).is_symlink() and target.is_relative_to(top) and target.is_file():
                name = target.relative_to(top).as_posix()
                reasons[str(path)] = f"a link to {name}, which is in this folder"
    return sorted(reasons.items())


def list_names(directory: Path) -> Iterable[str]:
    """Return the files below the folder as relative paths: those that git does not ignore, or all of an ignored folder.

    Raises:
        Invalid: there is no such folder.
        Unavailable: it is in a repository that git cannot read.
    """
    if not directory.is_dir():
        raise Invalid(f"{directory} is not a folder; name one that contains Markdown or text files")
    listed = git.list_files(directory)
    return _walk(directory) if listed is None else listed


def path_of_folder(directory: Path, within: str) -> str:
    """Return the folder's path in its git worktree, such as ``docs/``, below ``within/`` if that is given."""
    above = git.path_in_worktree(directory)
    return f"{within}/{above}" if within else above


def changed_times(directory: Path, names: Collection[str]) -> dict[str, datetime]:
    """Map files to when they were last changed: in their last commit, or outside git as the file system has it."""
    return {name: modified_at(directory / name) for name in names} | git.last_changes(directory, names)


def modified_at(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        return clock.now()


def times_of(matter: Mapping[str, Any], changed: datetime | None) -> tuple[datetime | None, datetime | None]:
    """Return when a text was written and last changed, by its front matter, or ``changed`` if that has no time."""
    written = _first_moment(matter, _WRITTEN)
    revised = _first_moment(matter, _CHANGED)
    if written or revised:
        return written, revised
    return None, changed


def _first_moment(matter: Mapping[str, Any], keys: Sequence[str]) -> datetime | None:
    for key in keys:
        value = matter.get(key)
        if isinstance(value, str):
            try:
                return clock.from_text(value)
            except ValueError:
                continue
    return None


# A clock of the past may have been ahead
def imported_times(written: datetime | None, revised: datetime | None) -> dict[str, str]:
    """Return the fields of ``ImportedMemory`` with the times of the source."""
    times = {"written_at": written or revised, "revised_at": revised}
    now = clock.now()
    return {name: clock.to_text(min(clock.in_utc(moment), now)) for name, moment in times.items() if moment}


def read_text(path: Path) -> str:
    """Return the text of a file, with line feeds as line ends.

    Raises:
        Invalid: it is binary, a link, unreadable, larger than 2 MB or in an unknown encoding.
    """
    try:
        text = decode(read_foreign(path, limit=MAX_BYTES, follows_links=False))
    except OSError as error:
        is_large = error.errno == errno.EFBIG
        raise Invalid(str(error.strerror) if is_large else f"it can't be read: {error.strerror}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def record_reason(path: str) -> str:
    """Return why a file is left out that is a decision record by its place and name, or ""."""
    folder = Path(path).parent.as_posix()
    if not _RECORD.match(path):
        return ""
    return f"a decision record; `memory-hub import adr {folder}` imports it with its status"


def import_reason(text: str) -> str:
    """Return why a text is left out that only names files for a client to import, or ""."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or not all(map(_IMPORT.fullmatch, lines)):
        return ""
    return f"it only imports {', '.join(line[1:] for line in lines[:5])}"


def is_data(name: str, text: str) -> bool:
    """Return whether a file is a list, generated, minified or a few words: a vocabulary, pinned requirements."""
    lines = [line for line in text.split("\n") if line.strip()]
    if _DATA_NAMES.fullmatch(Path(name).name):
        return sum(len(line.split()) >= _SENTENCE for line in lines) * 2 <= len(lines)
    if any(_GENERATED.search(line[:200]) for line in lines[:_TOP]):
        return True
    if Path(name).suffix.lower() != ".txt":
        return False
    prose = sum(len(line.split()) > 2 for line in lines)
    is_list = len(lines) >= _LEAST_LINES and prose < _LEAST_PROSE * len(lines)
    return is_list or len(text.split()) < _LEAST_WORDS or sum(map(len, lines)) > _MINIFIED * len(lines)


def _walk(directory: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not _is_skipped(name)]
        for name in names:
            yield os.path.relpath(Path(folder) / name, directory)


# The path up to its first hidden or package folder, or ""
def _skipped_part(path: Path) -> str:
    for number, part in enumerate(path.parts, 1):
        if _is_skipped(part):
            return "/".join(path.parts[:number])
    return ""


# Links are skipped: they may lead out of the folder
def _is_regular_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in SKIPPED_FOLDERS


_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"([^\s:#'\"\-][^:]*):(?:[ \t]+(.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_IN_LIST = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^,]+")
_COMMENT = re.compile(r"(?:\A|\s)#.*\Z")
_TAGS = ("tags", "tag")
# Keys by which a second block is front matter, and no text between two lines
_USUAL = {"title", "name", "description", "tags", "type", "date", "created", "modified", "updated", "aliases", "status"}
# Levels of nested lists and objects in a value; Python's own recursion limit is a thousand calls
_DEEPEST = 32
_BLOCKS = {"|": "\n", "|-": "\n", ">": " ", ">-": " "}


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter, with keys in lower case, and the rest of the document.

    Values are strings, lists or JSON. A subset of YAML: nested mappings, anchors and tags are not interpreted. A second
    block below the first, as tools leave it that put their own above a text's, takes precedence.

    Raises:
        Invalid: a value is nested too deeply.
    """
    values: dict[str, Any] = {}
    for number in range(2):
        block = _FRONT_MATTER.match(text.lstrip("\n") if number else text)
        more = _values(block[1].split("\n")) if block else {}
        if block is None or (number and not _USUAL.intersection(more)):
            break
        values |= more
        text = block.string[block.end() :]
    return values, text


def front_matter_lines(text: str) -> dict[str, str]:
    """Return the lines of each key of the front matter as they are written; "" has those above the first key."""
    matter = _FRONT_MATTER.match(text)
    blocks: dict[str, str] = {}
    key = ""
    for line in re.findall(r"[^\n]*\n", matter[1] if matter else ""):
        match = _KEY.fullmatch(line.rstrip())
        if match:
            key = match[1].lower()
        blocks[key] = blocks.get(key, "") + line
    return blocks


def _values(lines: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    key, start = "", 0
    for number, line in enumerate([*lines, "end:"]):
        match = _KEY.fullmatch(line.rstrip())
        if match is None:
            continue
        if key:
            block = lines[start:number]
            if key in _TAGS:
                block = [_without_marks(line) for line in block]
            values[key] = _value(block[0], block[1:])
        key, start = match[1].rstrip().lower(), number
    return values


# Notes write tags as in their text: ``#tag``, which YAML takes for a comment, and ``[[tag]]``
def _without_marks(line: str) -> str:
    line = re.sub(r"^([ \t]*-[ \t]+)#(?=\w)", r"\1", line)
    line = re.sub(r"\[\[([^\[\]|]+)(?:\|[^\[\]]*)?\]\]", r"\1", line)
    return re.sub(r"(?:\s*,)?(\s|\[)#(?=\w)", lambda mark: "[" if mark[1] == "[" else ", ", line).replace(":, ", ": ")


def _value(key_line: str, below: list[str]) -> Any:
    match = _KEY.fullmatch(key_line.rstrip())
    inline = (match[2] or "").strip() if match else ""
    if inline in _BLOCKS:
        return _BLOCKS[inline].join(line.strip() for line in below).strip()
    items = [match[1] for match in map(_ITEM.fullmatch, below) if match]
    if items and not _COMMENT.sub("", inline):
        return [_scalar(item) for item in items]
    more = [line.strip() for line in below if not line.lstrip().startswith("#")]
    return _scalar(" ".join(filter(None, [inline, *more])))


def _scalar(text: str, depth: int = 0) -> Any:
    text = text.strip()
    _require_shallow(depth)
    if text[:1] in ('"', "[", "{"):
        try:
            value = json.loads(text)
        except ValueError:
            pass
        except RecursionError:
            _require_shallow(_DEEPEST + 1)
        else:
            _require_shallow(depth + _depth(value))
            return value
    if text.startswith("["):
        inside = _COMMENT.sub("", text).strip().removeprefix("[").removesuffix("]")
        return list(filter(None, [_scalar(item, depth + 1) for item in _IN_LIST.findall(inside)]))
    if match := re.match(r'"(.*)"', text):
        return match[1]
    if match := re.match(r"'((?:[^']|'')*)'", text):
        return match[1].replace("''", "'")
    return _COMMENT.sub("", text).strip()


# Without recursion: the value may be nested deeper than Python can follow
def _depth(value: Any) -> int:
    depth = -1
    level = [value]
    while level:
        depth += 1
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        level = below
    return depth


def _require_shallow(depth: int) -> None:
    if depth > _DEEPEST:
        raise Invalid(f"its front matter is nested too deeply; at most {_DEEPEST} levels are read")


# Compared with the log to tell deletions by an import from those by a person: never change it
GONE_FROM_FILE = "the section is gone from its file"


def without_deleted(commands: Sequence[W]) -> list[W]:
    """Return the commands whose memory was not deleted by anyone but an import."""
    keys = [command.topic_key for command in commands if command.topic_key]
    newest = dict(Memory.objects.filter(topic_key__in=keys).order_by("id").values_list("topic_key", "id"))
    deleted = set(Memory.objects.filter(id__in=newest.values(), deleted_at__isnull=False).values_list("id", flat=True))
    deletions = log.events().of_stream(*(f"memory:{memory_id}" for memory_id in deleted)).of_type(MEMORY_DELETED)
    reasons = {}  # the last deletion of each comes last and wins
    for stream, text in deletions.values_list("stream_id", "payload_json"):
        reasons[int(stream.removeprefix("memory:"))] = json.loads(text or "{}").get("reason", "")
    by_a_person = {memory_id for memory_id, reason in reasons.items() if reason != GONE_FROM_FILE}
    return [command for command in commands if newest.get(command.topic_key) not in by_a_person]


_BINARY = "it is binary, or its text is not in UTF-8"
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_CYRILLIC = ("cp1251", "koi8_r", "cp866")
_JAPANESE = ("cp932", "euc_jp")
_IDEOGRAPHIC = (*_JAPANESE, "gb18030", "big5", "cp949")
_ENCODINGS = ["cp1252", "cp1250", *_CYRILLIC, "cp1253", "cp1254", "cp1255", *_IDEOGRAPHIC]
# Letters beside a to z that the texts of one language have
_LETTERS = (
    *("àâæçéèêëîïôœùûüÿ", "äöüßé", "áéíñóúü", "ãáàâçéêíõóôú", "àèéìíòóù", "åäöé", "æøåéü", "éëèïöü", "áéíóúýþæðö"),
    *("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíľňóôšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž", "çğıöşüâîû"),
    *("абвгдежзийклмнопрстуфхцчшщъыьэюяё", "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя", "абвгдђежзијклљмнњопрстћуфхцчџш"),
    *("абвгдеёжзійклмнопрстуўфхцчшыьэюя", "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ", "אבגדהוזחטיכךלמםנןסעפףצץקרשת"),
)
_ALPHABETS = [frozenset(letters) for letters in _LETTERS]
# Bytes of another encoding: control codes, accents alone, signs and other scripts within a word of a to z
_ODD = re.compile(
    r"[\0-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff¨¯´¸ˇ˘˙˛˝]|[^\W\d_][¡-©«-³µ-·»-¿×÷][^\W\d_]"
    r"|[A-Za-z][Ͱ-ϿЀ-ӿ֐-׿]|[Ͱ-ϿЀ-ӿ֐-׿][A-Za-z]"
)
# A guess that is less regular than this is none
_MOST_CHAOS = 0.1
# How much a text is like the language of the best guess, and how much more than like those of the others
_COHERENCE, _AHEAD = 0.4, 0.2


def decode(raw: bytes) -> str:
    """Return the text of a file without a byte order mark.

    Raises:
        Invalid: it is binary, or in an encoding that cannot be determined.
    """
    if encoding := _MARKS.get(raw[:2]):
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError as error:
            raise Invalid("it is binary, or its UTF-16 is damaged") from error
        if "\0" in text:
            raise Invalid(_BINARY)
        return text
    if b"\0" in raw:
        raise Invalid(_BINARY)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _recognised(raw)


def _recognised(raw: bytes) -> str:
    from charset_normalizer import from_bytes  # Only few files need it

    likely: dict[str, float] = {}
    for guess in from_bytes(raw, cp_isolation=_ENCODINGS):
        text = str(guess)
        if guess.chaos < _MOST_CHAOS and not _ODD.search(text) and _is_language(text, guess.encoding):
            likely[text] = guess.coherence
    ranked = sorted(((coherence, text) for text, coherence in likely.items()), reverse=True)
    if len(ranked) == 1:
        return ranked[0][1]
    if ranked and ranked[0][0] >= max(_COHERENCE, ranked[1][0] + _AHEAD):
        return ranked[0][1]
    raise Invalid("its text is not in UTF-8, and in which other encoding is not certain; convert it to UTF-8")


def _is_language(text: str, encoding: str) -> bool:
    letters = {letter for letter in text.lower() if letter.isalpha() and not letter.isascii()}
    if encoding not in _IDEOGRAPHIC:
        return any(letters <= alphabet for alphabet in _ALPHABETS)
    scripts = {unicodedata.name(letter, "").partition(" ")[0].partition("-")[0] for letter in letters}
    japanese = {"CJK", "HIRAGANA", "KATAKANA"}
    return scripts == {"HANGUL"} or scripts <= (japanese if encoding in _JAPANESE else {"CJK"})
