from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandParser

from memories.models import MemoryKind
from memories.present import amended_text
from memories.schemas import MAX_CONTENT, MemoryWrite, WriteResult
from memories.services import write_memory
from memoryhub.config.identity import bind_project, identify_project, renamed_hint
from memoryhub.config.repository import find_repository, resolved, working_folder
from memoryhub.core.errors import Invalid
from memoryhub.core.kinds import DEFAULT_KIND, KINDS
from memoryhub.core.origin import TERMINAL, use_origin
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.text import as_data, flat, one_line
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand, is_typed, read_input

_MAX_TITLE = 120


class Command(ProjectCommand):
    help = (
        "Write a memory of this project: a fact, a rule, or what was learnt. What you type at a terminal is accepted."
    )

    is_asked_of_hub = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("text", metavar="TEXT", nargs="*", help="what to remember; - or nothing: standard input")
        parser.add_argument("--title", help="default: the first line of the text")
        parser.add_argument("--kind", choices=MemoryKind.values, default=DEFAULT_KIND, help="default: %(default)s")
        types = KINDS[DEFAULT_KIND].types
        parser.add_argument(
            "--type", default="", help=f"within the kind, such as {types[1]}; of {DEFAULT_KIND}: {', '.join(types)}"
        )
        parser.add_argument("--tag", dest="tags", action="append", help="a word to filter by; may be repeated")

    def handle(self, *args: Any, **options: Any) -> None:
        text = _text(options["text"])
        self.creates_store = _may_create(options["project"])
        with self.store(options) as project, use_origin(**({"source": TERMINAL} if is_typed() else {})):
            # Before it is cut, so that no half of a secret is left
            title = options["title"] or one_line(sanitize_text(text.strip().partition("\n")[0])[0], _MAX_TITLE)
            fields = {name: options[name] for name in ("kind", "type")}
            command = command_from(
                MemoryWrite, {**fields, "tags": options["tags"] or [], "title": title, "content": text}
            )
            result = write_memory(command=command)
            if self.creates_store:
                bind_project(project, working_folder())
        where = "" if options["project"] is None else f" --project {project}"
        for line in _result_lines(result, where):
            self.stdout.write(flat(line))


def _text(words: list[str]) -> str:
    if words not in ([], ["-"]):
        text = " ".join(words)
    elif is_typed():
        text = ""
    else:
        text = read_input(limit=MAX_CONTENT + 1)
    if not text.strip():
        raise Invalid('say what to remember: memory-hub remember "text", or pipe it in')
    return text


# As agents do, a person's first memory creates the project of a repository
def _may_create(project: str | None) -> bool:
    folder = resolved(working_folder())
    if project is not None or not find_repository(folder):
        return False
    return not renamed_hint(folder, identify_project(project=None, directory=folder))


def _result_lines(result: WriteResult, where: str) -> Iterator[str]:
    yield f"{result.status.message.format(**result.model_dump())} {as_data(result.title)}"
    if result.redacted:
        yield f"masked before it was stored: {', '.join(result.redacted)}"
    for similar in result.similar:
        yield f"nearly the same: #{similar.id} {as_data(similar.title)}"
    if result.amendments:
        yield amended_text(result.amendments)
    if result.review_reason:
        yield f"{result.review}: {as_data(result.review_reason)}"
    yield f"to see it: memory-hub show {result.id}{where}"
