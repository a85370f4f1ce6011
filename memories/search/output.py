"""The output of a command: the lines that say what failed, without what differs from run to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

# Colours, movements of the cursor, and titles of the window
_TERMINAL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# What is no part of an error: addresses, ids, times, the folders of paths, and line numbers
_VARYING = re.compile(
    r"""\b0x[0-9a-f]{4,}\b
    | \b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b
    | \b\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*
    | \b\d\d:\d\d:\d\d\S*
    | (?:\b[a-z]:)?(?:~|\.{1,2})?(?:[/\\][\w.@+~-]+){1,40}[/\\](?=[\w@])
    | (?<=\w):\d+(?::\d+)?\b | \(\d+,\ ?\d+\) | \bline\ \d+
    | \b(?:in\ )?\d+(?:\.\d+)?\ ?m?s\b
    | ^==\d+== | (?<=\[)\d+(?=\])""",
    re.IGNORECASE | re.VERBOSE,
)
# A line that names its error
_NAMED = re.compile(
    r"""\b[A-Z][\w.$]*(?:Error|Exception|Failure|Panic|Fault)\b(?!\w*\()
    | (?:^|[\s:\]\[])(?:error|fatal|panic|failed|fail|failure|exception|err!)(?:\[\w+\]|\ [A-Z]+\d+)?\s*[:!-]
    | ^(?:\S+[/\\])?[\w.-]+\.\w+(?::\d+){1,2}:\s | \berror\ [A-Z]+\d+\b | ^E\ {2,}\S | \berror:?\ command\b
    | command\ not\ found | no\ such\ file | permission\ denied | segmentation\ fault | core\ dumped
    | cannot\ find\ module | no\ module\ named | unresolved\ import | is\ not\ recognized | connection\ refused""",
    re.IGNORECASE | re.VERBOSE,
)
# A line that only says that there was one
_FAILING = re.compile(
    r"\b(?:errors?|fail(?:ed|s|ure|ures)?|cannot|can't|could not|couldn't|unable|undefined|not found|denied|refused"
    r"|invalid|unexpected|missing|unknown|conflict|timed? ?out|rejected|abort(?:ed|ing)?)\b",
    re.IGNORECASE,
)
_NO_FAILURE = re.compile(
    r"\b(?:0|no|without) (?:errors?|fail(?:ed|ures?)|warnings?)\b|\b(?-i:WARN|INFO|DEBUG)\b", re.IGNORECASE
)
# A line without any of these, in small letters, names no error: quicker to see than by the patterns above
_HINTS = (
    "error,err!,exception,fail,panic,fault,fatal,denied,refused,not found,no such,dumped,cannot,can't,could,unable,"
    "undefined,invalid,unexpected,missing,unknown,conflict,timed,timeout,time out,reject,abort,no module,unresolved,"
    "recognized,: ,e  "
).split(",")
_LEAST_BREAKS = 3
_LONGEST_LINE = 300
_MOST_LINES = 2_000


def for_reading(output: str) -> str:
    """Return a text without what only a terminal understands, such as colours."""
    return _TERMINAL.sub("", output)


def error_lines(output: str, most: int = 5) -> list[str]:
    """Return the distinct lines that say what failed, those that name an error first; empty if there are none."""
    named: dict[str, str] = {}
    failing: dict[str, str] = {}
    text = for_reading(output)
    for line in _hinting_lines(text):
        if _NO_FAILURE.search(line):
            continue
        if _NAMED.search(line):
            named.setdefault(without_varying(line), line)
        elif _FAILING.search(line):
            failing.setdefault(without_varying(line), line)
    return [*named.values(), *failing.values()][:most]


def _hinting_lines(text: str) -> Iterator[str]:
    small_text = text.lower()
    hints = [hint for hint in _HINTS if hint in small_text]
    for whole_line in text.splitlines()[-_MOST_LINES:]:
        line = whole_line.strip()[:_LONGEST_LINE]
        small = line.lower()
        for hint in hints:
            if hint in small:
                yield line
                break


@lru_cache(maxsize=4096)
def without_varying(line: str) -> str:
    """Return a line without addresses, times, folders of paths and line numbers."""
    return " ".join(_VARYING.sub(" ", line).split())


def errors_first(question: str) -> str:
    """Return a question of several lines with what failed in front of them; others as they are."""
    if question.count("\n") < _LEAST_BREAKS:
        return question
    return "\n".join((*map(without_varying, error_lines(question)), question))
