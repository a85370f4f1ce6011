"""The files in which the clients of a repository keep rules for agents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache
from pathlib import PurePosixPath

from memories.importing.files import SKIPPED_FOLDERS

# Folders below one with rules that hold something else: commands, programs
_NO_RULES = {"workflows", "hooks", "skills", "commands", "agents", "prompts"}


@dataclass(frozen=True, slots=True)
class RuleFile:
    """Files of one client.

    ``pattern`` is matched against the end of a path; ``/**/`` matches any folders between. A file becomes a memory for
    each section, or one memory if its front matter may name the files that it applies to, under the key ``globs``.
    """

    client: str
    pattern: str
    globs: str = ""
    is_whole: bool = False
    # Whether it brings in other files with @
    has_imports: bool = False

    def includes(self, path: PurePosixPath) -> bool:
        folders = path.parts[:-1]
        parts, name, is_deep = _parsed(self.pattern)
        if not fnmatchcase(path.name, name):
            return False
        if not is_deep:
            return not parts or _match(folders[-len(parts) :], parts)
        return any(_match(folders[at : at + len(parts)], parts) for at in range(len(folders)))

    def enters(self, path: PurePosixPath) -> bool:
        """Return whether a hidden folder, or one below it, can have such files."""
        parts, _, is_deep = _parsed(self.pattern)
        for at in range(len(path.parts)):
            below = path.parts[at:]
            if len(below) <= len(parts) and _match(below, parts[: len(below)]):
                return True
            if is_deep and _match(below[: len(parts)], parts):
                return _NO_RULES.isdisjoint(below[len(parts) :])
        return False


@cache
def _parsed(pattern: str) -> tuple[tuple[str, ...], str, bool]:
    *parts, name = (part for part in pattern.split("/") if part != "**")
    return tuple(parts), name, "/**/" in pattern


def _match(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))


def _rules(client: str, folder: str, globs: str = "", ending: str = "*.md") -> RuleFile:
    return RuleFile(client, f"{folder}/**/{ending}", globs, is_whole=True, has_imports=client == "claude-code")


AGENTS_MD = (
    RuleFile("agents-md", "AGENTS.md"),
    RuleFile("agents-md", "AGENT.md"),
    RuleFile("agents-md", "AGENTS.override.md"),
)
CURSOR = (
    RuleFile("cursor", ".cursorrules"),
    _rules("cursor", ".cursor/rules", "globs", "*.mdc"),
    _rules("cursor", ".cursor/rules", "globs", "RULE.md"),
)
CLAUDE = (
    RuleFile("claude-code", "CLAUDE.md", has_imports=True),
    RuleFile("claude-code", "CLAUDE.local.md", has_imports=True),
    RuleFile("claude-code", ".claude/CLAUDE.md", has_imports=True),
    _rules("claude-code", ".claude/rules", "paths"),
)
RULE_FILES = (
    *AGENTS_MD,
    *CLAUDE,
    *CURSOR,
    RuleFile("gemini", "GEMINI.md", has_imports=True),
    RuleFile("gemini", ".gemini/GEMINI.md", has_imports=True),
    RuleFile("qwen", "QWEN.md", has_imports=True),
    RuleFile("copilot", ".github/copilot-instructions.md"),
    _rules("copilot", ".github/instructions", "applyTo", "*.instructions.md"),
    RuleFile("windsurf", ".windsurfrules"),
    _rules("windsurf", ".windsurf/rules", "globs"),
    _rules("devin", ".devin/rules", "globs"),
    _rules("antigravity", ".agents/rules", "globs"),
    _rules("antigravity", ".agent/rules", "globs"),
    RuleFile("cline", ".clinerules"),
    _rules("cline", ".clinerules", "paths"),
    _rules("cline", ".cline/rules", "paths"),
    # A mode of Roo Code has rules of its own
    RuleFile("roo", ".roorules"),
    RuleFile("roo", ".roorules-*"),
    RuleFile("roo", ".clinerules-*"),
    _rules("roo", ".roo/rules"),
    _rules("roo", ".roo/rules-*"),
    RuleFile("kilo", ".kilocoderules"),
    _rules("kilo", ".kilocode/rules"),
    _rules("kilo", ".kilocode/rules-*"),
    _rules("kilo", ".kilo/rules"),
    _rules("kiro", ".kiro/steering", "fileMatchPattern"),
    RuleFile("junie", ".junie/guidelines.md"),
    RuleFile("junie", ".junie/AGENTS.md"),
    _rules("jetbrains", ".aiassistant/rules"),
    _rules("amazon-q", ".amazonq/rules"),
    RuleFile("continue", ".continuerules"),
    _rules("continue", ".continue/rules", "globs"),
    _rules("trae", ".trae/rules", "globs"),
    RuleFile("augment", ".augment-guidelines"),
    _rules("augment", ".augment/rules"),
    _rules("factory", ".factory/rules"),
    _rules("openhands", ".openhands/microagents"),
    RuleFile("zed", ".rules"),
    RuleFile("goose", ".goosehints"),
    RuleFile("warp", "WARP.md"),
)


class RuleTable:
    """The rule files that one source reads."""

    def __init__(self, files: Sequence[RuleFile]) -> None:
        self._files = files
        # Most files of a repository have none of the names
        self._names = re.compile("|".join(translate(_parsed(file.pattern)[1]) for file in files))

    def file_of(self, path: PurePosixPath) -> RuleFile | None:
        if not self._names.match(path.name):
            return None
        return next((file for file in self._files if file.includes(path)), None)

    def includes(self, path: PurePosixPath) -> bool:
        return self.file_of(path) is not None

    def enters(self, path: PurePosixPath) -> bool:
        if any(part.startswith(".") for part in path.parts):
            return path.name not in SKIPPED_FOLDERS and any(file.enters(path) for file in self._files)
        return path.name not in SKIPPED_FOLDERS
