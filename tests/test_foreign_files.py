"""A file of someone else's folder costs no reader much memory or time, whatever it is."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from memoryhub.core.foreign_files import holds, read_foreign
from tests.foreign_files import FILES, READERS, Case, faults_of
from tests.home import UNMEASURED
from tests.hook.client import HookTestCase, environment_of, folder, replayed, run_hook, spooled, wait_for_spooled
from tests.web.server import DEADLINE_SECONDS, ROOT, poll, serving


class ReadersTests(unittest.TestCase):
    def test_no_reader_hangs_or_takes_much_time_or_memory(self):
        command, environment = [sys.executable, "-m", "tests.foreign_files"], {**os.environ, **UNMEASURED}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        cases = [Case(**json.loads(line)) for line in done.stdout.splitlines()]
        self.assertEqual(len(cases), len(READERS) * len(FILES))
        faults = [f"{case.reader}: {case.file}: {fault}" for case in cases for fault in faults_of(case)]
        self.assertEqual(faults, [])


class ReadForeignTests(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = self.enterContext(folder())
        self.file = self.folder / "a"

    def refusal(self, path: str | Path, *, limit: int = 100, follows_links: bool = True) -> str:
        with self.assertRaises(OSError) as caught:
            read_foreign(path, limit=limit, follows_links=follows_links)
        return str(caught.exception.strerror)

    def test_a_file_of_just_the_limit_is_read_and_one_byte_more_refused(self):
        self.file.write_bytes(b"x" * 2_048)
        self.assertEqual(read_foreign(self.file, limit=2_048), b"x" * 2_048)
        self.assertEqual(self.refusal(self.file, limit=2_047), "it is larger than 1 KB")

    def test_a_file_that_grows_while_it_is_read_is_read_to_the_limit(self):
        # It says that it is empty
        self.assertEqual(Path("/proc/self/status").stat().st_size, 0)
        self.assertEqual(self.refusal("/proc/self/status", limit=64), "it is larger than 0 KB")
        self.file.write_bytes(b"")
        with (
            mock.patch.object(os, "read", side_effect=lambda _, count: b"x" * min(count, 7)) as read,
            self.assertRaises(OSError),
        ):
            read_foreign(self.file, limit=70)
        self.assertEqual(read.call_count, 11)

    def test_a_link_is_followed_where_the_caller_allows_it(self):
        (self.folder / "b").write_text("text")
        self.file.symlink_to("b")
        self.assertEqual(read_foreign(self.file), b"text")
        self.assertIn("symbolic links", self.refusal(self.file, follows_links=False))

    def test_no_descriptor_stays_open(self):
        os.mkfifo(self.file)
        before = len([*Path("/proc/self/fd").iterdir()])
        self.assertEqual(self.refusal(self.file), "it is not a file")
        self.assertEqual(self.refusal("a\0b"), "its name is not a file name")
        self.assertEqual(len([*Path("/proc/self/fd").iterdir()]), before)

    def test_only_a_plain_file_of_the_same_text_holds_it(self):
        self.file.write_text("text")
        link = self.folder / "link"
        link.symlink_to(self.file)
        answers = [holds(self.file, "text"), holds(self.file, "tex"), holds(self.file, "text "), holds(link, "text")]
        self.assertEqual(answers, [True, False, False, False])


# What a clone can have instead of a file that git or the hub reads
HOSTILE = ("link to /dev/zero", "named pipe", "1 GB of holes")
REFUSED = (".memory-hub.toml", "1 GB of holes")
PLACES = (".memory-hub.toml", ".git/config", ".git/commondir")


class HooksTests(HookTestCase):
    """The real hook process in hostile repositories, and a command of another project."""

    def setUp(self) -> None:
        super().setUp()
        # Settings that can't be read are an error of their own, the last test below
        cases = [(place, file) for place in PLACES for file in HOSTILE if (place, file) != REFUSED]
        self.repositories = [self.repository(place, file, f"r{number}") for number, (place, file) in enumerate(cases)]

    def repository(self, place: str, file: str, name: str) -> Path:
        repository = self.work.parent / name
        for part in ("objects", "refs"):
            (repository / ".git" / part).mkdir(parents=True)
        (repository / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        FILES[file](repository / place)
        return repository

    def prompt(self, repository: Path, text: str) -> None:
        data = {"session_id": repository.name, "cwd": str(repository), "prompt": text}
        done = run_hook(self.home, "UserPromptSubmit", data)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def search_in_alpha(self) -> None:
        subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "search", "anything", "--project", "alpha"],
            cwd=self.work, env=environment_of(self.home), capture_output=True, check=True, timeout=DEADLINE_SECONDS,
            preexec_fn=_with_little_memory,
        )  # fmt: skip

    def test_without_a_hub_events_of_hostile_repositories_arrive(self):
        self.prompt(self.work, "Of alpha")
        for repository in self.repositories:
            self.prompt(repository, f"Of {repository.name}")
        self.assert_arrived()

    def test_events_that_wait_in_the_spool_burden_no_command_of_another_project(self):
        data = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {}}
        for repository in [*self.repositories, self.work]:
            place = {"session_id": repository.name, "cwd": str(repository)}
            self.assert_harmless(run_hook(self.home, "PostToolUse", {**data, **place}))
        wait_for_spooled(self.home, len(self.repositories) + 1)
        self.search_in_alpha()
        self.assertEqual([event["event_type"] for event in replayed(self.home, "alpha")][-1], "command.run")
        waiting = [json.loads(line) for path in self.spool("*.taken") for line in path.read_text().splitlines()]
        self.assertEqual(len(waiting), len(self.repositories))
        self.assertEqual(self.spool("rejected/*"), [])

    def test_a_running_hub_takes_events_of_hostile_repositories(self):
        with serving("--no-worker", home=self.home):
            for repository in [*self.repositories, self.work]:
                self.prompt(repository, f"Of {repository.name}")
            poll(lambda: not spooled(self.home), what="an empty spool")
            self.assert_arrived()

    def test_settings_that_are_too_large_are_refused_in_one_sentence_and_the_event_set_aside_at_once(self):
        repository = self.repository(*REFUSED, "refused")
        self.prompt(self.work, "Of alpha")
        data = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "ls"}, "cwd": str(repository)}
        self.assert_harmless(run_hook(self.home, "PostToolUse", data))
        wait_for_spooled(self.home, 1)
        self.search_in_alpha()
        (path,) = self.spool("rejected/*")
        reason = f"{repository}/.memory-hub.toml cannot be read: it is larger than 64 KB; fix or remove it"
        self.assertEqual(json.loads(path.read_text())["reason"], reason)
        self.assertEqual(self.spool("*.jsonl*"), [])

    def assert_arrived(self) -> None:
        for repository in [*self.repositories, self.work]:
            prompts = [
                event["payload"]["content"]
                for event in replayed(self.home, repository.name)
                if event["event_type"] == "message.user"
            ]
            self.assertEqual(prompts, [f"Of {repository.name}"])

    def spool(self, pattern: str) -> list[Path]:
        return sorted((self.home / "spool").glob(pattern))


def _with_little_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
