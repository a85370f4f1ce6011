"""Find how a repository is built and tested: the commands that its own files name.

The files are someone else's text. Only a plain command of a known program is taken from them: without pipes,
substitutions and redirections, which could do more than the program's name says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import NamedTuple

from memories.importing.files import list_names, read_text
from memoryhub.core.errors import Invalid


class BuildCommand(NamedTuple):
    purpose: str
    text: str
    # The file that names it
    path: str


# The first that matches a command, or the name of a task, is its purpose
_PURPOSES = {
    "lint": re.compile(r"lint|clippy|vet|ruff|mypy|flake8|eslint|pre-commit|prek|lint[-_:]\w+|typecheck|type-check"),
    "format": re.compile(r"fmt|format|black|prettier|gofmt|rustfmt"),
    "test": re.compile(r"(?:py)?tests?|tox|nox|unittest|rspec|(?:unit|test)[-_:]\w+|check"),
    "build": re.compile(r"build|compile|package|assemble"),
    "set up": re.compile(r"sync|install|setup|bootstrap|init|develop"),
}
# How many commands of each purpose are given, in the order of the answer, and how many of them from one file
_MOST, _MOST_OF_FILE = {"test": 3, "lint": 2, "format": 1, "build": 2, "set up": 1}, 2
# Options that name another package or folder than the repository's own, one file of tests, and parts of names of side
# tasks; workflows that check come before those that publish
_ELSEWHERE = re.compile(
    r"(?:--(?:project|filter|prefix|cwd|package|manifest-path|directory|workspace)|-[pCFw])(?:=.*)?"
    r"|[\w./-]*tests?/[\w./-]+\.\w+|.*::.*"
)
_SIDE = re.compile(r"(?:^|[-_:/.])(?:docs?|documentation|website|site|examples?|playground|bench\w*)(?:$|[-_:/.])")
_CHECKING = re.compile(r"(?:^|[-_.])(?:ci|tests?|testing|checks?|lint|build|main|prod)")
# Words of a command, without options, that can name its purpose
_NAMING = 4
_LONGEST = 100
_WORD = re.compile(r"[\w./:@=,+\[\]*%^~-]+|\"[^\"$`\\]*\"|'[^'`]*'")
_PROGRAMS = frozenset(
    "pytest tox nox python python3 uv poetry pdm hatch pipenv rye pixi make just task cargo go npm pnpm yarn bun deno "
    "npx gradle ./gradlew mvn ./mvnw rake bundle mix dotnet composer ctest cmake meson ninja bazel swift zig sbt stack "
    "cabal pre-commit prek ruff mypy".split()
)
_SCRIPT = re.compile(r"(?:\./)?(?:scripts?|bin|tools|dev|ci)/[\w.-]+|\./[\w.-]+\.sh")
_PROMPT = re.compile(r"^(?:[-*] )?(?:run:)?\s*(?:[$>%] )?")
_IN_LINE = re.compile(r"`([^`\n]+)`")
_FOR_AGENTS = re.compile(r"(?:AGENTS|CLAUDE|GEMINI)\.md|\.github/copilot-instructions\.md")
_FOR_DEVELOPERS = re.compile(
    r"(?:\.github/|docs?/)?(?:contributing|development|developing|developers?|hacking)\.(?:md|rst|txt|adoc)",
    re.IGNORECASE,
)
_README = re.compile(r"readme(?:\.(?:md|rst|txt))?", re.IGNORECASE)
_WORKFLOW = re.compile(r"\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml")
_TASK = re.compile(r"^@?([a-z][\w-]*)(?:[ \t][^:=\n]*)?:(?!=)", re.MULTILINE)
_TASK_FILES = {"makefile": "make", "gnumakefile": "make", "justfile": "just", ".justfile": "just"}
_SCRIPT_FOLDERS = ("scripts", "script", "bin")
_LOCKS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
_PYTHON = ("pytest", "tox", "nox")
# What a file stands for where no other names a command
_USUAL = {
    "Cargo.toml": ("cargo test", "cargo build"),
    "go.mod": ("go test ./...", "go build ./..."),
    "pom.xml": ("mvn test", "mvn package"),
    "build.gradle": ("./gradlew test", "./gradlew build"),
    "build.gradle.kts": ("./gradlew test", "./gradlew build"),
    "mix.exs": ("mix test", "mix compile"),
    "tox.ini": ("tox",),
    "noxfile.py": ("nox",),
    "pytest.ini": ("pytest",),
    "tests/conftest.py": ("pytest",),
    "conftest.py": ("pytest",),
}


def build_commands(directory: Path) -> list[BuildCommand]:
    """Return the commands with which the repository at a folder is tested, checked, built and set up, by purpose.

    What people wrote for agents and developers comes before what task runners and continuous integration name, and
    that before what a file such as ``Cargo.toml`` usually means.
    """
    names = sorted(list_names(directory), key=lambda name: (name.count("/"), name))
    texts = _Texts(directory)
    sources: Sequence[Iterator[BuildCommand]] = (
        _named_in(texts, filter(_FOR_AGENTS.fullmatch, names)),
        _named_in(texts, filter(_FOR_DEVELOPERS.fullmatch, names)),
        _tasks(texts, names),
        _package_scripts(texts, names),
        _scripts(names),
        _named_in(texts, filter(_README.fullmatch, names), purposes=("test",)),
        _named_in(
            texts,
            iter(sorted(filter(_WORKFLOW.fullmatch, names), key=_is_publishing)),
            purposes=("test", "lint", "build"),
        ),
        _usual(names),
    )
    return _best(chain.from_iterable(sources))


def _is_publishing(workflow: str) -> bool:
    return not _CHECKING.search(PurePath(workflow).stem.lower())


def describe_commands(commands: Sequence[BuildCommand]) -> str:
    """Return a line for each purpose: its commands, with the files that name them."""
    lines: dict[str, list[str]] = {}
    for purpose, text, path in commands:
        lines.setdefault(purpose, []).append(f"`{text}` ({path})")
    return "\n".join(f"{purpose}: {', '.join(texts)}" for purpose, texts in lines.items())


class _Texts:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __getitem__(self, name: str) -> str:
        try:
            return read_text(self._directory / name)
        except Invalid:
            return ""


def _best(commands: Iterator[BuildCommand]) -> list[BuildCommand]:
    best: dict[str, dict[str, BuildCommand]] = {purpose: {} for purpose in _MOST}
    for command in commands:
        chosen = best[command.purpose]
        of_file = sum(command.path == other.path for other in chosen.values())
        if command.text not in chosen and of_file < _MOST_OF_FILE and len(chosen) < _MOST[command.purpose]:
            chosen[command.text] = command
    return [command for chosen in best.values() for command in chosen.values()]


def _named_in(
    texts: _Texts, names: Iterator[str], purposes: Sequence[str] = tuple(_PURPOSES)
) -> Iterator[BuildCommand]:
    for name in names:
        for line in texts[name].split("\n"):
            for text in (_PROMPT.sub("", line.strip()), *_IN_LINE.findall(line)):
                purpose = _purpose_of(text.strip())
                if purpose in purposes:
                    yield BuildCommand(purpose, text.strip(), name)


# The purpose of a plain command of a known program, or ""
def _purpose_of(text: str) -> str:
    words = _WORD.findall(text)
    if not words or len(text) > _LONGEST or " ".join(words) != text:
        return ""
    if any(_ELSEWHERE.fullmatch(word) or _SIDE.search(word) for word in words):
        return ""
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if len(words) > 1 and words[0] in _PROGRAMS:
        return _purpose_of_names([word for word in words if not word.startswith("-")][:_NAMING])
    if words and (words[0] in _PYTHON or _SCRIPT.fullmatch(words[0])):
        return _purpose_of_names([PurePath(words[0]).stem])
    return ""


def _purpose_of_names(names: Sequence[str]) -> str:
    if "install" in names:
        return "set up"
    for purpose, pattern in _PURPOSES.items():
        if any(map(pattern.fullmatch, names)):
            return purpose
    return ""


def _tasks(texts: _Texts, names: Sequence[str]) -> Iterator[BuildCommand]:
    for name in names:
        if program := _TASK_FILES.get(name.lower()):
            yield from _of_tasks(_TASK.findall(texts[name]), program, name)


def _of_tasks(tasks: Sequence[str], program: str, path: str) -> Iterator[BuildCommand]:
    # ``test`` before ``test-cov``
    for task in sorted(tasks, key=len):
        if not _SIDE.search(task) and (purpose := _purpose_of_names([task])):
            yield BuildCommand(purpose, f"{program} {task}", path)


def _package_scripts(texts: _Texts, names: Sequence[str]) -> Iterator[BuildCommand]:
    if "package.json" not in names:
        return
    try:
        package = json.loads(texts["package.json"] or "{}")
    except (ValueError, RecursionError):
        return
    scripts = package.get("scripts") if isinstance(package, dict) else None
    if isinstance(scripts, Mapping):
        program = next((program for lock, program in _LOCKS.items() if lock in names), "npm")
        tasks = [task for task in scripts if _WORD.fullmatch(task)]
        yield from _of_tasks(tasks, f"{program} run", "package.json")


def _scripts(names: Sequence[str]) -> Iterator[BuildCommand]:
    for path in map(PurePath, names):
        is_script = path.parent.as_posix() in _SCRIPT_FOLDERS and path.suffix in ("", ".sh")
        if is_script and _WORD.fullmatch(str(path)) and (purpose := _purpose_of_names([path.stem])):
            yield BuildCommand(purpose, path.as_posix(), path.as_posix())


def _usual(names: Sequence[str]) -> Iterator[BuildCommand]:
    present = set(names)
    for name, (test, *build) in _USUAL.items():
        if name in present:
            runs_in_uv = "uv.lock" in present and test in _PYTHON
            yield BuildCommand("test", f"uv run {test}" if runs_in_uv else test, name)
            for text in build:
                yield BuildCommand("build", text, name)
