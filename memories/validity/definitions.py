"""Find the functions, classes, types and constants that a source file defines, by a scan of its lines.

A keyword or the form of a line begins a definition, and its indentation delimits it. Decision 95 compares this with
parsers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple


class Definition(NamedTuple):
    """A named part of a source file, with its first and last line, counted from 1."""

    # A member has its class before it: ``Client.send``
    name: str
    first: int
    last: int


# Characters of a file that is scanned, and of a line that can begin a definition
MAX_TEXT, _MAX_LINE = 600_000, 400
_MODIFIERS = (
    r"(?:(?:export|default|declare|abstract|async|public|private|protected|internal|static|final|sealed|override|"
    r"virtual|inline|constexpr|unsafe|readonly|partial|open|data|suspend|local|typedef|template\s?<[^{}]*>|"
    r"extern(?:\s\"C\")?|pub(?:\([^)]*\))?|const(?=\s+(?:async|unsafe|extern|fn|enum)\b))\s+)*"
)
_FUNCTION = re.compile(
    rf"{_MODIFIERS}(?:(?:def|func|fn|fun|function)\b|macro_rules!)\s*[*&]?\s*"
    r"(?:\((?:\w+\s+)?\*?(?P<owner>\w+)(?:\[[^\]]*\])?\)\s*|self\.)?(?P<name>[\w$]+[?!]?)"
)
_CLASS = re.compile(
    rf"{_MODIFIERS}(?:class|namespace|module|mod|trait|struct|union|interface|@interface|enum(?:\s+class)?|record|"
    r"object|protocol|extension)\s+(?:[A-Z][A-Z0-9_]+\s+(?=\w+\s*[:{]))?(?P<name>\w+(?:::\w+)*)(?!\s+[*&]*\w+\s*[;=(\[])"
)
_IMPL = re.compile(
    r"(?:unsafe\s+)?impl\b(?:<.*?>(?=\s+[\w&]))?\s*(?:.*?\bfor\s+)?(?:&?(?:'\w+\s+)?(?:mut\s+)?)(?:\w+::)*(?P<name>\w+)"
)
_VALUE = re.compile(
    rf"(?:{_MODIFIERS}(?:const|let|var|val|type|using|static(?=\s+(?:mut\s+)?\w+\s*:))\s+(?:mut\s+)?|#\s*define\s+)"
    r"(?P<name>[\w$]+)(?=\s*(?:$|[:=(<])|\s+[\w*\[\]./\"'{(-])"
)
# Forms without a keyword
_SCRIPT_METHOD = re.compile(
    rf"{_MODIFIERS}(?:get\s+|set\s+)?\*?(?P<name>[#\w$]+)\??\s*(?:<[^()]*>\s*)?"
    r"(?:\((?:.*\)\s*(?::.*)?\{.*|[^;]*[({,]|\{)?$|(?::[^=;]+)?=\s*(?:async\s*)?(?:\(.*|\w+\s*)(?:=>.*|\()$)"
)
_SCRIPT_ASSIGNED = re.compile(
    r"(?P<owner>[\w$]+(?:\.[\w$]+)*)\.(?P<name>[\w$]+)\s*=\s*(?:[\w$.]+\s*=\s*)*(?:async\s*)?(?:function\b|\([^()]*\)\s*=>|[\w$]+\s*=>)"
)
_TYPED_FUNCTION = re.compile(
    r"(?:[\w$@<>\[\],.*&:?~\"]+\s+|[\w:<>,]+[*&]+\s*|\w+\([^()]*\)\s+)*?[*&]*"
    r"(?P<name>(?:\w+(?:<[\w, ]*>)?::)*~?[A-Za-z_]\w*)\s*\((?!\*)"
    r"(?:[^;]*;?|[^;{]*\{.*\})$"
)
_TYPED_VALUE = re.compile(
    r"(?:(?:static|final|const|constexpr|inline|public|private|protected)\s+)+[\w<>\[\], ?.:*&]*?[ *&]"
    r"(?P<name>\w+)(?:\[[^\]]*\])*\s*="
)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*(?::[^=]+)?=(?![=~])")
_MEMBER = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\s+[\w*\[\]./]+)?\s*(?:=.*|struct\b.*|interface\b.*|$)")
_NO_NAMES = frozenset(
    """if else elif for foreach while switch case catch try do return new delete throw typeof await yield using lock
    synchronized with in of when unless until match loop sizeof defined and or not assert super this operator select go
    defer import function alignas decltype static_assert noexcept default namespace extends implements""".split()
)
_GROUP = re.compile(r"(?:const|var|type)\s*\($")
_LABEL = re.compile(r"(?:default|public|private|protected|case\s.*|\w+)\s*:")
_WHERE = re.compile(r"where\b")
_WORD_END = re.compile(r"end\b")


class _Language(NamedTuple):
    # Comments and texts; those of several lines are blanked
    texts: str
    comments: tuple[str, ...]
    # Further forms of functions and constants
    forms: tuple[re.Pattern[str], ...] = ()


_DOUBLE, _SINGLE = r"\"(?:\\.|[^\"\\\n])*\"", r"'(?:\\.|[^'\\\n])*'"
_CHARACTER = r"'(?:\\[^\n]{1,8}?|[^'\\\n])'"
_COMMENT = r"/\*(?s:.*?)\*/|//[^\n]*"
# A regular expression begins where a value may
_REGULAR = r"(?<=[=(,:;!&|?{}])[ \t]*/(?![*/ \t])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/"
_SLASHES = ("//", "/*", "*/")
_PYTHON = _Language(
    rf"\"\"\"(?s:(?:\\.|.)*?)\"\"\"|\'\'\'(?s:(?:\\.|.)*?)\'\'\'|{_DOUBLE}|{_SINGLE}|#[^\n]*",
    ("#", "@"),
    (_ASSIGNMENT,),
)
_SCRIPT = _Language(
    rf"{_COMMENT}|{_DOUBLE}|{_SINGLE}|`(?s:(?:\\.|[^`\\])*)`|{_REGULAR}",
    (*_SLASHES, "@"),
    (_SCRIPT_ASSIGNED, _SCRIPT_METHOD),
)
_GO = _Language(rf"{_COMMENT}|{_DOUBLE}|{_CHARACTER}|`[^`]*`", _SLASHES)
_RUST = _Language(rf"{_COMMENT}|\bb?r(#*)\"(?s:.*?)\"\1|\"(?s:(?:\\.|[^\"\\])*)\"|{_CHARACTER}", (*_SLASHES, "#"))
_TYPED = _Language(
    rf"{_COMMENT}|\"\"\"(?s:.*?)\"\"\"|{_DOUBLE}|{_CHARACTER}", (*_SLASHES, "@"), (_TYPED_VALUE, _TYPED_FUNCTION)
)
_C = _Language(
    rf"{_COMMENT}|\bR\"(\w*)\((?s:.*?)\)\1\"|{_DOUBLE}|{_CHARACTER}", _SLASHES, (_TYPED_VALUE, _TYPED_FUNCTION)
)
_PHP = _Language(rf"{_COMMENT}|#[^\n]*|{_DOUBLE}|{_SINGLE}", (*_SLASHES, "#"))
_RUBY = _Language(
    rf"(?ms:^=begin\b.*?^=end\b)|<<[~-]?(['\"]?)([A-Z_]+)\1(?s:.*?)\n\s*\2(?=\n)|{_DOUBLE}|(?<![\w$?]){_SINGLE}|(?<![\w$\\])#[^\n{{]*",
    ("#",),
    (re.compile(r"(?P<name>[A-Z][A-Z0-9_]+)\s*=(?![=~])"),),
)
_SUFFIXES = {
    ".py .pyi": _PYTHON,
    ".js .jsx .mjs .cjs .ts .tsx .mts .cts .vue .svelte": _SCRIPT,
    ".go": _GO,
    ".rs": _RUST,
    ".java .kt .kts .cs .scala .swift .dart": _TYPED,
    ".c .h .cc .cpp .cxx .hpp .hh .hxx .m .mm": _C,
    ".rb .rake": _RUBY,
    ".php": _PHP,
}
_LANGUAGES = {suffix: language for suffixes, language in _SUFFIXES.items() for suffix in suffixes.split()}


def definitions(path: str, text: str) -> list[Definition]:
    """Return the definitions of a file in order of their first line; none in a language that is not known."""
    language = _LANGUAGES.get(PurePosixPath(path).suffix.lower())
    if language is None or len(text) > MAX_TEXT:
        return []
    blanked = re.sub(language.texts, _blank, text)
    return sorted(_Scan(language).of(blanked.split("\n")), key=lambda match: (match.first, -match.last))


# What follows a text of several lines is inside the definition, wherever in its line the text ends
def _blank(match: re.Match[str]) -> str:
    lines = match[0].count("\n")
    return ("\n" + _FAR) * lines if lines else match[0]


_FAR = " " * 200 + "."


class _OpenBlock(NamedTuple):
    name: str
    first: int
    indent: int
    is_class: bool
    # Whether it only holds definitions, as ``impl`` in Rust
    is_holder: bool


class _Scan:
    def __init__(self, language: _Language) -> None:
        self._language = language
        self._open: list[_OpenBlock] = []
        self._ends_with_word = language is _RUBY
        # Indentation of ``const (`` in Go, -1 outside
        self._group = -1

    def of(self, lines: list[str]) -> Iterator[Definition]:
        last = 0
        for number, line in enumerate(lines, 1):
            code = line.strip()
            if not code or self._is_skipped(code):
                continue
            expanded = line.expandtabs(4)
            indent = len(expanded) - len(expanded.lstrip())
            is_end = code[0] in ")]}>" or (self._ends_with_word and _WORD_END.match(code) is not None)
            # A brace or bracket at the indentation of the definition goes on with it, or ends it
            belongs = is_end or code[0] == "{" or _WHERE.match(code) is not None
            while self._open and indent <= self._open[-1].indent and not (belongs and indent == self._open[-1].indent):
                yield from self._closed(last)
            last = number
            if indent <= self._group:
                self._group = -1
            if not belongs:
                self._read(code, number, indent, lines)
            elif self._open and indent == self._open[-1].indent and is_end and self._is_last(code):
                yield from self._closed(number)
        while self._open:
            yield from self._closed(last)

    def _read(self, code: str, number: int, indent: int, lines: list[str]) -> None:
        if len(code) > _MAX_LINE or code.startswith(self._language.comments):
            return
        if self._language is _GO and _GROUP.match(code):
            self._group = indent
        elif not self._open or self._open[-1].is_class:
            self._begin(code, number, indent, lines, is_member=0 <= self._group < indent)

    def _is_skipped(self, code: str) -> bool:
        if self._language is _C:
            return (code[0] == "#" and not _VALUE.match(code)) or _LABEL.fullmatch(code) is not None
        return self._language is _PHP and code.startswith("<?")

    # What parameters end with may go on with a body
    def _is_last(self, code: str) -> bool:
        if code[0] == "}" or self._ends_with_word:
            return not code.endswith(("{", "(", "["))
        return code.endswith((";", ")", "]"))

    def _closed(self, last: int) -> Iterator[Definition]:
        block = self._open.pop()
        if not block.is_holder:
            yield Definition(block.name, block.first, max(last, block.first))

    def _begin(self, code: str, number: int, indent: int, lines: list[str], *, is_member: bool) -> None:
        match, is_class = self._match(code, number, indent, lines, is_member=is_member)
        if match is None:
            return
        groups = match.groupdict()
        owner = (groups.get("owner") or "").removesuffix(".prototype") or (self._open[-1].name if self._open else "")
        name = match["name"].replace("::", ".")
        full_name = f"{owner}.{name}" if owner else name
        self._open.append(_OpenBlock(full_name, number, indent, is_class, match.re is _IMPL))

    def _match(
        self, code: str, number: int, indent: int, lines: list[str], *, is_member: bool
    ) -> tuple[re.Match[str] | None, bool]:
        if is_member:
            return _MEMBER.match(code), False
        if match := _CLASS.match(code):
            return match, True
        if self._language is _RUST and (match := _IMPL.match(code)):
            return match, True
        if match := _FUNCTION.match(code) or _VALUE.match(code):
            return match, False
        for form in self._language.forms:
            match = form.match(code)
            if (
                match
                and match["name"] not in _NO_NAMES
                and (form in _PLAIN or self._has_body(code, number, indent, lines))
            ):
                return match, False
        return None, False

    # What looks like a function has a body: a brace, at its end or before what follows at its indentation
    def _has_body(self, code: str, number: int, indent: int, lines: list[str]) -> bool:
        if self._language is _SCRIPT and not self._open:
            return False
        for line in (code, *lines[number : number + 12]):
            text = line.strip()
            if text.endswith(("{", "{}", "}")) or text == "{" or "=>" in text:
                return True
            if text.endswith(";") and self._open and self._language is _TYPED:
                return True
            if text.endswith(";") or (line is not code and text and text[0] == "}"):
                return False
        return False


_PLAIN = (_ASSIGNMENT, _SCRIPT_ASSIGNED, _TYPED_VALUE, *_RUBY.forms)
