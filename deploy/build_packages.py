"""Build everything that is published of this version into a folder: ``make dist``.

The templates are in ``deploy/packages/``. What the product declares is taken from there: the version, the hooks of the
clients, the librarian, the skill, the tools. Two builds of one checkout have the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from memoryhub import __version__
from memoryhub.client.setup.agent_files import SKILL_FILE, agent_text
from memoryhub.client.setup.entries import hook_groups
from memoryhub.config.clients import SERVER, Client, find_client

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "deploy" / "packages"
KEYWORDS = ["memory", "mcp", "coding-agents", "local-first", "decisions"]
# The time of all files in archives, as of hatchling's, unless SOURCE_DATE_EPOCH names another
_EPOCH = 1580601600


_PLACEHOLDER = re.compile("@([A-Z0-9_]+)@")


@dataclass(frozen=True, slots=True)
class Release:
    """What the templates name, by the name of the placeholder."""

    values: dict[str, Any]

    def fill(self, template: str, **more: Any) -> str:
        """Return a template of text with its placeholders filled."""
        values = self.values | more
        text = (TEMPLATES / template).read_text("utf-8")
        return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), text)

    def fill_json(self, template: str, **more: Any) -> dict[str, Any]:
        """Return a template of JSON; a string that is a placeholder alone becomes a value of any type."""
        filled: dict[str, Any] = _filled(json.loads((TEMPLATES / template).read_text("utf-8")), self.values | more)
        return filled


def _filled(part: Any, values: dict[str, Any]) -> Any:
    if isinstance(part, dict):
        return {name: _filled(item, values) for name, item in part.items()}
    if isinstance(part, list):
        return [_filled(item, values) for item in part]
    if not isinstance(part, str):
        return part
    if whole := _PLACEHOLDER.fullmatch(part):
        return values[whole[1]]
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), part)


def read_release() -> Release:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    publisher = tomllib.loads((TEMPLATES / "publisher.toml").read_text("utf-8"))
    return Release(
        {
            "VERSION": __version__,
            "DISTRIBUTION": project["name"],
            "DESCRIPTION": project["description"],
            "LICENSE": project["license"],
            "LICENSES": json.dumps(project["license"].split(" AND ")),
            "PYTHON": project["requires-python"],
            "KEYWORDS": KEYWORDS,
            "AUTHOR": publisher["name"],
            "OWNER": publisher["github"],
            "REPOSITORY": f"https://github.com/{publisher['github']}/memory-hub",
            "REGISTRY_NAME": f"io.github.{publisher['github']}/memory-hub",
            "COMMAND": f"uvx {project['name']}@{__version__}",
        }
    )


def build(folder: Path) -> list[Path]:
    """Build all packages into a folder, which is emptied first; return them in the order of publishing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    release = read_release()
    wheel, sdist = build_distributions(folder)
    return [wheel, sdist, *build_for_clients(release, folder), build_formula(release, folder, sdist)]


def build_for_clients(release: Release, folder: Path) -> list[Path]:
    """Build what starts the distribution of this version, and does not contain it."""
    plugins, gemini = folder / "plugins", folder / "gemini-cli"
    build_claude_code(release, plugins)
    build_codex(release, plugins)
    build_cursor(release, plugins)
    build_agent_plugin(release, plugins / "agent-plugins")
    write(plugins / "README.md", release.fill("README.md"))
    build_gemini(release, gemini)
    for repository in (plugins, gemini):
        write(repository / "LICENSE", (ROOT / "LICENSE").read_text("utf-8"))
    server = folder / "server.json"
    write_json(server, release.fill_json("mcp-registry/server.json"))
    bundle = folder / f"memory-hub-{__version__}.mcpb"
    build_bundle(release, bundle)
    return [server, plugins, gemini, bundle]


def build_distributions(folder: Path) -> tuple[Path, Path]:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel"]
    subprocess.run([*command, "--directory", str(folder)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def build_claude_code(release: Release, plugins: Path) -> None:
    client, folder = find_client("claude-code"), plugins / "claude-code"
    write_json(plugins / ".claude-plugin" / "marketplace.json", release.fill_json("claude-code/marketplace.json"))
    write_json(folder / ".claude-plugin" / "plugin.json", release.fill_json("claude-code/plugin.json"))
    write_json(folder / ".mcp.json", {"mcpServers": servers(release, client)})
    write_json(folder / "hooks" / "hooks.json", hooks_file(release, client))
    # Claude Code names the tools of a plugin's server so.
    agent = librarian(client).replace(f"mcp__{SERVER}__", f"mcp__plugin_{SERVER}_{SERVER}__")
    write(folder / "agents" / "librarian.md", agent)
    write_skill(folder)


def build_codex(release: Release, plugins: Path) -> None:
    client, folder = find_client("codex"), plugins / "codex"
    write_json(plugins / ".agents" / "plugins" / "marketplace.json", release.fill_json("codex/marketplace.json"))
    write_json(folder / ".codex-plugin" / "plugin.json", release.fill_json("codex/plugin.json"))
    write_json(folder / ".mcp.json", {"mcpServers": servers(release, client)})
    write_json(folder / "hooks" / "hooks.json", hooks_file(release, client))
    write_skill(folder)


def build_cursor(release: Release, plugins: Path) -> None:
    client, folder = find_client("cursor"), plugins / "cursor"
    write_json(plugins / ".cursor-plugin" / "marketplace.json", release.fill_json("cursor/marketplace.json"))
    write_json(folder / ".cursor-plugin" / "plugin.json", release.fill_json("cursor/plugin.json"))
    write_json(folder / "mcp.json", {"mcpServers": servers(release, client)})
    write_json(folder / "hooks" / "hooks.json", hooks_file(release, client))
    write(folder / "agents" / "librarian.md", librarian(client))
    write_skill(folder)


def build_agent_plugin(release: Release, folder: Path) -> None:
    write_json(folder / "plugin.json", release.fill_json("agent-plugins/plugin.json"))
    entry = {"type": "stdio", **command_entry(release, "mcp")}
    write_json(folder / "mcp.json", release.fill_json("agent-plugins/mcp.json", SERVERS={SERVER: entry}))
    write(folder / ".memory-hub.toml", release.fill("agent-plugins/.memory-hub.toml"))
    write_skill(folder)


def build_gemini(release: Release, folder: Path) -> None:
    client = find_client("gemini-cli")
    manifest = release.fill_json("gemini-cli/gemini-extension.json", SERVERS=servers(release, client))
    write_json(folder / "gemini-extension.json", manifest)
    write_json(folder / "hooks" / "hooks.json", hooks_file(release, client))
    write(folder / "agents" / "librarian.md", librarian(client))
    write_skill(folder)


def build_bundle(release: Release, path: Path) -> None:
    """Write the MCP bundle, a zip archive."""
    files = {
        "manifest.json": as_json(release.fill_json("mcpb/manifest.json", TOOLS=core_tools())),
        "pyproject.toml": release.fill("mcpb/project.toml"),
        "server.py": release.fill("mcpb/server.py"),
    }
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", _EPOCH))
    date_time = datetime.fromtimestamp(epoch, tz=UTC).timetuple()[:6]
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            info = ZipInfo(name, date_time)
            info.external_attr = 0o644 << 16
            info.compress_type = ZIP_DEFLATED
            archive.writestr(info, text)


def build_formula(release: Release, folder: Path, sdist: Path) -> Path:
    formula = folder / "memory-hub.rb"
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    write(formula, release.fill("homebrew/memory-hub.rb", SDIST=sdist.name, SDIST_SHA256=digest))
    return formula


def servers(release: Release, client: Client) -> dict[str, Any]:
    """Return the server that `memory-hub setup` writes, with the packages' command."""
    return {SERVER: {**client.entry, **command_entry(release, "mcp", *client.arguments)}}


def command_entry(release: Release, *words: str) -> dict[str, Any]:
    command, *first = release.values["COMMAND"].split()
    return {"command": command, "args": [*first, *words]}


def hooks_file(release: Release, client: Client) -> dict[str, Any]:
    """Return the hooks that `memory-hub setup` writes, with a command that neither blocks nor downloads."""
    declared = client.hooks
    if declared is None:
        raise ValueError(client.id)
    # A hook that fails with 2, as uv does without a network, blocks what the user does. Offline, uv waits for nothing.
    command = release.values["COMMAND"].replace("uvx ", "uvx --offline ")
    groups = hook_groups(client, declared, command)
    for group in groups.values():
        for hook in group.get("hooks", [group]):
            hook["command"] += " || true"
    version = {"version": declared.version} if declared.version else {}
    return {**version, "hooks": {event: [group] for event, group in groups.items()}}


def librarian(client: Client) -> str:
    if client.agent is None:
        raise ValueError(client.id)
    return agent_text(client.agent)


def core_tools() -> list[dict[str, str]]:
    """Return the names and descriptions of the tools that are listed by default."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings")
    django.setup()
    from memoryhub.mcp.listing import listed_tools, load_tools

    load_tools()
    return [{"name": tool.name, "description": tool.description} for tool in listed_tools("core")]


def write_skill(folder: Path) -> None:
    write(folder / "skills" / SKILL_FILE.parent.name / SKILL_FILE.name, SKILL_FILE.read_text("utf-8"))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def write_json(path: Path, data: dict[str, Any]) -> None:
    write(path, as_json(data))


def as_json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def obstacles(release: Release) -> list[str]:
    """Return what must change before these packages can be published."""
    sentences = []
    if release.values["OWNER"] == "OWNER":
        sentences.append("deploy/packages/publisher.toml names no account yet")
    marker = f"mcp-name: {release.values['REGISTRY_NAME']}"
    if marker not in (ROOT / "README.md").read_text("utf-8"):
        sentences.append(f"README.md needs the line <!-- {marker} -->, by which the MCP registry knows the owner")
    return sentences


def main(argv: list[str]) -> int:
    folder = Path(argv[1]) if argv[1:] else ROOT / "dist"
    for path in build(folder):
        size = size_of(path)
        name = f"{path.name}/" if path.is_dir() else path.name
        sys.stdout.write(f"{size / 1000:>9,.1f} kB  {name}\n")
    for sentence in obstacles(read_release()):
        sys.stdout.write(f"before publishing: {sentence}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
