from __future__ import annotations

import json
import os
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO, cast

from django.core.management.base import CommandParser
from django.db import connections
from rich.console import Console
from rich.progress import Progress as ProgressBar

from benchmarks.machine import machine_facts
from benchmarks.quality.chart import svg
from benchmarks.quality.embedding import embed
from benchmarks.quality.questions import QuestionSet
from benchmarks.quality.report import as_data, render
from benchmarks.quality.run import SetResult, evaluate
from benchmarks.quality.stages import references, stages
from benchmarks.quality.stores import write_set
from benchmarks.sets.beliefs import is_copy
from benchmarks.sets.chats import locomo
from benchmarks.sets.functions import COUNT, functions
from benchmarks.sets.model import EvaluationSet
from benchmarks.sets.notes import beir, json_sets, languages
from memories.embeddings.engine import AUTO, use_engine, wanted_name
from memoryhub.config.current_settings import PREFIX
from memoryhub.core.errors import Invalid
from memoryhub.management.base import HubCommand
from memoryhub.management.bench import temporary_home

_PIPED_WIDTH = 120
_RECALL_WIDTH = 140
_SETS = ("conversations", "languages", "functions", "packages")
_USUAL_SETS = _SETS[:3]
_DATA = "MEMORY_HUB_EVALUATION_DATA"


class Command(HubCommand):
    help = (
        "Measure search quality in a temporary home: on functions of Python's standard library by their "
        "docstrings, on questions in ten languages, on LoCoMo's conversations where their file is given, and on sets "
        "in BEIR's format. Shows what each ranking stage adds, beside BM25 of a library and the embeddings alone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--data", type=Path, default=os.environ.get(_DATA), metavar="FILE", help=f"LoCoMo's JSON; default: ${_DATA}"
        )
        parser.add_argument(
            "--set",
            type=Path,
            action="append",
            default=[],
            metavar="FOLDER",
            help="also a set in BEIR's format; with --recall, sets of prompts or a copy of PrecisionMemBench",
        )
        parser.add_argument(
            "--only", type=_set_names, default=_USUAL_SETS, metavar="NAME,…", help=f"sets: {', '.join(_SETS)}, or none"
        )
        parser.add_argument("--functions", type=_count, default=COUNT, help=f"number of functions, at most {COUNT:,}")
        parser.add_argument("--words-alone", action="store_true", help="skip embeddings, which take most of the time")
        parser.add_argument(
            "--secrets", type=Path, metavar="FILE", help="measure secret detection instead, on labelled texts"
        )
        parser.add_argument(
            "--recall",
            action="store_true",
            help="measure what prompts are given instead, on LoCoMo's file and on folders of prompts given with --set",
        )
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures as JSON")
        parser.add_argument("--svg", type=Path, metavar="FILE", help="also write a chart of the stages")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["secrets"]:
            self._measure_secrets(options["secrets"], options["json"])
            return
        data = Path(options["data"]) if options["data"] else None
        if (data and not data.is_file()) or (options["recall"] and not data and not options["set"]):
            raise Invalid(f"{data} is no file; give LoCoMo's JSON with --data or {_DATA}")
        if options["recall"]:
            meaning = not options["words_alone"] and has_model()
            self._measure_recall(data, options["set"], options["json"], meaning=meaning)
            return
        with temporary_home(keep=False) as home:
            try:
                results = self._measure(data, options, meaning=not options["words_alone"] and has_model())
                facts = machine_facts(home)
            finally:
                connections.close_all()
        console = Console(file=cast("TextIO", self.stdout.unfiltered))
        console.width = console.width if console.is_terminal else _PIPED_WIDTH
        console.print(render(results))
        if data is None and "conversations" in options["only"]:
            self.stdout.write(f"without conversations: give LoCoMo's JSON with --data or {_DATA}")
        if options["json"]:
            options["json"].write_text(json.dumps(as_data(results, facts), indent=2, allow_nan=False) + "\n")
        if options["svg"]:
            options["svg"].write_text(svg(results))

    def _measure_secrets(self, file: Path, data: Path | None) -> None:
        from benchmarks.quality.secrets import report
        from benchmarks.quality.secrets.run import measure_secrets

        console = Console(stderr=True)
        with console.status("reading"):
            result = measure_secrets(file)
        console = Console(file=cast("TextIO", self.stdout.unfiltered))
        console.width = console.width if console.is_terminal else _PIPED_WIDTH
        console.print(report.render(result))
        if data:
            data.write_text(json.dumps(report.as_data(result), indent=2, allow_nan=False) + "\n")

    def _measure_recall(
        self, data: Path | None, folders: Sequence[Path], json_file: Path | None, *, meaning: bool
    ) -> None:
        from benchmarks.quality import membench, recall

        figures: list[recall.Figure] = []
        scores: list[membench.Scores] = []
        with temporary_home(keep=False), embedding_engine() if meaning else nullcontext():
            try:
                if data:
                    figures += recall.measure_recall(recall.conversation_prompts(locomo(data)), meaning=meaning)
                for folder in folders:
                    if is_copy(folder):
                        scores.append(membench.measure(folder, meaning=meaning))
                    else:
                        figures += recall.measure_recall(recall.set_prompts(json_sets(folder)), meaning=meaning)
            finally:
                connections.close_all()
        console = Console(file=cast("TextIO", self.stdout.unfiltered), width=_RECALL_WIDTH)
        if figures:
            console.print(recall.render_recall(figures))
        for score in scores:
            console.print(membench.render(score))
        if json_file:
            rows = [*map(asdict, figures), *map(asdict, scores)]
            json_file.write_text(json.dumps(rows, indent=2) + "\n")

    def _measure(self, data: Path | None, options: Mapping[str, Any], *, meaning: bool) -> list[SetResult]:
        console = Console(stderr=True)
        with ProgressBar(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("writing", total=None)

            def progress(what: str, done: int, total: int) -> None:
                bar.update(task, description=what, completed=done, total=total)

            with embedding_engine() if meaning else nullcontext():
                return [
                    evaluate(set_, stages(meaning=meaning), progress, references(meaning=meaning))
                    for set_ in _sets(data, options, meaning)
                ]


def has_model() -> bool:
    return wanted_name(os.environ.get(f"{PREFIX}EMBEDDING_MODEL", AUTO)) is not None


def embedding_engine() -> AbstractContextManager[None]:
    from memories.embeddings.local import LocalEngine

    return use_engine(LocalEngine())


def _sets(data: Path | None, options: Mapping[str, Any], meaning: bool) -> Iterator[QuestionSet]:  # noqa: FBT001
    for read in _read(data, options):
        set_ = write_set(read)
        if meaning:
            embed(set_)
        yield set_


def _read(data: Path | None, options: Mapping[str, Any]) -> Iterator[EvaluationSet]:
    readers: dict[str, Callable[[], EvaluationSet]] = {
        "languages": languages,
        "functions": lambda: functions(options["functions"]),
        "packages": lambda: functions(options["functions"], installed=True),
    }
    if data and "conversations" in options["only"]:
        yield locomo(data)
    yield from (read() for name, read in readers.items() if name in options["only"])
    yield from map(beir, options["set"])


def _set_names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name != "none")
    if unknown := [name for name in names if name not in _SETS]:
        raise ArgumentTypeError(f"{unknown[0]!r} is no set; give one or more of {', '.join(_SETS)}, or none")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= COUNT:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 2 to {COUNT:,}")
    return int(text)
