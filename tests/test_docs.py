"""The documents cover everything that exists and nothing else; their commands run; their words are the field's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

from django.core.management import get_commands, load_command_class
from django.test import SimpleTestCase
from pydantic import BaseModel

from memoryhub.config.clients import Client, ClientFile, Hook, all_clients, hook_clients
from memoryhub.config.current_settings import allowed_in_folders, stricter_choices
from memoryhub.config.hook_table import HookEffect
from memoryhub.config.project_settings import InFolder, ProjectSettings, setting_info
from memoryhub.core import errors
from memoryhub.core.events.event_types import EventType, Retention, event_types
from memoryhub.core.events.rollback import effects
from memoryhub.core.kinds import KINDS, type_name
from memoryhub.core.tools import Tool, all_resources, all_tools
from memoryhub.management import parsers
from memoryhub.management.base import CommandGroup, HubCommand
from memoryhub.mcp.listing import listed_tools, load_tools
from memoryhub.mcp.options import PROFILES
from memoryhub.rest.api import api
from memoryhub.teams import connections, sending
from sessions_app.events.client import outlines
from tests.home import run_home
from tests.programs import needs
from tests.web.server import Server, Shell, serving, temporary_home

ROOT = Path(__file__).parents[1]
DECISIONS = ROOT / "docs/decisions"
LONGEST_CELL = 180
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```(?:console|sh)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*(?:\n +.*)*)", re.MULTILINE)  # indented lines continue a command, others are output
NEEDS_SHELL = re.compile(r"[$|<>]")
ADDRESS = "http://127.0.0.1:8321"
WRITTEN = ("memoryhub", "memories", "decisions", "governance", "sessions_app", "benchmarks", "templates", "docs")
SUFFIXES = {".py", ".html", ".js", ".css", ".md", ".toml"}
OLD_WORDS = re.compile(
    r"\b(told|whoever|lest|anew|hers|herself|she|mend(?:s|ed|ing)?|hearers?|none but|at all doors)\b", re.IGNORECASE
)
# Lines with one of these: names that are stored, and words that are data.
STORED = ("told = ", '"told"', "Told by a context pack", "# stop words", "told\\ you")
# Migrations repeat help texts as they were; the other is a list of stop words.
LEFT_OUT = ("migrations/", "memories/search/text.py")


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


class DocumentsTests(SimpleTestCase):
    def test_every_tool_has_its_row(self):
        load_tools()
        product = (tool for tool in listed_tools("full") if not tool.name.startswith("test_"))
        self.assert_table("reference/tools.md", "| tool | profile |", map(tool_row, product))

    def test_every_alias_and_resource_is_named(self):
        load_tools()
        aliases = (f"`{alias}`" for tool in all_tools() for alias in tool.other_names)
        resources = (f"`{resource.uri_template}`" for resource in all_resources())
        self.assert_named([*aliases, *resources], "reference/tools.md", "reference/prompts.md")

    def test_every_route_is_named(self):
        paths = (path.removeprefix("/api/v1") for path in api.get_openapi_schema()["paths"])
        self.assert_named(paths, "reference/rest.md")

    def test_every_error_is_named_with_its_codes(self):
        known = errors.HubError.__subclasses__()
        rows = (f"| `{error.code}` | {error.http_status} | {error.exit_code} |" for error in known)
        self.assert_named(rows, "reference/errors.md")

    def test_every_command_has_its_row(self):
        rows = (
            f"| `{name}` | {command['summary']} | {'yes' if has_json(command) else ''} |"
            for name, command in commands().items()
        )
        self.assert_table("reference/commands.md", "| command | purpose |", rows)

    def test_every_command_is_described_for_help_and_completion(self):
        others = sorted(name for name, app in get_commands().items() if app != "memoryhub")
        named = (f'"{name}": {json.dumps(command, ensure_ascii=False)}' for name, command in commands().items())
        lines = ",\n".join(named)
        described = f'{{"others": {json.dumps(others)},\n"commands": {{\n{lines}\n}}}}\n'
        if os.environ.get("MEMORY_HUB_TEST_WRITE_DOCS"):
            parsers.FILE.write_text(described)
        wrong = sorted({*described.splitlines()} ^ {*parsers.FILE.read_text().splitlines()})
        self.assertEqual([line[:100] for line in wrong], [], "run: make docs")

    def test_every_environment_variable_is_named(self):
        code = "\n".join(path.read_text() for path in (ROOT / "memoryhub").rglob("*.py"))
        used = set(re.findall(r"[\"'](MEMORY_HUB_(?!TEST_)[A-Z_]+)[\"']", code))
        documented = set(re.findall(r"^\| `(MEMORY_HUB_[A-Z_]+)`", document("reference/settings.md"), re.MULTILINE))
        self.assertEqual(documented, used)

    def test_every_project_setting_has_its_row(self):
        self.assert_table(
            "reference/settings.md", "| setting | meaning |", map(setting_row, ProjectSettings.model_fields)
        )

    def test_every_setting_of_a_folder_has_its_row(self):
        self.assert_table("reference/settings.md", "| setting | allowed in a folder file |", folder_rows())

    def test_every_event_type_has_its_row(self):
        product = (known for known in event_types() if not known.schema.__module__.startswith("tests."))
        known = sorted(product, key=lambda known: (known.group.order, known.name))
        self.assert_table("reference/events.md", "| event |", map(event_row, known))

    def test_every_payload_that_clients_append_has_its_row(self):
        rows = (f"| {', '.join(f'`{name}`' for name in types)} | `{fields}` |" for fields, types in outlines().items())
        self.assert_table("reference/events.md", "| appended by clients |", rows)

    def test_every_effect_of_roll_back_has_its_row(self):
        rows = (f"| `{effect.step}` | {effect.words} |" for effect in effects().values())
        self.assert_table("reference/events.md", "| step |", rows)

    def test_every_client_has_its_row(self):
        self.assert_table("reference/clients.md", "| client | your file |", map(client_row, all_clients().values()))

    def test_every_agent_file_has_its_row(self):
        agents = {client.id: client.agent for client in all_clients().values() if client.agent}
        rows = (f"| `{name}` | {paths(agent.user)} | `{agent.repository}` |" for name, agent in agents.items())
        self.assert_table("reference/clients.md", "| client | librarian |", rows)

    def test_every_skill_file_has_its_row(self):
        skills = {client.id: client.skill for client in all_clients().values() if client.skill}
        rows = (f"| `{name}` | {paths(skill.user)} | {in_repository(skill)} |" for name, skill in skills.items())
        self.assert_table("reference/clients.md", "| client | skill |", rows)

    def test_every_list_of_allowed_tools_has_its_row(self):
        lists = [client for client in all_clients().values() if client.permissions]
        rows = (f"| `{client.id}` | {allowed_in(client)} |" for client in lists)
        self.assert_table("reference/clients.md", "| client | allowed tools |", rows)

    def test_every_status_line_has_its_row(self):
        lines = {client.id: client.status_line for client in all_clients().values() if client.status_line}
        rows = (f"| `{name}` | `{'.'.join(line.keys)}` in {paths(line.user)} |" for name, line in lines.items())
        self.assert_table("reference/clients.md", "| client | status line |", rows)

    def test_every_hook_has_its_row(self):
        rows = (
            f"| `{client}` | `{event}` | {recorded_as(hook)} |"
            for client, hooks in hook_clients().items()
            for event, hook in hooks.events.items()
        )
        self.assert_table("guides/connect-a-client.md", "| client | event |", rows)

    def assert_table(self, name: str, head: str, wanted: Iterable[str]) -> None:
        """Assert that the table with this head has exactly these rows; ``make docs`` writes them first."""
        rows = "".join(f"{row}\n" for row in wanted)
        table = re.compile(rf"({re.escape(head)}.*\n\|[-|]+\n)((?:\|.*\n)*)")
        if os.environ.get("MEMORY_HUB_TEST_WRITE_DOCS"):
            written = table.sub(lambda found: found[1] + rows, document(name))
            (ROOT / "docs" / name).write_text(written)
        (found,) = [found[1] for found in table.findall(document(name))]
        wrong = sorted({*rows.splitlines()} ^ {*found.splitlines()})
        self.assertEqual([row[:100] for row in wrong], [], f"rows of docs/{name}; run: make docs")
        self.assertEqual(found, rows, f"the order of the rows of docs/{name}; run: make docs")

    def assert_named(self, texts: Iterable[str], *names: str) -> None:
        """Assert that each text is on one of the pages."""
        pages = "".join(map(document, names))
        self.assertEqual([text for text in texts if text not in pages], [], f"missing in {', '.join(names)}")

    def test_the_index_of_decisions_has_every_record(self):
        self.assert_table("decisions/README.md", "| number |", map(record_row, sorted(DECISIONS.glob("[0-9]*.md"))))

    def test_no_table_cell_is_too_long(self):
        for page in [*(ROOT / "docs").rglob("*.md")]:
            rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
            cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
            self.assertEqual([cell for cell in cells if len(cell) > LONGEST_CELL], [], page.name)

    def test_every_link_leads_somewhere(self):
        wrong = []
        for page in [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]:
            for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
                path, _, anchor = target.partition("#")
                linked = page.parent / path if path else page
                if not linked.exists() or (anchor and anchor not in anchors(linked)):
                    wrong.append(f"{page.name} → {target}")
        self.assertEqual(wrong, [])

    def test_the_files_from_a_teams_hub_are_listed(self):
        files = (connections.TOKEN, sending.PACK, sending.PROBLEM, "spool/")
        listing = document("reference/settings.md").partition("## The home folder")[2]
        security = (ROOT / "SECURITY.md").read_text().partition("\n## Files\n")[2]
        for text in (listing, security):
            self.assertIn(connections.FILE, text)
        for name in files:
            self.assertRegex(listing, rf"teams/<host>/<project>/ .*`{re.escape(name)}`")
            self.assertIn(f"| `teams/HOST/PROJECT/{name}` |", security)

    def test_the_audit_names_what_it_does_not_list(self):
        self.assertRegex(
            document("guides/audit.md"), r"the last pack that it has kept\]\(.*\)\. The audit does not list that"
        )

    def test_every_way_to_install_that_is_recommended_has_the_model(self):
        for path in (
            "README.md",
            "Makefile",
            "docs/quick-start.md",
            "deploy/Containerfile",
            "deploy/memory-hub.service",
        ):
            lines = re.findall(r".*\binstall .*(?:memory-hub|editable|/src).*", (ROOT / path).read_text())
            with self.subTest(path):
                self.assertIn("[semantic]", lines[0])

    def test_every_dependency_has_its_line(self):
        project = (ROOT / "pyproject.toml").read_text()
        names = re.findall(r'^    "([a-zA-Z0-9-]+)[><=]', project, re.MULTILINE)
        text = document("internals/dependencies.md").lower()
        self.assertEqual([name for name in names if name.lower() not in text], [])


class RestExamplesTests(SimpleTestCase):
    """The examples of ``docs/reference/rest.md``, against a real hub."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.enterClassContext(serving("--no-worker"))

    def run_example(self, language: str, *program: str) -> list[str]:
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", document("reference/rest.md"), re.DOTALL | re.MULTILINE)
        text = "\n".join(blocks).replace("http://127.0.0.1:8321", self.server.address)
        text = text.replace("~/.memory-hub", str(self.server.home))
        ended = subprocess.run([*program, text], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), text)
        return ended.stdout.splitlines()

    @needs("curl")
    def test_the_examples_work(self):
        answers = self.run_example("sh", "bash", "-O", "expand_aliases", "-ec")
        self.assertEqual(["Why WAL" in answer for answer in answers], [False, True, True, True, True])
        self.assertIn("Port of the server", self.run_example("python", sys.executable, "-c")[0])


class CommandExamplesTests(SimpleTestCase):
    def test_the_examples_of_schedules_work(self):
        with temporary_home() as home, contextlib.closing(Shell(home)) as shell:
            for line in re.findall(r"^memory-hub (jobs .+)", document("reference/jobs.md"), re.MULTILINE):
                code, output = shell.run(*shlex.split(line, comments=True))
                self.assertEqual(code, 0, f"{line}: {output}")


class DocumentedCommandsTests(SimpleTestCase):
    user: Path

    def setUp(self) -> None:
        self.user = Path(self.enterContext(tempfile.TemporaryDirectory(dir=run_home())))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        home = {"HOME": str(self.user), "MEMORY_HUB_HOME": str(self.user / ".memory-hub"), "CLAUDE_CONFIG_DIR": ""}
        self.enterContext(mock.patch.dict(os.environ, PATH=path, PYTHONPATH=str(ROOT), PYTHONDEVMODE="", **home))
        self.repository = self.user / "my-project"
        (self.repository / "docs/decisions").mkdir(parents=True)
        (self.repository / "docs/decisions/0001-log.md").write_text("# Log\n\n## Decision\n\nOne log.\n")
        self.execute(
            "git init --quiet && git add . && git -c user.name=A -c user.email=a@b.c commit -qm 'First commit'"
        )

    def test_every_guide_is_in_the_table_of_contents(self):
        self.assertEqual({*(ROOT / "docs/guides").glob("*.md")}, {*guided_pages()[2:]})

    @needs("curl")
    def test_the_commands_of_the_pages_run_in_order(self):
        with serving(home=self.user / ".memory-hub") as server:
            shell = Shell(server.home, folder=self.repository)
            self.addCleanup(shell.close)
            for page in guided_pages():
                for command in shown_commands(page):
                    code, output = self.run_documented(shell, command.replace(ADDRESS, server.address))
                    self.assertEqual(code, 0, f"{page.name}: {command}\n{output}")
                if page.name == "README.md":
                    shell.run("demo", "--remove")  # the quick start creates it again

    def run_documented(self, shell: Shell, command: str) -> tuple[int, str]:
        if command.startswith("memory-hub ") and not NEEDS_SHELL.search(command):
            return shell.run(*map(os.path.expanduser, shlex.split(command)[1:]))
        return self.execute(command)

    def execute(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.repository, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr


class LanguageTests(SimpleTestCase):
    """The worst words of an earlier vocabulary do not come back."""

    def test_no_text_uses_the_old_words(self) -> None:
        found = []
        for path in written_files():
            name = str(path.relative_to(ROOT))
            if any(part in name for part in LEFT_OUT):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if OLD_WORDS.search(line) and not any(stored in line for stored in STORED):
                    found.append(f"{name}:{number}: {line.strip()[:100]}")
        self.assertEqual([], found)

    def test_an_entry_is_called_a_memory(self) -> None:
        words = re.compile(r"\b(observations?|knowledge (?:entry|entries)|pieces? of knowledge)\b(?!`)", re.IGNORECASE)
        pages = [ROOT / "README.md", ROOT / "docs/quick-start.md", *(ROOT / "templates").rglob("*.html")]
        found = [f"{page.name}: {match[0]}" for page in pages for match in words.finditer(page.read_text())]
        self.assertEqual(found, [])
        labels = [text for kind in KINDS.values() for text in (kind.label, kind.plural, kind.add_label, *kind.counted)]
        self.assertEqual([label for label in labels if words.search(label) or label == "knowledge"], [])
        names = {("observation", "note"): "memory", ("knowledge", "fact"): "memory", ("guideline", "x"): "guideline/x"}
        names |= {("observation", "task"): "memory/task", ("knowledge", "reference"): "memory", ("", "user"): "user"}
        self.assertEqual({pair: type_name(*pair) for pair in names}, names)


def guided_pages() -> list[Path]:
    """Return the pages in the order of the table of contents."""
    guides = re.findall(r"\((guides/[\w-]+\.md)\)", document("guides.md"))
    return [ROOT / "README.md", ROOT / "docs/quick-start.md", *(ROOT / "docs" / name for name in guides)]


def shown_commands(page: Path) -> Iterator[str]:
    for not_run, text in BLOCK.findall(page.read_text()):
        if not not_run:
            yield from COMMAND.findall(text)


def written_files() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md")
    for folder in WRITTEN:
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def commands() -> dict[str, dict[str, Any]]:
    """Return the hub's commands as ``parsers.json`` has them, by group and name."""
    names = [name for name, app in get_commands().items() if app == "memoryhub"]
    described = {
        name: cast("HubCommand", load_command_class("memoryhub", name)).described(name) for name in sorted(names)
    }
    return dict(sorted(described.items(), key=lambda named: list(CommandGroup).index(named[1]["group"])))


def has_json(described: dict[str, Any]) -> bool:
    found = described["arguments"]
    subcommands = [command for argument in found for command in argument.get("commands", {}).values()]
    return any(argument["dest"] == "json" for argument in found) or any(map(has_json, subcommands))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def record_row(record: Path) -> str:
    """Return the row of a decision record in ``docs/decisions/README.md``."""
    text = record.read_text()
    number, title = re.findall(r"^# (\d+)\. (.+)", text)[0]
    status = re.findall(r"^Status: ([^;\n]+)", text, re.MULTILINE)[0]
    return f"| [{number}]({record.name}) | {title} | {status} |"


def event_row(known: EventType[Any]) -> str:
    rule = known.rollback
    words = ["quarantined"] if rule.is_hidden else []
    words += [f"undo: `{rule.by}`"] if rule.by else []
    words += [f"kept: {rule.why}"] if rule.why else []
    treated = "; ".join(words) or "can't be selected"
    retention = "with its owner" if known.retention is Retention.WITH_STREAM else known.retention
    clients = "yes" if known.from_clients else ""
    return f"| `{known.name}` | {known.label} | {known.group.label} | {retention} | {treated} | {clients} |"


def tool_row(tool: Tool) -> str:
    profile = next(profile for profile in PROFILES if tool in listed_tools(profile))
    name = f"`{tool.full_name}`" if tool.full_name else ""
    return f"| `{tool.name}` | {profile} | {name} | {tool.description} |"


def setting_row(name: str) -> str:
    """Return the row of a setting, with a link to the section that explains it, if there is one."""
    field = ProjectSettings.model_fields[name]
    details = f" ([details](#{name}))" if f"\n### `{name}`\n" in document("reference/settings.md") else ""
    return f"| `{name}` | {field.description}{details} | {shown(field.get_default(call_default_factory=True))} |"


def folder_rows() -> list[str]:
    allowed: dict[str, list[str]] = {}
    for name in allowed_in_folders():
        choices = ", ".join(f"`{choice}`" for choice in stricter_choices(name)) or "the default or less"
        value = "any value" if setting_info(name).in_folder is InFolder.ANY else choices
        allowed.setdefault(value, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {value} |" for value, names in allowed.items()]
    return [*rows, "| all others | refused |"]


def client_row(client: Client) -> str:
    hooks = client.hooks
    user = paths(client.user)
    if hooks:
        user += ", hooks too" if hooks.user == client.user else f", hooks in {paths(hooks.user)}"
    repository = [" or ".join(f"`{path}`" for path in client.repository)] if client.repository else []
    if hooks and hooks.repository not in client.repository:
        repository.append(f"`{hooks.repository}`")
    return f"| `{client.id}` | {user} | {', '.join(repository)} |"


def in_repository(file: ClientFile) -> str:
    return f"`{file.repository}`" if file.repository else ""


def allowed_in(client: Client) -> str:
    allowed = client.permissions
    assert allowed
    place = f"`{'.'.join(allowed.keys)}` in {paths(allowed.user) if allowed.user else 'the file of the servers'}"
    if allowed.is_in_entry:
        place = f"`{'.'.join(allowed.keys)}` of the server's entry"
    return f"{place} | `{allowed.rule}`"


def paths(templates: Iterable[str]) -> str:
    """Return the possible paths of a file on Linux."""
    folders = {"home": "~", "config": "~/.config", "applications": "~/.config"}
    filled = (re.sub(r"{(\w+)}", lambda name: folders.get(name[1], f"${name[1]}"), path) for path in templates)
    return " or ".join(f"`{path}`" for path in filled)


def recorded_as(hook: Hook) -> str:
    if hook.effect is HookEffect.TOOL:
        tools = {"command.run": list(hook.commands), "file.edited": list(hook.edits)}
        known = [f"`{kind}` for {', '.join(f'`{name}`' for name in names)}" for kind, names in tools.items() if names]
        if "" in hook.edits:
            return "`file.edited`"
        return "; ".join([*known, "`message.tool` for other tools" if known else "`message.tool`"])
    if hook.effect is HookEffect.STOP and not hook.type:
        return "the turn ends"
    return EFFECTS[hook.effect].format(hook.type)


EFFECTS = {
    HookEffect.START: "session starts or continues; answered with the pack",
    HookEffect.PROMPT: "the turn before ends, a new one begins: `{}`; answered with what the prompt is about",
    HookEffect.ACTION: "nothing; answered with a note",
    HookEffect.STATUS: "nothing; answered with the status line",
    HookEffect.APPEND: "`{}`",
    HookEffect.STOP: "`{}`, and the turn ends",
    HookEffect.END: "the session ends, with a summary if nobody wrote one",
}


def shown(default: Any) -> str:
    """Return a setting's default as the documents write it: a group of numbers in their order."""
    if isinstance(default, BaseModel):
        return ", ".join(f"{value:g}" for value in default.model_dump().values())
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"{default:g}" if isinstance(default, int | float) else f"`{default}`"
