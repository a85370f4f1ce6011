"""Notes: at most one line before a command or an edit, from what governs it (decision 92).

A note needs evidence: an entry that names the file, a word that it forbids, or rare words of the change in it. Without
it there is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from memories.events import GOVERNS
from memories.kinds import BETWEEN_HEADINGS
from memories.lessons.rules import command_key, cured_failures, normalized_command
from memories.models import ContextPack, Memory
from memories.pack.parts import PackableMemory, folder_of_rule, packable_memories
from memories.pack.sections import FilledSection, PackBody, PackItem, Remarks, SectionDefinition, reference, remarks_on
from memories.pack_sorts import NOTE, NOTE_SECTIONS, reference_of
from memories.scopes import Level
from memories.search.index import document_count, has_full_text, text_index
from memories.search.output import error_lines
from memories.search.parsed_query import parse
from memories.search.text import STOP_WORDS
from memoryhub.core import clock, log
from memoryhub.core.contributions import PlannedAction
from memoryhub.core.kinds import FAILURE, GUIDELINE
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, elements, has_part, json_text, position_of
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import first_line, one_line
from sessions_app.events.client import COMMAND_RUN
from sessions_app.selectors import SessionEvent, context_begins, read_events

MAX_TOKENS = 150
# Characters of the line, and of the passage of an entry in it
_LINE, _PASSAGE = 400, 240
# Entries with so many rare words of the change are about it
LEAST_RARE = 2
# A word is uncommon, or rare, in at most this share of the documents, or in so many
_UNCOMMON, _RARE, _FEW = 0.1, 0.01, 3
# Words of the change that are looked at, and characters
_MOST_WORDS, _CHANGE = 60, 4_000
# Type or tag of memories that come from a person's correction
CORRECTION = "correction"


@dataclass(frozen=True)
class Situation:
    """A planned action, and what of it is compared with the entries of the current store."""

    action: PlannedAction

    @cached_property
    def added(self) -> str:
        """The text that the action adds: the command, or the new lines of the change."""
        if self.action.command:
            return self.action.command
        lines = self.action.change[:_CHANGE].split("\n")
        new = [line[1:] for line in lines if line.startswith("+")]
        return "\n".join(new or lines)

    @cached_property
    def words(self) -> list[str]:
        """Words of the added text that are not in the path."""
        in_path = set(parse(self.action.path).terms)
        terms = [word for word in parse(self.added).terms if word not in in_path]
        return [word for word in terms if len(word) > 2 and not word.isdecimal()][:_MOST_WORDS]

    @cached_property
    def rare_words(self) -> list[str]:
        return [word for word, count in self._counted(self.words, _RARE) if count]

    def uncommon(self, words: Sequence[str]) -> list[str]:
        """Return those of the words that few documents of the current store have."""
        return [word for word, _ in self._counted(words, _UNCOMMON)]

    # Words that at most a share of the documents have, with their number
    def _counted(self, words: Sequence[str], share: float) -> list[tuple[str, int]]:
        if not words or not has_full_text():
            return []
        most = max(_FEW, round(rows.finish(document_count()) * share))
        counts = rows.finish(text_index.counts(words, most=most + 1))
        return [(word, count) for word, count in zip(words, counts, strict=True) if count <= most]

    def rare_in(self, ids: Collection[int]) -> dict[int, int]:
        """Count the rare words in documents, by id."""
        counts: dict[int, int] = {}
        if ids and self.rare_words:
            for hit, _ in text_index.matches(self.rare_words, list(ids)):
                counts[hit] = counts.get(hit, 0) + 1
        return counts

    @cached_property
    def path_pattern(self) -> re.Pattern[str] | None:
        return pattern_of_path(self.action.path)

    def count_names(self, text: str) -> int:
        """Count where the prose of a text names the file by its path, or by the end of it with a folder."""
        if self.path_pattern is None or PurePosixPath(self.action.path).name not in text:
            return 0
        return len(self.path_pattern.findall(prose(text)))


def pattern_of_path(path: str) -> re.Pattern[str] | None:
    """Return a pattern of a path, or of its end with at least one folder; None for a command or nothing."""
    if not path or " " in path:
        return None
    *folders, name = PurePosixPath(path).parts
    ends = re.escape(name)
    if folders:
        ends = f"{re.escape(folders[-1])}/{ends}"
    for folder in reversed(folders[:-1]):
        ends = f"(?:{re.escape(folder)}/)?{ends}"
    return re.compile(rf"(?<![\w/.-])(?:\./)?{ends}(?![\w/-]|\.\w)")


class NoteSource(NamedTuple):
    """A kind of note. The kinds are asked in their order, and the first that has an entry gives the note."""

    # Name of the section in the marks of packs
    name: str
    label: str
    # Ids of the entries of the current store that should be known before an action, the best first
    find: Callable[[Situation], Iterable[int]]
    # Their lines, given the topic of the note
    lines: Callable[[Level, Sequence[int], str, datetime], Mapping[int, str]]

    def note(
        self, situation: Situation, level: Level, topic: str, now: datetime, *, without: Collection[str]
    ) -> PackBody | None:
        """Return the note from the first entry that is not in ``without``, references of what was given before."""
        for entry in self.find(situation):
            name = reference(level, entry)
            if name not in without:
                remarks = remarks_on(level, [entry])
                for line in self.lines(level, [entry], topic, now).values():
                    if name not in remarks.rechecks:
                        return self.body(name, line, remarks)
        return None

    def body(self, name: str, line: str, remarks: Remarks) -> PackBody:
        item = PackItem(name, line)
        if name in remarks.beside:
            item = item.with_remark(remarks.beside[name])
        item = item.cut(_LINE)
        section = SectionDefinition(self.name, self.label, 0, 1.0, _LINE, lambda _: (), "")
        filled = FilledSection(section, [item], 0, estimate_tokens(item.line))
        return PackBody([filled], sort=NOTE, remarks=remarks)


_sources: dict[str, NoteSource] = {}


def define_note(source: NoteSource) -> None:
    """Register a kind of note; its name is one of ``NOTE_SECTIONS``, which are in order."""
    _sources[source.name] = source


def note_sources() -> list[NoteSource]:
    return [_sources[name] for name in NOTE_SECTIONS if name in _sources]


def topic_of(action: PlannedAction) -> str:
    """Return what a note is about: the path of the file, or the command in the form in which runs are compared."""
    return action.path or command_key(action.command)


def note_body(
    action: PlannedAction, topic: str, levels: Sequence[Level], now: datetime, *, is_off: Callable[[str], bool]
) -> PackBody:
    """Return the note for an action, empty without evidence, or if the session was given one for it already.

    Args:
        action: the action.
        topic: what the note is about, as the log will have it.
        levels: the visible stores, nearest first.
        now: the time.
        is_off: whether a kind is switched off, in the current store; asked only of one that has a note.
    """
    sent = notes_in_context(action.session_id)
    if topic in sent:
        return PackBody([])
    earlier = set(map(reference_of, chain.from_iterable(sent.values())))
    for level in levels:
        situation = Situation(action)
        for source in note_sources():
            with use_store(level.store):
                body = source.note(situation, level, topic, now, without=earlier)
            if body and not is_off(source.name):
                return body
    return PackBody([])


def notes_in_context(session_id: str) -> dict[str, Collection[str]]:
    """Return the notes that a session was given since its last compaction: keys of marks by topic."""
    sent = ContextPack.objects.filter(session_id=session_id, id__gt=context_begins(session_id))
    return {topic: keys for topic, keys in sent.values_list("query", "marks") if note_kind(keys)}


def noted_body(
    levels: Sequence[Level], marks: Collection[str], topic: str, now: datetime, remarks: Remarks
) -> PackBody:
    """Return a note as it was given, by its mark; empty if its entry was erased since."""
    for key in marks:
        section, _, name = key.partition(" ")
        scope, _, entry = name.partition("#")
        for level in levels:
            if reference(level, 0).partition("#")[0] == scope:
                with use_store(level.store):
                    for line in _sources[section].lines(level, [int(entry)], topic, now).values():
                        return _sources[section].body(name, line, remarks)
    return PackBody([])


def note_kind(keys: Iterable[str]) -> str:
    """Return the kind of the note that a pack is, given the keys of its marks; "" for other packs."""
    return next((section for key in keys if (section := key.partition(" ")[0]) in NOTE_SECTIONS), "")


# Where a paragraph or a list item begins
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+|]|\d+[.)])\s)")


def passage(text: str, pattern: re.Pattern[str] | None) -> str:
    """Return the paragraph or list item that has the pattern, else the first one."""
    blocks = [block for block in _BLOCK.split(text) if block.strip()] or [text]
    if pattern:
        blocks = [block for block in blocks if pattern.search(block)] or blocks
    return one_line(blocks[0], _PASSAGE)


# What a rule says, in the languages of packs
_NORMATIVE = re.compile(
    r"\b(?:must|never|always|do not|don['’]t|should(?:n['’]t)?|shall|ensure|make sure|require[sd]?|only|instead of"
    r"|avoid|(?:re)?generated?|keep|update|muss|müssen|nie(?:mals)?|immer|nicht|darf|soll(?:te|ten)?|statt|nur"
    r"|doit|doivent|jamais|toujours|ne pas|debe|deben|nunca|siempre)\b",
    re.IGNORECASE,
)
# First line of an imported rule with patterns of files
_GLOBS = re.compile(r"\AApplies to (.+)\.$", re.MULTILINE)
_NEGATION = (
    r"(?i:\b(?:not|never|avoid|instead of|rather than|don['’]t|do not|no longer|statt|nicht|kein(?:e|en)?|nie|pas"
    r"|jamais|au lieu d[e']|en lugar de|nunca)(?: (?:use|using|run|add|to|import|call|verwenden|benutzen))?)"
)
_FORBIDDEN = re.compile(rf"{_NEGATION}\s+`([^`\n]{{2,60}})`")
_FORBIDDEN_WORD = re.compile(rf"{_NEGATION}\s+[`'\"]?([\w@][\w@/.:-]+)")


def forbidden_in(content: str, attributes: Mapping[str, Any]) -> set[str]:
    """Return what a rule forbids: code and words after a negation, and bad examples."""
    examples = attributes.get("examples") or {}
    bad = examples.get("bad", []) if isinstance(examples, dict) else []
    texts = {text.strip() for text in bad if 2 <= len(text.strip()) <= 60}
    texts.update(_FORBIDDEN.findall(content))
    texts.update(word.rstrip(".:") for word in _FORBIDDEN_WORD.findall(content))
    return {text for text in texts if text.lower() not in STOP_WORDS}


def uses(text: str, word: str) -> bool:
    """Return whether a text has a word or a piece of code, in any case."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text, re.IGNORECASE) is not None


def _corrections(situation: Situation) -> Iterator[int]:
    ids = rows.column(_CORRECTIONS, [CORRECTION, CORRECTION])
    if not ids:
        return
    memories = packable_memories(f"m.id IN {IDS}", [json.dumps(ids)], order="m.id DESC", now=clock.now())
    attributes = dict(Memory.objects.filter(id__in=ids).values_list("id", "attributes"))
    counts = situation.rare_in(ids)
    for memory in memories:
        forbidden = forbidden_in(memory.content, attributes.get(memory.id, {}))
        is_used = any(uses(situation.added, word) for word in forbidden)
        if is_used or situation.count_names(memory.content) or counts.get(memory.id, 0) >= LEAST_RARE:
            yield memory.id


# The type counts for guidelines only, which lessons are: they have an index by kind
_CORRECTIONS = (
    f"SELECT id FROM memories_memory WHERE kind = '{GUIDELINE.name}' AND type = %s "
    "UNION SELECT memory_id FROM memories_memorytag WHERE tag = %s"
)


# Guidelines that a link ties to the file; that name it; or of its folder and about the change
def _guidelines(situation: Situation) -> Iterator[int]:
    path = situation.action.path
    if not path:
        return
    yield from rows.column(_LINKED, [path, f"./{path}"])
    name = PurePosixPath(path).name
    guidelines = packable_memories(_MAY_RULE, [name], order="m.id DESC", most=_MOST_RULES, now=clock.now())
    naming = {memory.id for memory in guidelines if _rules(situation, memory)}
    of_folder = {memory.id for memory in guidelines if _is_of_folder(memory, path)}
    counts = situation.rare_in(naming | of_folder)
    yield from sorted(naming, key=lambda entry: (-counts.get(entry, 0), -entry))
    about = [entry for entry in of_folder - naming if counts.get(entry, 0) >= LEAST_RARE]
    yield from sorted(about, key=lambda entry: (-counts[entry], -entry))


_LINKED = (
    f"SELECT m.id FROM memories_memory m JOIN {elements('m.resource_links')} link ON true "
    f"WHERE NOT (m.resource_links = '[]') AND {json_text('link.value', 'type')} = '{GOVERNS}' "
    f"AND {json_text('link.value', 'uri')} IN (%s, %s) ORDER BY m.id DESC"
)
# Guidelines that have the name of a file, or may be of its folder
_MAY_RULE = (
    f"m.kind = '{GUIDELINE.name}' AND ({position_of('%s', 'm.content')} > 0 "
    "OR m.title LIKE '%%/%%' OR m.content LIKE 'Applies to %%')"
)
_MOST_RULES = 500
# Code blocks, and code; only a single word of code is a group
_CODE = re.compile(r"```.*?(?:```|\Z)|`([^`\s]*)`|`[^`\n]*`", re.DOTALL)


# Without code blocks and code of several words: a command that names a file is not about it
def prose(text: str) -> str:
    return _CODE.sub(lambda code: code[1] or " ", text)


def _rules(situation: Situation, memory: PackableMemory) -> bool:
    if not situation.count_names(memory.content):
        return False
    blocks = _BLOCK.split(prose(memory.content))
    return any(situation.count_names(block) and _NORMATIVE.search(_without_paths(block)) for block in blocks)


def _without_paths(text: str) -> str:
    return " ".join(word for word in text.split() if "/" not in word)


# In the folder of the file of rules, or one of the files that it names
def _is_of_folder(memory: PackableMemory, path: str) -> bool:
    if memory.content.startswith("Applies to ") and (globs := _GLOBS.search(memory.content)):
        patterns = [pattern.strip(" `") for pattern in globs[1].split(",")]
        return any(fnmatchcase(path, pattern) or fnmatchcase(path, pattern.removeprefix("**/")) for pattern in patterns)
    file = memory.title.partition(BETWEEN_HEADINGS)[0]
    if "/" not in file:
        return False
    folder = str(folder_of_rule(file))
    return folder != "." and path.startswith(f"{folder}/")


def _memory_lines(level: Level, ids: Sequence[int], topic: str, now: datetime) -> dict[int, str]:
    lines: dict[int, str] = {}
    for memory in packable_memories(f"m.id IN {IDS}", [json.dumps(list(ids))], now=now):
        text = passage(_GLOBS.sub("", memory.content).strip(), pattern_of_path(topic))
        lines[memory.id] = f"{reference(level, memory.id)} {one_line(memory.title, 80)}: {text}"
    return lines


# Runs of a command that are looked at, and what came after a failure
_MOST_RUNS, _AFTER = 40, 40
# Failures that were written down, and characters of a command that the title of its document has
_MOST_WRITTEN, _BEGINNING = 500, 60
# Events of the log in which runs are looked for
_RECENT = 50_000


# A failure that was written down, or the last failed run of the command in another session, if something cured it
def _failures(situation: Situation) -> Iterator[int]:
    command = situation.action.command
    key = command_key(command)
    if not key:
        return
    for memory, failed_command in rows.fetch(_WRITTEN, [_MOST_WRITTEN]):
        if command_key(failed_command) == key:
            yield memory
    documents = rows.column(
        _FAILED_RUNS, [log.head()[0] - _RECENT, _longest_step(first_line(command, _BEGINNING)), _MOST_RUNS]
    )
    if not documents:
        return
    runs = log.events().of_type(COMMAND_RUN).exclude(session_id=situation.action.session_id)
    failed = _runs(runs.at(documents), key)
    if not failed:
        return
    needle = json.dumps(_longest_step(command), ensure_ascii=False)[1:-1]
    later = _runs(runs.window(after=failed[0].position).filter(has_part("payload_json", needle)), key)
    has_passed = any(not run.has_failed for run in later)
    # A command that has passed since is given again only if it fails again and again
    if (not has_passed or len({run.session_id for run in failed}) > 1) and _cure_of(failed[0]):
        yield failed[0].position


# As it is in each run, apart from spaces
def _longest_step(command: str) -> str:
    return max(normalized_command(command), key=len, default=command_key(command))


# The newest first
def _runs(events: log.EventQuerySet, key: str) -> list[SessionEvent]:
    newest = read_events(events.order_by("-position"), _MOST_RUNS)
    return [run for run in newest if command_key(run.payload["command"]) == key]


_WRITTEN = (
    f"SELECT m.id, {json_text('m.attributes', 'command')} FROM memories_memory m WHERE m.kind = '{FAILURE.name}' "
    f"AND {json_text('m.attributes', 'command')} IS NOT NULL ORDER BY m.id DESC LIMIT %s"
)
# Most commands pass: those that failed are few, and have documents
_FAILED_RUNS = (
    "SELECT id FROM memories_searchdocument WHERE source = 'command' AND id > %s "
    f"AND {position_of('%s', 'title')} > 0 ORDER BY id DESC LIMIT %s"
)


# Another command with the same arguments, or one before the same passed; an edit that repaired the code is no cure
def _cure_of(failed: SessionEvent) -> str:
    runs = log.events().of_session(failed.session_id).of_type(COMMAND_RUN).window(after=failed.position - 1)
    for cure in cured_failures(list(read_events(runs, _AFTER))):
        if cure.failed.position == failed.position:
            failed_key, passed_key = (command_key(run.payload["command"]) for run in (cure.failed, cure.passed))
            program, *arguments = failed_key.split()
            has_arguments = set(arguments or [program]) <= set(passed_key.split())
            if has_arguments and (cure.commands or failed_key != passed_key):
                return f"; it passed {one_line(cure.change, 120)}"
    return ""


def _failure_lines(level: Level, ids: Sequence[int], _: str, now: datetime) -> dict[int, str]:
    lines: dict[int, str] = {}
    for run in read_events(log.events().at(ids).of_type(COMMAND_RUN), len(ids)):
        output = run.payload.get("output", "")
        error = next(iter(error_lines(output, 1)), output.strip().rpartition("\n")[2])
        what = f"`{one_line(command_key(run.payload['command']), 80)}` failed {clock.day(run.happened_at)}"
        what = f"{what}: {one_line(error, 160)}{_cure_of(run)}"
        lines[run.position] = f"{reference(level, run.position)} {what}"
    written = [entry for entry in ids if entry not in lines]
    for memory in packable_memories(f"m.id IN {IDS}", [json.dumps(written)], now=now):
        attributes = Memory.objects.values_list("attributes", flat=True).get(id=memory.id)
        parts = (attributes.get("error"), attributes.get("cause"), attributes.get("instead"))
        texts = [one_line(text, 120) for text in parts if text] or [one_line(memory.content, _PASSAGE)]
        lines[memory.id] = f"{reference(level, memory.id)} {one_line(memory.title, 80)}: {'; '.join(texts)}"
    return lines


define_note(NoteSource("correction", "Corrections", _corrections, _memory_lines))
define_note(NoteSource("failure", "Failures", _failures, _failure_lines))
define_note(NoteSource("rule", "Guidelines", _guidelines, _memory_lines))
