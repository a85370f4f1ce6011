"""Record the commands of the first minute as an animated SVG: ``python -m tests.recording``.

The commands run for real, in a new home and a small repository. What differs from run to run, such as dates, durations
and paths, is replaced, so that a recording changes only when the product's answers do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from tests.web.server import serving

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/first-minute.svg"


@dataclass(frozen=True, slots=True)
class Scene:
    command: str
    # Lines of the answer that are shown; the number of the others follows
    most_lines: int = 8
    # How the first line begins that is shown; what is above it was on the screen before
    shown_from: str = ""


# To record another command, add it here
SCENES = (
    Scene("memory-hub start --preview", most_lines=10),
    Scene("memory-hub start --yes", most_lines=15, shown_from="Imported"),
    Scene('memory-hub search "why are the tests red" --limit 3'),
    Scene('memory-hub search "why do we wait for late readings" --limit 2'),
)


@dataclass(frozen=True, slots=True)
class Take:
    command: str
    lines: list[str]


FILES = {
    "README.md": "# Harbour\n\n## Tests\n\nRun `make test`. It needs no network: gauges are replayed.\n",
    "CLAUDE.md": "# Rules\n\n- Times are UTC in code.\n- Migrations go one way: never edit one that has run.\n",
    "docs/adr/0001-sqlite.md": "# 1. Keep readings in SQLite\n\nStatus: accepted\n\n## Context\n\nOne machine."
    "\n\n## Decision\n\nOne file in WAL mode.\n",
    "gauges.py": "LATEST = 40 * 60\n",
}
COMMITS = (
    ("Warn by SMS when a gauge passes the quay", ("README.md", "CLAUDE.md", "docs/adr/0001-sqlite.md")),
    (
        "Wait 40 minutes for late readings\n\nThe feed lags by up to 31 minutes. We alarmed twice for nothing.",
        ("gauges.py",),
    ),
)
_DATE = "2026-11-28T09:00:00+00:00"
_SHOWN_DAY = "2026-11-28"
# A remark below the hits, which a hub with the model does not make
_BY_WORDS = "(by words alone"
_FAILED = "Exit code 2\nModuleNotFoundError: No module named 'gauges'\nmake: *** [Makefile:4: test] Error 2"
_CURE = "The package was not installed: run `pip install -e .` before `make test`."
_TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"  # as GitHub's look, and nobody's
# The days of past sessions of Claude Code, and what was said and run in them
_RUNS = (("make test", _FAILED), ("pip install -e .", ""), ("make test", ""))
SESSIONS = (
    ("2026-11-18", "Why are the tests red?", _RUNS, _CURE),
    ("2026-11-22", "Why are the tests red?", _RUNS, _CURE),
    ("2026-11-25", f"Deploy it with the token {_TOKEN}", (), "Deployed."),
)


def record(folder: Path, scenes: Sequence[Scene] = SCENES) -> list[Take]:
    """Run the scenes' commands in a new home and repository below the folder, and return what they answered.

    Raises:
        RuntimeError: a command failed.
    """
    user = folder.resolve() / "maya"
    repository = user / "harbour"
    repository.mkdir(parents=True)
    (user / ".memory-hub").mkdir(mode=0o700)
    (user / ".memory-hub/config.toml").write_text('search_mode = "fts5"\n')
    environment = _environment(user)
    _commit_files(repository, environment)
    _write_transcripts(user, repository)
    with serving("--no-worker", home=user / ".memory-hub"):
        return [Take(scene.command, _shown_lines(scene, repository, environment, user)) for scene in scenes]


def _shown_lines(scene: Scene, repository: Path, environment: dict[str, str], user: Path) -> list[str]:
    answer = _run(scene.command, repository, environment)
    lines = [_stable(line, user) for line in answer if line and not line.startswith(_BY_WORDS)]
    while not lines[0].startswith(scene.shown_from):
        del lines[0]
    hidden = len(lines) - scene.most_lines
    if hidden > 0:
        lines = [*lines[: scene.most_lines], f"… {hidden} more lines"]
    return lines


def _write_transcripts(user: Path, repository: Path) -> None:
    folder = user / ".claude/projects" / str(repository).replace("/", "-")
    folder.mkdir(parents=True)
    for number, (day, prompt, runs, answer) in enumerate(SESSIONS):
        name = f"0a1b2c3d-0000-4000-8000-00000000000{number}"
        entries: list[tuple[str, Any]] = [("user", prompt)]
        for call, (command, output) in enumerate(runs):
            use = {"type": "tool_use", "id": f"call-{call}", "name": "Bash", "input": {"command": command}}
            result = {"type": "tool_result", "tool_use_id": f"call-{call}", "content": output or "ok"}
            entries += [("assistant", [use]), ("user", [{**result, "is_error": bool(output)}])]
        entries.append(("assistant", [{"type": "text", "text": answer}]))
        path = folder / f"{name}.jsonl"
        with path.open("w") as file:
            for minute, (role, content) in enumerate(entries):
                fields = {"cwd": str(repository), "sessionId": name, "timestamp": f"{day}T09:{minute:02}:00.000Z"}
                file.write(json.dumps({**fields, "type": role, "message": {"role": role, "content": content}}) + "\n")
        written = datetime.fromisoformat(f"{day}T10:00:00+00:00").timestamp()
        os.utime(path, (written, written))


def _environment(user: Path) -> dict[str, str]:
    removed = ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEMORY_HUB_", "GIT_"))}
    kept = {name: value for name, value in kept.items() if name not in removed}
    return {
        **kept,
        "HOME": str(user),
        "MEMORY_HUB_HOME": str(user / ".memory-hub"),
        "MEMORY_HUB_AUTOSTART": "off",
        # Without the clients of this machine
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "PYTHONDEVMODE": "",
        "TZ": "UTC",
        "GIT_AUTHOR_DATE": _DATE,
        "GIT_COMMITTER_DATE": _DATE,
    }


def _commit_files(repository: Path, environment: dict[str, str]) -> None:
    git = ("git", "-c", "user.name=Maya", "-c", "user.email=maya@example.com")
    subprocess.run([*git, "init", "--quiet"], cwd=repository, env=environment, check=True)
    for message, names in COMMITS:
        for name in names:
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            (repository / name).write_text(FILES[name])
        subprocess.run([*git, "add", *names], cwd=repository, env=environment, check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", message], cwd=repository, env=environment, check=True)


def _run(command: str, repository: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", f"{command} 2>&1"],
        cwd=repository,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout}")
    return done.stdout.splitlines()


def _stable(line: str, user: Path) -> str:
    """Return a line without what differs from run to run: paths, durations, dates."""
    programs = Path(sys.executable).parent
    for folder in (programs, programs.resolve()):
        line = line.replace(f"{folder}/", "")
    line = line.replace(str(user), "~")
    line = re.sub(r" in [\d.]+ s\b", "", line)
    line = re.sub(r"http://127\.0\.0\.1:\d+/signin/\S+", "http://127.0.0.1:8321/signin/…", line)
    line = re.sub(r"(\[REDACTED:[\w-]+:)\w{4}\]", r"\g<1>7de6]", line)
    return line.replace(datetime.now(UTC).date().isoformat(), _SHOWN_DAY)


# Columns and rows of the terminal, and pixels
_COLUMNS, _ROWS = 100, 21
_LINE, _CHARACTER, _LEFT, _TOP = 20, 7.83, 22, 58
_WIDTH = int(_COLUMNS * _CHARACTER) + 2 * _LEFT
_HEIGHT = _TOP + _ROWS * _LINE + 8
# Seconds
_PER_CHARACTER, _BEFORE_ANSWER, _PER_LINE, _TO_READ, _AT_END = 0.035, 0.5, 0.09, 3.0, 6.0

_STYLE = """
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
text { fill: #c9d1d9; white-space: pre }
.command { fill: #ffffff; font-weight: 600 }
.prompt { fill: #4fc38a }
.id { fill: #6cb6ff }
.dim { fill: #7d8590 }
.added { fill: #7ee2a8 }
.cover { fill: #10151d; opacity: 0 }
""".strip()


@dataclass(slots=True)
class Clip:
    """The rows and the keyframes of a recording, in the order of their appearance."""

    now: float = 0.6
    rows: list[str] = field(default_factory=list)
    # Name, and pairs of a time and its declarations
    keyframes: list[tuple[str, list[tuple[float, str]]]] = field(default_factory=list)
    scrolls: list[tuple[float, str]] = field(default_factory=list)

    def add(self, content: str) -> None:
        number = len(self.rows)
        y = _TOP + (number + 1) * _LINE - 6
        self.rows.append(f'<text class="a{number}" x="{_LEFT}" y="{y}">{content}</text>')
        self.keyframes.append((f"a{number}", [(0, "opacity: 0"), (self.now, "opacity: 1")]))
        if number >= _ROWS:
            self.scrolls.append((self.now, f"transform: translateY({(_ROWS - 1 - number) * _LINE}px)"))

    def type(self, command: str) -> None:
        """Add a command that appears character by character, behind a cover that moves to the right."""
        number = len(self.rows)
        self.add(f'<tspan class="prompt">$ </tspan><tspan class="command">{escape(command)}</tspan>')
        x = _LEFT + 2 * _CHARACTER
        y = _TOP + number * _LINE
        self.rows[-1] += (
            f'<rect class="cover t{number}" x="{x:.0f}" y="{y}" width="{_WIDTH - x - 2:.0f}" height="{_LINE}"/>'
        )
        end = self.now + len(command) * _PER_CHARACTER
        typing = f"opacity: 1; transform: none; animation-timing-function: steps({len(command)})"
        moved = f"opacity: 1; transform: translateX({len(command) * _CHARACTER:.0f}px)"
        frames = [(0, "opacity: 0"), (self.now, typing), (end, moved), (end + 0.01, "opacity: 0")]
        self.keyframes.append((f"t{number}", frames))
        self.now = end + _BEFORE_ANSWER


def draw(takes: Sequence[Take]) -> str:
    """Return the recording as an SVG that plays in a loop; without animations it shows all lines that fit."""
    clip = Clip()
    for take in takes:
        clip.type(take.command)
        for line in take.lines:
            for content in _contents(line):
                clip.add(content)
                clip.now += _PER_LINE
        clip.now += _TO_READ
    total = clip.now + _AT_END - _TO_READ
    rules = [_rule(name, frames, total) for name, frames in clip.keyframes]
    if clip.scrolls:
        rules.append(_rule("scroll", [(0, "transform: none"), *clip.scrolls], total))
    described = "; ".join(take.command for take in takes)
    rows = "\n".join(clip.rows)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"
 aria-labelledby="title">
<title id="title">A terminal: {escape(described)}</title>
<style>
{_STYLE}
{chr(10).join(rules)}
@media (prefers-reduced-motion: reduce) {{ * {{ animation: none !important }} }}
</style>
<rect width="{_WIDTH}" height="{_HEIGHT}" rx="10" fill="#10151d"/>
<path d="M0 34V10A10 10 0 0 1 10 0H{_WIDTH - 10}A10 10 0 0 1 {_WIDTH} 10V34Z" fill="#1b222c"/>
<circle cx="22" cy="17" r="5.5" fill="#ff5f57"/>
<circle cx="41" cy="17" r="5.5" fill="#febc2e"/>
<circle cx="60" cy="17" r="5.5" fill="#28c840"/>
<text class="dim" x="{_WIDTH // 2}" y="22" text-anchor="middle">~/harbour</text>
<clipPath id="screen"><rect y="36" width="{_WIDTH}" height="{_HEIGHT - 42}"/></clipPath>
<g clip-path="url(#screen)"><g class="scroll">
{rows}
</g></g>
</svg>
"""


def _rule(name: str, frames: Sequence[tuple[float, str]], total: float) -> str:
    steps = " ".join(f"{100 * time / total:.3f}% {{ {declarations} }}" for time, declarations in frames)
    return f".{name} {{ animation: {name} {total:.1f}s step-end infinite }} @keyframes {name} {{ {steps} }}"


def _contents(line: str) -> Iterator[str]:
    """Return a line as rows of the terminal, with its parts in their colours."""
    parts = textwrap.wrap(line, _COLUMNS, subsequent_indent="    ", drop_whitespace=False) or [""]
    for number, part in enumerate(parts):
        head = re.match(r"#\d+ \S+ \S+ ", part) if number == 0 else None
        if head:
            yield f'<tspan class="id">{escape(head[0])}</tspan>{escape(part[head.end() :])}'
        elif part.startswith(("(", "…", "to undo", "importing", "nothing was", "---", "@@")):
            yield f'<tspan class="dim">{escape(part)}</tspan>'
        elif line.startswith("+"):
            yield f'<tspan class="added">{escape(part)}</tspan>'
        else:
            yield escape(part)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(draw(record(Path(folder))))
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
