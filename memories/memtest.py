"""Tests of searches, context packs and the working tree, kept with the code they are about in ``memory.tests.yml``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from memories import scopes
from memories.models import EndType, Memory, MemoryQuerySet, SearchDocument
from memories.pack import preview_pack
from memories.schemas import MemorySearch
from memories.schemas.query import DEFAULT_TOKENS, ContextPackRequest
from memories.search.engine import texts_of
from memories.selectors import search
from memories.validity.check_runs import Check, CheckedTree, CheckResult, run_check
from memories.validity.checks import EntryCheck, is_allowed, run_entry_check, states_of, withdraw_results
from memoryhub.core.errors import ConflictError, Invalid, NotFound
from memoryhub.core.foreign_files import read_foreign
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.plain_yaml import load_yaml
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import flat
from memoryhub.core.validation import explain

FILE_NAME = "memory.tests.yml"
# Words of the query of a sampled test: what it is made of, and how many
_WORD = re.compile(r"[^\W_]+")
_SHORT_WORD, _LEAST_WORDS, _QUERY_WORDS = 3, 2, 6
MAX_BYTES = 256 * 1024
# ``412``, ``"#412"``, or a title, since ids differ between hubs; for ``never`` also a part of the text
Name = str | int


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_as_list)]


class MemoryTest(Command):
    name: str = Field("", max_length=200)
    query: str | None = Field(None, min_length=1, max_length=2_000)
    expect: list[Name] = Field(default_factory=list, description="must be among the first hits")
    within: int = Field(3, ge=1, le=100, description="number of top hits to check")
    never: list[Name] = Field(default_factory=list, description="must not be among them, by id, title or text")
    allow_superseded: bool = Field(False, description="whether superseded memories may be among them")
    pack: str | None = Field(None, max_length=2_000, description="topic of the context pack, may be empty")
    max_tokens: int = Field(DEFAULT_TOKENS, ge=200, le=20_000)
    contains: list[str] = Field(default_factory=list, description="texts that the pack must contain")
    lacks: Texts = Field(default_factory=list, description="texts or patterns that the pack or the file must not have")
    proves: Name | None = Field(None, description="the memory or decision that the command or the file proves")
    run: str | None = Field(None, min_length=1, max_length=2_000, description="command, started without a shell")
    exits: int = Field(0, ge=0, le=255, description="exit code that the command must have")
    prints: str = Field("", max_length=2_000, description="pattern that its output must match")
    file: str | None = Field(None, min_length=1, max_length=1_000, description="file of the working tree")
    matches: Texts = Field(default_factory=list, description="patterns that the file must match")

    @model_validator(mode="after")
    def _is_of_one_sort(self) -> MemoryTest:
        sorts = [name for name in ("query", "pack", "run", "file") if getattr(self, name) is not None]
        if len(sorts) > 1 and not {"run", "file"}.isdisjoint(sorts):
            raise ValueError(f"a test has either {' or '.join(map(repr, sorts))}; write two tests")
        needs = {"exits": "run", "prints": "run", "matches": "file"}
        for name, sort in needs.items():
            if name in self.model_fields_set and sort not in sorts:
                raise ValueError(f"'{name}' needs '{sort}'")
        if self.proves is not None and {"run", "file"}.isdisjoint(sorts):
            raise ValueError("'proves' needs 'run' or 'file'")
        return self

    @property
    def check(self) -> Check | None:
        """The command, or the file with its patterns; None for a test of a search or pack."""
        if self.run is not None:
            return Check(command=self.run.strip(), exits=self.exits, prints=self.prints)
        if self.file is not None:
            return Check(file=self.file, matches=tuple(self.matches), lacks=tuple(self.lacks))
        return None

    @property
    def title(self) -> str:
        if self.name or self.query:
            return self.name or self.query or ""
        return self.check.text if self.check else f"pack {self.pack}".strip()


class MemoryTests(Command):
    tests: list[MemoryTest] = Field(min_length=1, max_length=1_000)


@dataclass(frozen=True, slots=True)
class MemoryTestResult:
    title: str
    faults: list[str]
    # Why its command was not run; empty for all other tests
    not_run: str = ""
    # The last lines that a failed command printed
    output: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.faults and not self.not_run


def read_tests(path: Path) -> MemoryTests:
    """Return the tests of a file.

    Raises:
        NotFound: there is no such file.
        Invalid: it is larger than 256 KB, has aliases, is not YAML, or does not match the schema.
    """
    try:
        content = read_foreign(path, limit=MAX_BYTES).decode()
        return MemoryTests.model_validate(load_yaml(content))
    except FileNotFoundError as error:
        raise NotFound(f"there is no {path}; create it, or name another file") from error
    except RecursionError as error:
        raise Invalid(f"{path} is nested too deeply") from error
    except OSError as error:
        raise Invalid(f"can't read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise Invalid(f"{path}: {explain(error)}") from error
    except (yaml.YAMLError, ValueError) as error:  # a ValueError for a date or a number that is none
        raise Invalid(f"{path} is not valid YAML: {' '.join(str(error).split())[:200]}") from error


@dataclass(frozen=True, slots=True)
class WrittenSample:
    """Tests that were written, and titles of memories that their own words do not find."""

    tests: list[MemoryTest]
    not_found: list[str]


def write_sample(path: Path, memories: MemoryQuerySet, *, most: int = 20) -> WrittenSample:
    """Write tests that find a sample of memories by words of their text; only those that pass now are kept.

    Raises:
        ConflictError: the file exists.
        Invalid: there is nothing to test, or the file cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise ConflictError(f"{path} exists; name another file, or move it away")
    passing: list[MemoryTest] = []
    not_found: list[str] = []
    for memory in _spread(memories, most):
        test = _test_of(memory.title, memory.content)
        if test and any(_faults(test)):
            not_found.append(memory.title)
        elif test:
            passing.append(test)
    if not passing:
        raise Invalid("no memory in the sample is found by words of its own text; nothing was written")
    data = {"tests": [test.model_dump(mode="json", exclude_unset=True) for test in passing]}
    try:
        path.write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False))
    except OSError as error:
        raise Invalid(f"can't write {path}: {error.strerror}") from error
    return WrittenSample(passing, not_found)


# Evenly over all of them, so that every part of an import is tested
def _spread(memories: MemoryQuerySet, most: int) -> list[Memory]:
    ids = list(memories.order_by("id").values_list("id", flat=True))
    chosen = ids[:: max(1, -(-len(ids) // most))]
    return list(Memory.objects.filter(id__in=chosen).order_by("id"))


# The first words that are not those of the title, which would find it anyway
def _test_of(title: str, content: str) -> MemoryTest | None:
    title_words = {word.casefold() for word in _WORD.findall(title)}
    words = [word for word in _WORD.findall(content[:2_000]) if len(word) > _SHORT_WORD]
    chosen = list(dict.fromkeys(word for word in words if word.casefold() not in title_words))[:_QUERY_WORDS]
    if len(chosen) < _LEAST_WORDS:
        return None
    return MemoryTest(query=" ".join(chosen), expect=[title])


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Where checks run, whether commands may, and the name of the file of tests."""

    tree: CheckedTree
    runs_commands: bool = False
    file: str = FILE_NAME


_NEEDS_RUN = "commands run only with --run"


def run_tests(tests: Sequence[MemoryTest], request: CheckRequest) -> list[MemoryTestResult]:
    """Run the tests of a file; the result of a test that proves an entry is recorded with the entry."""
    return [_run_check_of(test, test.check, request) if test.check else _run(test) for test in tests]


def run_entry_checks(entries: Sequence[EntryCheck], request: CheckRequest) -> list[MemoryTestResult]:
    """Run the checks that entries carry: patterns always, commands that a person allowed if commands may run."""
    states = states_of(entries)
    results = []
    for entry in entries:
        title = f"#{entry.entity_id} {entry.title}: {entry.check.text}"
        not_run = ""
        if entry.check.command and not is_allowed(entry, states.get(entry.key)):
            not_run = f"nobody allowed this command; memtest --allow {entry.entity_id}"
        elif entry.check.command and not request.runs_commands:
            not_run = _NEEDS_RUN
        if not_run:
            results.append(MemoryTestResult(title, [], not_run))
        else:
            results.append(_result(title, run_entry_check(entry, request.tree)))
    return results


def withdraw_removed(tests: Sequence[MemoryTest], entries: Sequence[EntryCheck], request: CheckRequest) -> None:
    """Withdraw failures of checks that neither the entries nor the file have any longer."""
    proofs = [_proof(test, test.check, request.file) for test in tests if test.check and test.proves is not None]
    withdraw_results([*entries, *filter(None, proofs)], request.file)


def _run(test: MemoryTest) -> MemoryTestResult:
    return MemoryTestResult(test.title, list(_faults(test)))


def _run_check_of(test: MemoryTest, check: Check, request: CheckRequest) -> MemoryTestResult:
    if check.command and not request.runs_commands:
        return MemoryTestResult(test.title, [], _NEEDS_RUN)
    if test.proves is None:
        return _result(test.title, run_check(check, request.tree))
    proof = _proof(test, check, request.file)
    if proof is None:
        return MemoryTestResult(test.title, [f"there is no memory or decision {test.proves!r} that it proves"])
    return _result(test.title, run_entry_check(proof, request.tree))


def _result(title: str, result: CheckResult) -> MemoryTestResult:
    return MemoryTestResult(title, [result.fault] if result.fault else [], "", result.lines)


# The entry that a test proves, with the test's check
def _proof(test: MemoryTest, check: Check, file: str) -> EntryCheck | None:
    number = str(test.proves).removeprefix("#")
    documents = SearchDocument.objects.filter(source__in=(EndType.MEMORY, EndType.DECISION))
    if number.isdecimal():
        documents = documents.filter(id=int(number))
    else:
        documents = documents.filter(title=str(test.proves))
    document = outside_quarantine(documents).order_by("id").last()
    return EntryCheck(document.source, document.id, document.title, check, file) if document else None


def _faults(test: MemoryTest) -> Iterator[str]:
    if test.query is None and test.pack is None:
        yield "it has none of 'query', 'pack', 'run' and 'file'"
    if test.query is not None:
        yield from _search_faults(test, test.query)
    if test.pack is not None:
        text = preview_pack(command=ContextPackRequest(query=test.pack, max_tokens=test.max_tokens)).text
        tokens = estimate_tokens(text)
        if tokens > test.max_tokens:
            yield f"the pack has {tokens} tokens, more than {test.max_tokens}"
        yield from (f"the pack does not contain {phrase!r}" for phrase in test.contains if phrase not in text)
        yield from (f"the pack contains {unwanted!r}" for unwanted in test.lacks if unwanted in text)


def _search_faults(test: MemoryTest, query: str) -> Iterator[str]:
    hits = search(command=MemorySearch(query=query, limit=test.within)).results
    for name in test.expect:
        if not any(_is(hit, name) for hit in hits):
            listed = ", ".join(map(_hit_name, hits)) or "nothing found"
            yield f"{name!r} is not among the first {test.within}: {listed}"
    texts = _texts_by_hit(hits) if test.never else {}
    for unwanted in test.never:
        for hit in hits:
            if _is(hit, unwanted):
                yield f"{_hit_name(hit)} is among the first {test.within}"
            elif flat(str(unwanted)).casefold() in texts[hit["scope"], hit["id"]]:
                yield f"{_hit_name(hit)} is among the first {test.within}, and contains {unwanted!r}"
    for hit in hits:
        is_superseded = hit["superseded_by"] or hit["note"].startswith("superseded")
        if is_superseded and not test.allow_superseded:
            yield f"{_hit_name(hit)} is superseded, and among the first {test.within}"


# Titles and texts, to compare with
def _texts_by_hit(hits: Sequence[dict[str, Any]]) -> dict[tuple[str, int], str]:
    texts_by_hit: dict[tuple[str, int], str] = {}
    for level in scopes.levels():
        with use_store(level.store):
            here = {hit["id"]: hit for hit in hits if hit["scope"] in level.scopes}
            texts = texts_of(here)
        for hit_id, hit in here.items():
            text = f"{hit['title']} {texts.get(hit_id, '')}"
            texts_by_hit[hit["scope"], hit_id] = flat(text).casefold()
    return texts_by_hit


def _is(hit: dict[str, Any], name: Name) -> bool:
    number = str(name).removeprefix("#")
    return hit["title"] == name or (number.isdigit() and hit["id"] == int(number))


def _hit_name(hit: dict[str, Any]) -> str:
    return f"#{hit['id']} {hit['title']}"
