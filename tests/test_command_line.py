from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import TestCase
from unittest.mock import patch

from django.core.management import CommandError, call_command

from memoryhub.management.parsers import read_commands
from tests.api.client import RestTestCase
from tests.programs import needs
from tests.support import HubTestCase

ROOT = Path(__file__).parents[1]
SECRET = "ghp_" + "x1Y2z3A4b5" * 4
# Fields that differ between two calls, or have times, which REST gives in milliseconds
PASSING = {"meta", "now", "digest", "cutoff", "created_at", "updated_at", "last_activity"}
# What REST adds to a project from hub.db
OF_HUB_DB = {"chain_ok", "chain_finding", "chain_checked_at"}

# One call of each command and sub-command that takes --json, and the REST route with the same answer
READINGS = {
    "search": (["WAL"], "projects/alpha/search?q=WAL"),
    "context": ([], "projects/alpha/context"),
    "get": (["Use WAL"], None),
    "settings": ([], None),
    "verify": ([], "projects/alpha/events/verify"),
    "replay": ([], None),
    "redact": (["--text", "readers"], None),
    "rollback": (["--actor", "nobody"], None),
    "retention plan": ([], "projects/alpha/retention"),
    "retention runs": ([], "projects/alpha/retention/runs"),
    "retention holds": ([], "projects/alpha/holds"),
    "doctor": ([], None),
    "jobs": ([], None),
    "status": ([], None),
    "token list": ([], None),
    "audit": ([], "projects/alpha/audit"),
    "member list": ([], "projects/alpha/members"),
    "worth": (["--period", "all"], "projects/alpha/worth?period=all"),
    "project list": ([], None),
    "project show": (["alpha"], "projects/alpha"),
}
# Take no --project
OF_THE_HUB = {"status", "token list", "project list", "project show", "jobs"}
# Tested elsewhere, because they need a file, standard input, a service manager, a client or a home of their own
OTHERS = {
    "bench",
    "blame",
    "bundle apply",
    "bundle verify",
    "import list",
    "memtest",
    "mirror",
    "sanitise",
    "service status",
    "setup",
}


def taking_json() -> set[str]:
    found = set()
    for name, command in read_commands()["commands"].items():
        for argument in command["arguments"]:
            found |= {name} if argument["dest"] == "json" else set()
            for act, subcommand in argument.get("commands", {}).items():
                found |= {f"{name} {act}"} if any(one["dest"] == "json" for one in subcommand["arguments"]) else set()
    return found


class JsonTests(RestTestCase):
    def printed(self, *arguments: str) -> str:
        out = io.StringIO()
        try:
            call_command(*arguments, stdout=out, stderr=io.StringIO())
        except SystemExit as end:
            self.assertIn(end.code, (15,))  # doctor has findings
        return out.getvalue()

    def test_every_reading_command_prints_json_and_what_rest_answers(self) -> None:
        self.write()
        self.assertEqual(taking_json(), READINGS.keys() | OTHERS)
        for name, (arguments, route) in READINGS.items():
            with self.subTest(command=name):
                scope = [] if name in OF_THE_HUB else ["--project", "alpha"]
                printed = self.printed(*name.split(), *arguments, *scope, "--json")
                if name == "replay":
                    self.assertTrue(all("event_type" in json.loads(line) for line in printed.splitlines()))
                    continue
                found = json.loads(printed)
                if route is not None:
                    wanted = self.call("GET", route).data
                    self.assertLessEqual(wanted.keys(), found.keys() | OF_HUB_DB)
                    for field in wanted.keys() & found.keys() - PASSING:
                        self.assertEqual(found[field], wanted[field], field)

    def test_a_budget_counts_the_json(self) -> None:
        for number in range(30):
            self.write(f"Rule {number}", content=f"{number} readers wait. " * 20, kind="guideline")
            self.write(f"Fact {number}", content=f"{number} readers never wait. " * 20)
            self.call("POST", "projects/alpha/decisions", {"title": f"Wait {number}", "chosen": "x " * 90}, expect=201)
        meta = json.loads(self.printed("context", "--project", "alpha", "--max-tokens", "400", "--json"))["meta"]
        self.assertLessEqual(meta["estimated_tokens"], 400)
        self.assertTrue(meta["truncated"])

    def test_a_writing_command_takes_no_json(self) -> None:
        with self.assertRaisesRegex(CommandError, "unrecognized arguments: --json"):
            call_command("project", "create", "gamma", "--json")
        self.assertFalse((self.home / "projects/gamma").exists())

    def test_get_and_memtest_print_what_they_found(self) -> None:
        memory = self.write()
        (found,) = json.loads(self.printed("get", str(memory), "--project", "alpha", "--json"))["results"]
        wanted = self.call("GET", f"projects/alpha/memories/{memory}").data
        self.assertEqual(found.keys(), wanted.keys())
        self.assertEqual({found[name] == wanted[name] for name in wanted.keys() - PASSING}, {True})
        tests = self.home / "tests.yml"
        tests.write_text("tests: [{query: WAL, expect: [Use WAL]}]")
        done = json.loads(self.printed("memtest", str(tests), "--project", "alpha", "--json"))
        self.assertEqual((done["passed"], done["failed"], done["results"][0]["faults"]), (1, 0, []))


class OutsideTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "notes"
        self.folder.mkdir()

    def run_there(self, *arguments: str) -> tuple[str, str]:
        out, err = io.StringIO(), io.StringIO()
        with patch.object(Path, "cwd", return_value=self.folder):
            call_command(*arguments, stdout=out, stderr=err)
        return out.getvalue(), err.getvalue()

    def test_a_command_that_needs_a_project_names_the_next_command(self) -> None:
        for arguments in (["search", "x"], ["context"], ["verify"], ["settings"], ["rebuild"], ["retention", "plan"]):
            with self.subTest(arguments=arguments):
                with self.assertRaisesRegex(
                    CommandError, r"^this folder belongs to no project; .*create notes`$"
                ) as no:
                    self.run_there(*arguments)
                self.assertEqual(no.exception.returncode, 3)
        subprocess.run(["git", "init", "-q", str(self.folder)], check=True)
        with self.assertRaisesRegex(CommandError, "'notes' of this repository does not exist yet; `memory-hub import"):
            self.run_there("search", "x")
        with self.assertRaisesRegex(CommandError, "there is no project 'notes' in this hub"):
            self.run_there("search", "x", "--project", "notes")
        self.assertFalse((self.home / "projects").exists())

    def test_a_file_is_sanitised_without_a_project_by_the_hubs_rules(self) -> None:
        file = self.folder / "a.txt"
        file.write_text(f"token {SECRET} of ACME-123456\n")
        clean, found = self.run_there("sanitise", str(file))
        self.assertNotIn(SECRET, clean)
        self.assertIn("ACME-123456", clean)
        self.assertRegex(found, r"^1:7 ")
        rule = 'secret_rules = [{id = "badge", pattern = "ACME-[0-9]{6}"}]\n'
        (self.home / "config.toml").write_text(rule)
        self.assertNotIn("ACME-123456", self.run_there("sanitise", str(file))[0])
        listed = json.loads(self.run_there("sanitise", str(file), "--json")[0])
        self.assertEqual(len(listed["found"]), 2)
        with self.assertRaisesRegex(CommandError, "there is no project 'nope'"):
            self.run_there("sanitise", str(file), "--project", "nope")
        self.assertFalse((self.home / "projects").exists())

    def test_a_wrong_setting_or_job_is_answered_with_the_nearest(self) -> None:
        with self.store("alpha"):
            pass
        with self.assertRaisesRegex(CommandError, r"no setting 'serch_mode' \(did you mean 'search_mode'\?\)"):
            self.run_there("settings", "serch_mode", "--project", "alpha")
        with self.assertRaisesRegex(CommandError, r"no job 'bakup' \(did you mean 'backup'\?\)"):
            self.run_there("jobs", "bakup")


# What the shell offers for a command line
CASES = {
    "memory-hub ver": {"verify"},
    "memory-hub token ": {"create", "list", "revoke"},
    "memory-hub search --as": {"--as-of"},
    "memory-hub search --project al": {"alpha"},
    "memory-hub project show ": {"alpha", "beta"},
    "memory-hub settings search_": {"search_mode"},
    "memory-hub export adr --format ": {"madr", "mermaid"},
    "memory-hub jobs verify-": {"verify-stores"},
    f"memory-hub restore {ROOT}/pyproj": {f"{ROOT}/pyproject.toml"},
}
IN_BASH = """
eval "$(memory-hub completion bash)"
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
    _python_argcomplete memory-hub </dev/null
    echo ${COMPREPLY[*]}
done
"""
IN_FISH = """
memory-hub completion fish | source
while read -l line; string join -- ' ' (complete -C "$line" | string replace -r '\\t.*' ''); end
true
"""


class CompletionTests(TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        for project in ("alpha", "beta"):
            (self.home / "projects" / project).mkdir(parents=True)
        (self.home / "bin").mkdir()
        script = self.home / "bin/memory-hub"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "manage.py"} "$@"\n')
        script.chmod(0o755)

    def offered(self, *shell: str) -> dict[str, set[str]]:
        environment = {**os.environ, "MEMORY_HUB_HOME": str(self.home), "HOME": str(self.home)}
        environment["PATH"] = f"{self.home / 'bin'}:{environment['PATH']}"
        lines = "".join(f"{line}\n" for line in CASES)
        done = subprocess.run(
            shell, input=lines, capture_output=True, text=True, check=False, timeout=120, env=environment
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return dict(zip(CASES, map(set, map(str.split, done.stdout.splitlines())), strict=True))

    def test_bash_completes_names_options_and_values(self) -> None:
        self.assertEqual(self.offered("bash", "-c", IN_BASH), CASES)

    @needs("fish")
    def test_fish_completes_names_options_and_values(self) -> None:
        self.assertEqual(self.offered("fish", "--no-config", "-c", IN_FISH), CASES)

    @needs("zsh")
    def test_zsh_reads_its_script(self) -> None:
        script = subprocess.run([self.home / "bin/memory-hub", "completion", "zsh"], capture_output=True, check=True)
        subprocess.run(["zsh", "-n"], input=script.stdout, check=True, timeout=60)
