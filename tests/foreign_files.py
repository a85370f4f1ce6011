"""Every reader of foreign files against hostile files: ``python -m tests.foreign_files`` prints their time and memory.

Each case runs in a process of its own with little address space; an alarm that nobody handles ends one that hangs.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# A hang fails long after the slowest machine is done; a hostile file may take a fraction of it
WATCHDOG_SECONDS = 60
CPU_SECONDS = 3.0
MEMORY_BYTES = 300 * 2**20
LONGEST_MESSAGE = 1_000

_FULL = 64 * 1024


def _text(text: str | bytes) -> Callable[[Path], None]:
    return lambda path: void(path.write_bytes(text.encode() if isinstance(text, str) else text))


def void(_: object) -> None:
    return


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**30)


def _socket(path: Path) -> None:
    # A socket's address is short, so it is bound in its folder
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


def _loop(path: Path) -> None:
    path.symlink_to(path.with_name("back"))
    path.with_name("back").symlink_to(path)


def _dotted(length: int) -> str:
    return "a" + ".a" * (length // 2 - 2)


def _merged_yaml() -> str:
    lines = ["a0: &a0 {" + ", ".join(f"k{number}: 1" for number in range(10)) + "}"]
    lines += [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}" for level in range(1, 9)]
    return "\n".join([*lines, "tests: []"])


FILES: dict[str, Callable[[Path], None]] = {
    "link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "link to /dev/tty": lambda path: path.symlink_to("/dev/tty"),
    "named pipe": os.mkfifo,
    "socket": _socket,
    "folder": Path.mkdir,
    "broken link": lambda path: path.symlink_to("nowhere"),
    "loop of links": _loop,
    "1 GB of holes": _sparse,
    "3 MB on one line": _text("enabled " * 400_000),
    "not UTF-8": _text(b"enabled = \xff\xfe\n"),
    "NUL": _text("enabled\0 = \0\n[core]\n\tworktree = \0\n"),
    "NUL in a pointer": _text("gitdir: a\0b\n"),
    "100,000 keys": _text("".join(f"enabled{number} = {number}\n" for number in range(100_000))),
    "9,000 keys in 64 KB": _text("".join(f"enabled{number:x}=1\n" for number in range(9_000))[:_FULL]),
    "dotted key": _text(f"enabled.{_dotted(_FULL - 20)}=1\n"),
    "dotted table": _text(f"enabled=1\n[{_dotted(20_000)}]\n" + "".join(f"k{n:x}=1\n" for n in range(6_000))),
    "many short dotted tables": _text(f"enabled=1\n[{_dotted(64)}]\n" + "".join(f"k{n:x}=1\n" for n in range(9_000))),
    "nested lists": _text(f"enabled = {'[' * (_FULL - 20)}"),
    "nested lists, closed": _text(f"project = {'[' * 300}{']' * 300}\nenabled = 1\n"),
    "nested tables": _text("enabled = " + "{a=" * 20_000),
    "nested JSON": _text('{"a":' * 400_000),
    "number of 60,000 digits": _text(f"enabled = {'1' * 60_000}"),
    "number of 60,000 hex digits": _text(f"enabled = 1\nproject = 0x{'f' * 60_000}"),
    "setting of 900 hex digits": _text(f"enabled = 1\nrecall_threshold = 0x{'f' * 900}"),
    "project of 60,000 letters": _text(f'enabled = 1\nproject = """\n{("x" * 200 + chr(10)) * 300}"""'),
    "sections without an end": _text("[remote " + '"' + "\\a" * 30_000),
    "spaces before nothing": _text("url" + " " * 60_000),
    "15,000 remotes": _text("".join(f'[remote "r{n}"]\nurl=h:r{n}\n' for n in range(15_000))),
    "path of 60,000 parts": _text("gitdir: " + "a/" * 60_000 + f"\n[core]\nworktree = {'a/../' * 12_000}b\n"),
    "commondir of itself": _text("."),
    "YAML merges": _text(_merged_yaml()),
    "YAML aliases": _text("a: &a [x,x]\n" + "".join(f"a{n}: [*a, *a]\n" for n in range(3_000)) + "tests: *a\n"),
    "YAML date": _text("tests: [{query: a, never: [2024-99-99]}]\n"),
    "nested YAML": _text("tests: " + "[" * _FULL),
}


@dataclass(frozen=True, slots=True)
class Reader:
    # The hostile file, below the folder
    place: str
    read: Callable[[Path], object]
    # What the folder has besides
    files: tuple[str, ...] = ()


def _identify(folder: Path) -> object:
    from memoryhub.config.identity import identify_project

    return identify_project(project=None, directory=folder)


def _switched_off(folder: Path) -> object:
    from memoryhub.config.enabled import switched_off_in

    return switched_off_in(str(folder))


def _folder_settings(folder: Path) -> object:
    from memoryhub.config.current_settings import read_folder

    return read_folder(folder, "alpha").values


def _bind(folder: Path) -> object:
    from memoryhub.config.identity import bind_project, bound_folders

    (Path(os.environ["MEMORY_HUB_HOME"]) / "projects/alpha").mkdir(parents=True, exist_ok=True)
    bind_project("alpha", folder)
    return len(bound_folders("alpha"))


def _transcript(folder: Path) -> object:
    from memoryhub.config.hook_json import last_assistant_message

    return last_assistant_message(str(folder / "t.jsonl"))


def _text_of_import(folder: Path) -> object:
    from memories.importing.files import read_text

    return read_text(folder / "a.md")


def _source(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from memoryhub.transfer.sources import reading

        result = getattr(reading, name)(folder / "a.json")
        return sum(1 for _ in result) if name.startswith("json_") else result

    return read


def _memory_tests(folder: Path) -> object:
    from memories.memtest import read_tests

    return read_tests(folder / "memory.tests.yml")


def _mirror(folder: Path) -> object:
    from memoryhub.transfer.mirror import files

    path = folder / "a.md"
    return files.read(path, files.stamp_of(path) or (0, 0, 0))


def _mirror_beside(folder: Path) -> object:
    from memoryhub.transfer.mirror.actions import Actions

    actions = Actions.__new__(Actions)
    actions.folder = folder
    return actions.keep_beside("a.md", "a text")


def _client_file(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from memoryhub.client.setup.document import read_document

        return read_document(folder / name)

    return read


def _differs(folder: Path) -> object:
    from memoryhub.transfer.folder import _differs as differs

    return differs(folder / "a.md", "a text")


def _blame(folder: Path) -> None:
    from governance.blame import _content

    _content(folder, "a.py")


def _model(folder: Path) -> object:
    from memories.embeddings.engine import _json

    return _json(folder / "config.json")


def _database(folder: Path) -> None:
    from memoryhub.transfer.sources.databases import _require_sqlite

    _require_sqlite(folder / "a.db", "a tool")


_GIT = (".git/HEAD", ".git/objects/", ".git/refs/")
_BARE = ("HEAD", "objects/", "refs/")
SETTINGS = ".memory-hub.toml"
READERS: dict[str, Reader] = {
    "enabled": Reader(SETTINGS, _switched_off),
    "project": Reader(SETTINGS, _identify),
    "settings of a folder": Reader(SETTINGS, _folder_settings),
    ".git": Reader(".git", _identify),
    ".git/HEAD": Reader(".git/HEAD", _identify, _GIT[1:]),
    ".git/commondir": Reader(".git/commondir", _identify, _GIT),
    ".git/config": Reader(".git/config", _identify, _GIT),
    "HEAD, bare": Reader("HEAD", _identify, _BARE[1:]),
    "commondir, bare": Reader("commondir", _identify, _BARE),
    "config, bare": Reader("config", _identify, _BARE),
    "config, to bind": Reader(".git/config", _bind, _GIT),
    "transcript": Reader("t.jsonl", _transcript),
    "import folder": Reader("a.md", _text_of_import),
    "import, text": Reader("a.json", _source("read_text")),
    "import, JSON": Reader("a.json", _source("read_json")),
    "import, lines": Reader("a.json", _source("json_values")),
    "import, objects": Reader("a.json", _source("json_objects")),
    "import, settings": Reader("a.json", _source("read_settings")),
    "import, database": Reader("a.db", _database),
    "memory tests": Reader("memory.tests.yml", _memory_tests),
    "mirror": Reader("a.md", _mirror),
    "mirror, conflict": Reader("a.conflict-1.md", _mirror_beside),
    "export folder": Reader("a.md", _differs),
    "blame": Reader("a.py", _blame),
    "client, JSON": Reader(".mcp.json", _client_file(".mcp.json")),
    "client, TOML": Reader("config.toml", _client_file("config.toml")),
    "model": Reader("config.json", _model),
}


@dataclass(frozen=True, slots=True)
class Case:
    reader: str
    file: str
    # "returned", the class of the error, or how the process ended
    end: str
    message: str
    cpu_seconds: float
    memory_bytes: int


# The reader's own answers to a file that it refuses; any other error is a fault
REFUSALS = frozenset({"Invalid", "NotFound", "Unavailable", "Skipped"})


def faults_of(case: Case) -> Iterator[str]:
    """Yield what is wrong with how a reader took a file."""
    if case.end != "returned" and case.end not in REFUSALS:
        yield f"ended with {case.end}: {case.message[:200]}"
    if len(case.message) > LONGEST_MESSAGE or "\n" in case.message:
        yield f"a long message: {case.message[:100]!r}"
    if case.cpu_seconds > CPU_SECONDS:
        yield f"{case.cpu_seconds:.1f} s"
    if case.memory_bytes > MEMORY_BYTES:
        yield f"{case.memory_bytes / 2**20:.0f} MB"


def run_cases(root: Path) -> Iterator[Case]:
    """Run each reader on each file, below a folder."""
    _warm(root)
    for reader in READERS:
        for number, file in enumerate(FILES):
            folder = root / reader.replace("/", "-").replace(" ", "-") / f"f{number}"
            yield _run(folder, reader, file)


# What a reader imports is no cost of a file
def _warm(root: Path) -> None:
    for name, reader in READERS.items():
        folder = root / "warm" / name.replace("/", "-")
        _make(folder, reader, _text("[core]\n"))
        with suppress(Exception):
            reader.read(folder)


def _make(folder: Path, reader: Reader, make: Callable[[Path], None]) -> None:
    for name in (*reader.files, reader.place):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    for name in reader.files:
        (folder / name).mkdir(exist_ok=True) if name.endswith("/") else (folder / name).write_text("ref: a\n")
    make(folder / reader.place)


def _run(folder: Path, name: str, file: str) -> Case:
    _make(folder, READERS[name], FILES[file])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _read_in_child(folder, READERS[name], writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = json.loads(pipe.read() or b"{}")
    _, status, usage = os.wait4(child, 0)
    end = answer.get("end") or f"signal {os.waitstatus_to_exitcode(status)}"
    cpu = usage.ru_utime + usage.ru_stime
    return Case(name, file, end, answer.get("message", ""), cpu, usage.ru_maxrss * 1024)


def _read_in_child(folder: Path, reader: Reader, writing: int) -> None:
    signal.alarm(WATCHDOG_SECONDS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + 2 * MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    answer: Mapping[str, Any]
    try:
        reader.read(folder)
        answer = {"end": "returned"}
    except BaseException as error:  # noqa: BLE001
        answer = {"end": type(error).__name__, "message": str(error)[: LONGEST_MESSAGE + 1]}
    os.write(writing, json.dumps(answer).encode())
    os._exit(0)


def main() -> None:
    """Print each case as a line of JSON, or as a table on a terminal or with ``--table``."""
    import django

    with tempfile.TemporaryDirectory(prefix="memory-hub-foreign-") as root:
        os.environ["MEMORY_HUB_HOME"] = f"{root}/home"
        os.environ["HOME"] = root
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
        django.setup()
        for case in run_cases(Path(root)):
            if "--table" in sys.argv:
                faults = "; ".join(faults_of(case))
                figures = f"{case.cpu_seconds:6.2f} s {case.memory_bytes // 2**20:5} MB"
                print(f"{case.reader:22} {case.file:28} {figures} {case.end:12} {faults}", flush=True)
            else:
                print(json.dumps(asdict(case)), flush=True)


if __name__ == "__main__":
    main()
