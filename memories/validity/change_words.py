"""Explicit words by which something ends, or another begins to hold, in English."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from memories.search.text import folded

# Characters of the longest sentence that counts
_LONGEST_SENTENCE = 300
_PAUSE = re.compile(r"[,;:]\s|[,;:]$")
_IS = r"(?:is|are|was|were|has been|have been|had been|got|gets)(?: (?:being|now|finally|completely|all))*"
_ENDED = "gone removed retired abandoned deprecated obsolete outdated replaced superseded discontinued dropped".split()
_CHANGED = (
    "moved migrated switched changed bumped raised lowered increased reduced extended shortened upgraded downgraded "
    "renamed converted reverted reversed moving migrating switching changing raising lowering"
).split()
_HAS_ENDED = f"(?:{'|'.join(_ENDED)}|(?:switched|turned) off|shut down|phased out)"
# What is removed each time goes on
_NOT_HABIT = r"(?! (?:by|when|after\w*|every|each|once|at|on|if|with|automatically)\b)"
_HAS_CHANGED = f"(?:{'|'.join(_CHANGED)})"
_OLD = r"(?P<old>.*?)(?= (?:with|by|to|for|in favou?r|as|because|and)\b|$)"


class _Rule(NamedTuple):
    """Words of a clause by which something ends, or another begins to hold.

    The group ``old`` is what no longer holds, ``subject`` is what has changed.
    """

    # The clause has one of these
    words: frozenset[str]
    pattern: re.Pattern[str]


def _rule(words: str | Sequence[str], pattern: str) -> _Rule:
    return _Rule(frozenset(words.split() if isinstance(words, str) else words), re.compile(pattern))


_RULES = [
    _rule("longer", r"(?P<old>.*\bno longer\b.*)"),
    _rule("any anymore", r"(?P<old>.*\b(?:not|no|nothing|nobody|only|\w+n['’]t)\b.*)\b(?:any ?more|any longer)\b"),
    _rule(
        "instead rather place rid stop stopped forget replaces replaced replacing replace supersedes superseded",
        r"\b(?:instead of|rather than|in place of|rid of|stop(?:ped)? using|forget(?: about)?"
        rf"|(?:replac|supersed)(?:es|ed|ing|e)) {_OLD}",
    ),
    _rule(
        "drop dropped dropping retired retiring",
        rf"(?:^|\b(?:we|i|please|have|has|['’]ve) )(?:drop(?:ped|ping)?|retir(?:ed|ing)) {_OLD}",
    ),
    _rule([*_ENDED, "off", "down", "out"], rf"^(?P<old>.*?) {_IS} {_HAS_ENDED}\b{_NOT_HABIT}"),
    _rule(
        _CHANGED,
        rf"\b(?:we|we['’](?:ve|re)|we have|i|i['’]ve) (?:now )?{_HAS_CHANGED}\b(?P<subject>.*?)(?: to\b|$)",
    ),
    _rule(_CHANGED, rf"^(?P<subject>(?:\S+ ){{1,6}}){_HAS_CHANGED}\b"),
    _rule(
        "now today from as going henceforth onwards",
        r"\bfrom (?:now|today)\b|^from (?:\S+ ){1,4}on\b|\bas of\b|\bgoing forward|\bhenceforth|\bonwards",
    ),
    _rule("actually correction scratch wrong", r"^(?:ok |no )?(?:actually|correction|scratch that)\b|\bi was wrong\b"),
    _rule(
        "instead now",
        r"\binstead$|\bnow$|\bwe now\b|^(?P<subject>.*?) (?:now (?:is|are|uses?|runs?|needs?|goes|go|lives?)"
        r"|(?:is|are|runs?|uses?|goes|go|lives?|needs?|reads?) now)\b",
    ),
]
# A text with words of change has one of these
CHANGE_WORDS = frozenset().union(*(rule.words for rule in _RULES)) - {*"as from place out off down any".split()}
# What is asked or only considered
_OPEN = re.compile(
    r"\?\s*$|^(?:should|could|would|shall|can|may|do|does|did|is|are|what|why|how|if|maybe|perhaps|todo)\b(?! not\b)"
    r"|\b(?:might|maybe|perhaps|would|could|consider(?:ing)?|propos(?:e|al|ed)|plan(?:s|ned|ning)? to|todo|wonder"
    r"|think about|discuss(?:ed|ing)?|whether|decided against|in case)\b"
)
# A single act, which says nothing of what holds
ACT = re.compile(
    r"\b(?:i|i['’]ve|i['’]ll|i['’]m|let me|let['’]s) (?:have |now |also |just )*(?!mean|prefer|want|was wrong)[a-z]+"
)
# A line of a list of changes
CHANGELOG = re.compile(
    r"[-*•+] |(?:done|fix(?:ed|es)?|merged?|add(?:ed|s)?|tested|ran|refactor(?:ed)?|investigated|released|committed"
    r"|pushed|improved?|running|thanks|(?:fix|feat|chore|refactor|docs|tests?|perf|build|ci|style|revert)(?:\([^)]*\))?!?:)\b"
)


def plain_sentence(sentence: str) -> str:
    """Return a sentence in lower case and on one line, as the rules expect it."""
    return " ".join(folded(sentence).lower().split()).rstrip(".!")


def is_open_sentence(plain: str) -> bool:
    return bool(_OPEN.search(plain) or CHANGELOG.match(plain))


def changes_in(plain: str) -> Iterator[dict[str, str]]:
    """Yield the groups of each rule that a plain sentence meets; none if it asks, or is an entry of a changelog."""
    if len(plain) > _LONGEST_SENTENCE or is_open_sentence(plain):
        return
    is_act = bool(ACT.search(plain))
    for clause in _PAUSE.split(plain):
        words = clause.split()
        for rule in _RULES:
            if not rule.words.isdisjoint(words) and (match := rule.pattern.search(clause)):
                groups = match.groupdict()
                if "old" in groups or not is_act:
                    yield groups
