"""Decisions' parts in statistics, commits and context packs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import PurePosixPath

from django.db.models import Count, QuerySet

from decisions.edges import heads
from decisions.events import DECISION_RECORDED, DecisionRecorded
from decisions.models import IN_FORCE, ArtifactKind, CommitLink, Decision, DecisionStatus, LinkType
from decisions.selectors import count_by_status, decisions_of_commits
from memories.pack.answers import STRICT_CHOICE
from memories.pack.notes import LEAST_RARE, NoteSource, Situation, define_note, uses
from memories.pack.sections import (
    GatherRequest,
    PackItem,
    SectionDefinition,
    define_recallable,
    define_section,
    reference,
    without_repeats,
)
from memories.schemas import SearchSourceName
from memories.scopes import Level
from memories.search.index import has_full_text, text_index
from memories.search.parsed_query import parse
from memories.search.snippets import words_in
from memories.uses.counting import define_citing
from memoryhub.core import clock
from memoryhub.core.contributions import define_part, define_statistics
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import LIKE, elements, position_of
from memoryhub.core.text import one_line
from sessions_app.models import Commit


def count_commits() -> dict[str, int]:
    links = CommitLink.objects.all()
    for field in ("event", "decision_id", "commit_id"):
        links = outside_quarantine(links, field)
    linked = links.aggregate(commits=Count("commit_id", distinct=True))["commits"]
    return {"with_decision": linked, "without_decision": outside_quarantine(Commit.objects.all()).count() - linked}


def _texts(payload: DecisionRecorded) -> tuple[str, ...]:
    texts = [payload.title, payload.context, payload.chosen, payload.rationale]
    for alternative in payload.alternatives:
        texts += [alternative.option, alternative.why_not]
    return tuple(texts)


define_citing(DECISION_RECORDED, _texts)
define_statistics("decisions", count_by_status)
define_statistics("commits", count_commits)
define_part("commit", "decisions", decisions_of_commits)


_TITLE, _CHOSEN = 120, 300

# How many decisions about other subjects an opening has
_MOST_LATELY = 8


# The decisions that best match the query, then the latest unless there is a question
def _decisions(request: GatherRequest) -> list[PackItem]:
    latest: list[Decision] = []
    if not request.has_question:
        most = _MOST_LATELY if request.is_by_worth else request.most
        latest = list(_in_force().order_by("-decided_at", "-id")[:most])
        if not latest:
            return []
    return without_repeats(map(_item, [*_matching(request), *latest]))


def _count(_: GatherRequest) -> int:
    return _in_force().count()


def _in_force() -> QuerySet[Decision]:
    decisions = Decision.objects.filter(status__in=IN_FORCE).only("status", "title", "chosen", "decided_at")
    return outside_quarantine(decisions)


def _matching(request: GatherRequest) -> list[Decision]:
    scores = request.matching(request.chain[0], SearchSourceName.DECISION)
    if request.is_by_worth:
        least = max(STRICT_CHOICE.least_score, STRICT_CHOICE.near_best * max(scores.values(), default=0))
        scores = {decision: score for decision, score in scores.items() if score >= least}
    ids = list(scores)
    return sorted(_in_force().filter(id__in=ids), key=lambda decision: ids.index(decision.id))


def _item(decision: Decision, name: str = "") -> PackItem:
    name = name or f"#{decision.id}"
    status = "" if decision.status == DecisionStatus.ACCEPTED else f" {decision.status}"
    title, chosen = one_line(decision.title, _TITLE), one_line(decision.chosen, _CHOSEN)
    subject = f"{title}: {chosen}" if chosen else title
    return PackItem(name, f"- {name} decided{status} {clock.day(decision.decided_at)} {subject}")


def _recallable(level: Level, ids: Sequence[int], *_: object) -> dict[int, PackItem]:
    decisions = _in_force().filter(id__in=ids)
    return {decision.id: _item(decision, reference(level, decision.id)) for decision in decisions}


define_recallable(SearchSourceName.DECISION, _recallable)
define_section(SectionDefinition("decisions", "Decisions in force", 30, 0.25, 500, _decisions, "memory_search", _count))


# Commits of more files show little about one of them; the latest that reverted something are looked at
_MOST_FILES, _MOST_REVERTS = 20, 20
# Share of the words of a reverted commit's subject that a change has, to be like it
_LIKE = 0.4
# Documents with the words of a file's name that are looked at
_MOST_DOCUMENTS = 2_000
# A decision that names a file so many times may be about it
_OFTEN = 2
_BY_FILE = (
    "SELECT decision_id FROM decisions_artifactlink "
    f"WHERE kind = '{ArtifactKind.FILE_PATH}' AND event {OUTSIDE} AND value IN (SELECT value FROM {elements()} AS path)"
)
_BY_COMMIT = (
    "SELECT DISTINCT l.decision_id FROM decisions_commitfile f "
    "JOIN decisions_commitlink l ON l.commit_id = f.commit_id "
    f"WHERE f.path = %s AND l.link_type = '{LinkType.IMPLEMENTS}' AND l.event {OUTSIDE}"
)
_BY_WORD = (
    f"SELECT DISTINCT d.id FROM decisions_decision d JOIN {elements()} word "
    f"ON d.alternatives {LIKE} '%%' || word.value || '%%' WHERE d.status = '{DecisionStatus.ACCEPTED}'"
)
_WITH_NAME = (
    "SELECT d.id FROM ({matches}) f JOIN decisions_decision d ON d.id = f.id "
    f"WHERE {position_of('%s', 'd.context || d.chosen || d.rationale')} > 0"
)
_REVERTS = (
    "SELECT c.id, c.message FROM decisions_commitfile f JOIN sessions_app_commit c ON c.id = f.commit_id "
    f"WHERE f.path = %s AND c.message {LIKE} 'Revert %%' AND c.id {OUTSIDE} "
    "AND (SELECT count(*) FROM decisions_commitfile o WHERE o.commit_id = c.id) <= %s ORDER BY c.id DESC LIMIT %s"
)
_RETIRED = (DecisionStatus.SUPERSEDED, DecisionStatus.REJECTED, DecisionStatus.DEPRECATED)
_REVERTED_SUBJECT = re.compile(r'Revert[:\s]+"?(.+?)"?(?: \(#\d+\))*$')


# Decisions that rejected what the action brings in, or that the file's own link names, or that name the file and are
# about the change; then commits that reverted such a change of the file
def _rejected(situation: Situation) -> Iterator[int]:
    path = situation.action.path
    linked: set[int] = set()
    carried_out: set[int] = set()
    candidates: set[int] = set()
    if path:
        linked = _linked_decisions(path)
        carried_out = set(rows.column(_BY_COMMIT, [path]))
        candidates.update(linked, carried_out, _with_words_of(PurePosixPath(path).name))
    elif situation.rare_words:
        candidates.update(rows.column(_BY_WORD, [json.dumps(situation.rare_words)]))
    if not candidates:
        yield from _reverts(situation)
        return
    governing: dict[Decision, int] = {}
    for decision in outside_quarantine(Decision.objects.filter(id__in=candidates)):
        if decision.status not in _RETIRED and not (
            decision.status == DecisionStatus.ACCEPTED and decision.alternatives
        ):
            continue
        named = situation.count_names(_text_of(decision))
        if named or not path or decision.id in linked or decision.id in carried_out:
            governing[decision] = named
    counts = situation.rare_in([decision.id for decision in governing])
    ranked: list[tuple[int, int]] = []
    for decision, named in governing.items():
        is_linked = decision.id in linked
        brings_back = decision.status not in _RETIRED and _brings_back(situation, decision)
        is_named = named >= _OFTEN or (named > 0 and counts.get(decision.id, 0) >= LEAST_RARE)
        is_about = is_named and _is_subject_of(situation, decision)
        if brings_back or is_linked or is_about:
            ranked.append((100 * brings_back + 50 * is_linked + named, decision.id))
    yield from (entry for _, entry in sorted(ranked, reverse=True))
    yield from _reverts(situation)


# Decisions with the words of a file's name, and the name
def _with_words_of(name: str) -> set[int]:
    words = parse(name).terms
    if not words or not has_full_text():
        return set()
    matches, parameters = text_index.with_any([words], by_score=False, most=_MOST_DOCUMENTS)
    return set(rows.column(_WITH_NAME.format(matches=matches), [*parameters, name]))


def _linked_decisions(path: str) -> set[int]:
    places = [path, *(str(folder) for folder in PurePosixPath(path).parents if folder.name)]
    names = [form for place in places for form in (place, f"./{place}", f"{place}/")]
    return set(rows.column(_BY_FILE, [json.dumps(names)]))


def _text_of(decision: Decision) -> str:
    return "\n".join((decision.context, decision.chosen, decision.rationale))


# Whether the change, with its path, has enough words of what the decision is about: a new version number in a file that
# it names has none
def _is_subject_of(situation: Situation, decision: Decision) -> bool:
    words = parse(f"{situation.action.path} {situation.added}").terms
    shared = [word for word in parse(decision.title).terms if words_in(word, words)]
    return len(situation.uncommon(shared)) >= LEAST_RARE


# Whether the action adds a rare word that sets an alternative apart from what was chosen
def _brings_back(situation: Situation, decision: Decision) -> bool:
    chosen = f"{decision.title} {decision.chosen}"
    for alternative in decision.alternatives:
        named = words_in(alternative["option"], situation.rare_words)
        if any(uses(alternative["option"], word) and not uses(chosen, word) for word in named):
            return True
    return False


def _reverts(situation: Situation) -> Iterator[int]:
    restored: set[str] = set()
    for commit, message in rows.fetch(_REVERTS, [situation.action.path, _MOST_FILES, _MOST_REVERTS]):
        match = _REVERTED_SUBJECT.match(message.split("\n", 1)[0])
        subject = match[1] if match else ""
        if again := _REVERTED_SUBJECT.match(subject):
            restored.add(again[1].strip('"'))
        elif subject not in restored and _is_like(subject, situation):
            yield commit


# Whether a change has enough of the words of a commit's subject, rare ones among them
def _is_like(subject: str, situation: Situation) -> bool:
    words = parse(subject).terms
    shared = words_in(subject, situation.words)
    return len(words_in(subject, situation.rare_words)) >= LEAST_RARE and len(shared) >= _LIKE * len(words)


_OPTION, _REASON, _MOST_OPTIONS = 70, 60, 2


def _rejected_lines(level: Level, ids: Sequence[int], _topic: str, _now: datetime) -> dict[int, str]:
    decisions = Decision.objects.in_bulk(list(ids))
    replaced = heads([entry for entry, decision in decisions.items() if decision.status in _RETIRED])
    successors = Decision.objects.in_bulk([head for entry in replaced for head in replaced[entry] if head != entry])
    lines: dict[int, str] = {}
    for entry, decision in decisions.items():
        label = reference(level, entry)
        day = clock.day(decision.decided_at)
        if decision.status in _RETIRED:
            choice = f"{one_line(decision.title, _TITLE)}: {one_line(decision.chosen, _REASON)}"
            line = f"{label} {decision.status} {day}: {choice}"
            now_valid = [successors[head] for head in replaced.get(entry, []) if head in successors]
            if now_valid:
                names = ", ".join(
                    f"{reference(level, head.id)} {one_line(head.title, _OPTION)}" for head in now_valid[:2]
                )
                line = f"{line}; now: {names}"
        else:
            options = "; ".join(map(_option, decision.alternatives[:_MOST_OPTIONS]))
            chosen = decision.chosen if len(decision.chosen) <= _OPTION else decision.title
            line = f"{label} rejected {day}: {options}; decided: {one_line(chosen, _OPTION)}"
        lines[entry] = line
    for commit in Commit.objects.filter(id__in=[entry for entry in ids if entry not in lines]):
        subject, _, body = commit.message.partition("\n")
        reason = " ".join(
            line for line in body.split("\n") if line.strip() and not line.startswith("This reverts commit")
        )
        match = _REVERTED_SUBJECT.match(subject)
        because = f" ({one_line(reason, _REASON)})" if reason else ""
        name = one_line(match[1] if match else subject, _TITLE)
        lines[commit.id] = f"{reference(level, commit.id)} reverted {clock.day(commit.committed_at)}: {name}{because}"
    return lines


def _option(alternative: dict[str, str]) -> str:
    option = one_line(alternative["option"].replace("*", ""), _OPTION)
    why_not = one_line(alternative.get("why_not", "").replace("*", ""), _REASON)
    return f"{option} ({why_not})" if why_not else option


define_note(NoteSource("rejected", "Rejected choices", _rejected, _rejected_lines))
