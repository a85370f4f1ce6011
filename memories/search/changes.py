"""Questions about changes: why something was replaced, when it was dropped, what it was renamed to (decision 49).

Most entries that share a word with such a question are about the subject, not about the change: of thirty commits that
name a library, one replaced it. Entries with a line that has both the subject and a word for a change rank higher.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from memories.search.parsed_query import ParsedQuery
from memories.search.words import words_in
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LINE_END

_CHANGE = re.compile(
    r"""\b(?:
    (?:replac|remov|renam|migrat|deprecat|abandon|disabl|retir|convert|revert|introduc|eliminat)(?:e[sd]?|ing|ion|ed|s)?
    | (?:drop|swap)(?:s|ped|ping)? | switch(?:e[sd]|ing)? | mov(?:e[sd]?|ing) | port(?:s|ed|ing)?
    | stop(?:s|ped|ping)? | chang(?:e[sd]?|ing) | instead | longer | favou?r | rid | away | reworks?
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_ASKS = re.compile(r"\b(?:why|when|what|which|who|how|since)\b", re.IGNORECASE)
# Best hits that are looked at, lines of each, and characters of a line
_LOOKED_AT, _LINES, _LINE = 200, 200, 300
# What a line with all words of the subject adds to the factor: the title, and any other line
_IN_TITLE, _IN_TEXT = 1.0, 0.5

_TEXTS = (
    f"SELECT id, message FROM sessions_app_commit WHERE id IN {IDS} "
    f"UNION ALL SELECT id, title || {LINE_END} || content FROM memories_memory WHERE id IN {IDS}"
)


def change_weights(query: ParsedQuery, ids: Sequence[int]) -> dict[int, float]:
    """Return factors above 1 for commits and memories that tell of the change that a question is about."""
    if not (_ASKS.search(query.text) and _CHANGE.search(query.text)):
        return {}
    subject = [word for word in query.terms if not _CHANGE.fullmatch(word)]
    wanted = json.dumps(list(ids[:_LOOKED_AT])) if subject else "[]"
    found = rows.fetch(_TEXTS, [wanted, wanted])
    return {entry: weight for entry, text in found if (weight := _weight(text, subject)) > 1}


def _weight(text: str, subject: Sequence[str]) -> float:
    title, *lines = text.split("\n", _LINES)[:_LINES]
    in_text = max((_share(line, subject) for line in lines), default=0.0)
    return 1 + max(_IN_TITLE * _share(title, subject), _IN_TEXT * in_text)


def _share(line: str, subject: Sequence[str]) -> float:
    line = line[:_LINE]
    return len(words_in(line, subject)) / len(subject) if _CHANGE.search(line) else 0.0
