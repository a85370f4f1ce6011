"""git starts no program for a repository: each way to make it, with a control in which plain git starts the program."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from typing import ClassVar
from unittest import TestCase, mock

from django.core.management import CommandError, call_command
from django.test import tag

import memoryhub
from memories.events import AnchorRecord
from memories.validity.anchors import anchors_of_text, edits_of_commits
from memories.validity.freshness import check
from memoryhub import __version__
from memoryhub.config.identity import identify_project
from memoryhub.core.autostart import module_command, module_environment
from memoryhub.core.errors import HubError
from sessions_app import git
from sessions_app.git.branches import (
    BranchWork,
    branch_states,
    dropped_commits,
    main_of,
    patches_of_branch,
    unchanged_files,
)
from sessions_app.git.ranges import authors_of_files, find_range, list_committed, read_committed
from sessions_app.git.worktree import branch_tip, working_tree_at
from sessions_app.hook_parser import find_commits, parse_hook
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase

# In settings and variables, these stand for the path of the program, and for a web server that asks for a password
PROGRAM, SERVER = "PROGRAM", "SERVER"
Settings = dict[str, str]
Prepare = Callable[[Repository, str], None]


@dataclass(frozen=True)
class Way:
    name: str
    # Plain git with these arguments starts the program
    control: tuple[str, ...]
    settings: Settings = field(default_factory=dict)
    # Prepares the repository with the path of the program
    prepare: Prepare | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    on_terminal: bool = False


def lacking_an_object(repository: Repository, _program: str) -> None:
    """A partial clone, which fetches absent objects from where its settings say."""
    blob = repository.git("rev-parse", "HEAD:code.py")
    (repository.folder / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    for name, value in {
        "core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "protocol.allow": "always", "protocol.ext.allow": "always", "protocol.file.allow": "always",
    }.items():  # fmt: skip
        repository.git("config", name, value)


def filtered(name: str, key: str) -> Prepare:
    def prepare(repository: Repository, program: str) -> None:
        repository.write(".gitattributes", f"code.py filter={name}\n".encode())
        # By hand, because `git config` does not write each of these names
        with (repository.folder / ".git/config").open("a") as config:
            config.write(f'[filter "{name}"]\n\t{key} = {program}\n\trequired = true\n')
        repository.write("code.py", b"a = 2\nb = 3\n")

    return prepare


def with_own_driver(repository: Repository, _program: str) -> None:
    repository.write(".gitattributes", b"*.py diff=own\n")


def signed(repository: Repository, _program: str) -> None:
    tree, parent = repository.git("rev-parse", "HEAD^{tree}"), repository.git("rev-parse", "HEAD")
    person = "Ann <ann@example.org> 1700000000 +0000"
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    text = f"tree {tree}\nparent {parent}\nauthor {person}\ncommitter {person}\n{signature}\n\nSigned\n"
    sha = repository.git("hash-object", "-t", "commit", "-w", "--stdin", input=text.encode())
    repository.git("reset", "-q", "--hard", sha)


def with_submodule(repository: Repository, program: str) -> None:
    inner = Repository(repository.folder.parent / "inner")
    inner.commit("one", a=b"1\n")
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.folder), "module")
    repository.commit("Add a module")
    module = Repository(repository.folder / "module")
    module.commit("two", a=b"2\n")
    repository.commit("Move the module")
    module.git("config", "diff.external", program)


def with_hook(folder: str) -> Prepare:
    def prepare(repository: Repository, program: str) -> None:
        hook = repository.folder / folder / "post-index-change"
        repository.write(f"{folder}/{hook.name}", f"#!/bin/sh\n{program}\n".encode())
        hook.chmod(0o700)
        repository.git("config", "core.hooksPath", str(hook.parent))
        os.utime(repository.folder / "code.py", (1, 1))  # git then rewrites the index

    return prepare


def with_own_git(repository: Repository, program: str) -> None:
    repository.write("git", f"#!/bin/sh\n{program}\n".encode())
    (repository.folder / "git").chmod(0o700)


LOG, PATCH, BLAME = ("log", "--numstat"), ("log", "-p", "--ext-diff", "--textconv"), ("blame", "code.py")
OTHERS = ("ls-files", "--others")
SSH = {"remote.origin.url": "ssh://x.test/y"}
MONITOR = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": PROGRAM}
# A filter whose name is not plain, or one that `git check-attr` prints for something else
FILTERS = ("plain", "a/b", "a:b", "a+b", "a.b", "set", "unset", "unspecified", "x" * 200)
FETCHES: list[tuple[str, Settings]] = [
    ("ext::", {"remote.origin.url": f"ext::{PROGRAM}"}),
    ("a program at the other end", {"remote.origin.url": "/", "remote.origin.uploadpack": PROGRAM}),
    ("ssh", {**SSH, "core.sshCommand": PROGRAM}),
    ("a proxy", {"remote.origin.url": "git://x.test/y", "core.gitProxy": PROGRAM}),
    (
        "a rewritten address",
        {"remote.origin.url": "https://x.test/", f"url.ext::{PROGRAM}.insteadOf": "https://x.test/"},
    ),
    ("a credential helper", {"remote.origin.url": SERVER, "credential.helper": f"!{PROGRAM}"}),
    ("a question for a password", {"remote.origin.url": SERVER, "core.askPass": PROGRAM}),
]
WAYS = [
    *(Way(f"fetch by {name}", LOG, settings, lacking_an_object) for name, settings in FETCHES),
    Way("fetch in blame", BLAME, FETCHES[0][1], lacking_an_object),
    *(Way(f"filter {name[:12]}", BLAME, {}, filtered(name, "clean")) for name in FILTERS),
    *(Way(f"filter process {name[:12]}", BLAME, {}, filtered(name, "process")) for name in FILTERS),
    Way("text conversion", PATCH, {"diff.own.textconv": PROGRAM}, with_own_driver),
    Way("text conversion in blame", BLAME, {"diff.own.textconv": PROGRAM}, with_own_driver),
    Way("diff of a type of files", PATCH, {"diff.own.command": PROGRAM}, with_own_driver),
    Way("external diff", PATCH, {"diff.external": PROGRAM}),
    Way("diff of a submodule", ("log", "-p"), {"diff.submodule": "diff"}, with_submodule),
    Way("signature", ("log",), {"log.showSignature": "true", "gpg.program": PROGRAM}, signed),
    Way("hook", ("status",), {}, with_hook(".git/hooks")),
    Way("hook in a tracked folder", ("status",), {}, with_hook("hooks")),
    Way("file monitor", OTHERS, {"core.fsmonitor": PROGRAM}),
    Way("alias", ("go",), {"alias.go": f"!{PROGRAM}"}),
    Way("editor", ("commit", "--amend"), {"core.editor": PROGRAM, "user.name": "Ann", "user.email": "a@x.test"}),
    Way("pager", ("log",), {"core.pager": PROGRAM}, on_terminal=True),
    Way("pager of a command", ("log",), {"pager.log": PROGRAM}, on_terminal=True),
    Way("variable of the diff", PATCH, variables={"GIT_EXTERNAL_DIFF": PROGRAM}),
    Way("variable of the pager", ("log",), variables={"GIT_PAGER": PROGRAM}, on_terminal=True),
    Way("variable of ssh", LOG, SSH, lacking_an_object, {"GIT_SSH_COMMAND": PROGRAM}),
    Way("variables of settings", OTHERS, variables=MONITOR),
    Way("relative folder of the PATH", ("log",), {}, with_own_git, {"PATH": f".{os.pathsep}{os.environ['PATH']}"}),
]  # fmt: skip


class _AsksForPassword(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Basic")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None: ...


def branch_off(repository: Repository) -> None:
    """Make a branch with another change of the same line."""
    blob = repository.git("hash-object", "-w", "--stdin", input=b"a = 1\nb = 4\n")
    tree = repository.git("mktree", input=f"100644 blob {blob}\tcode.py\n".encode())
    repository.git("branch", "side", repository.git("commit-tree", "-m", "side", "-p", "HEAD~1", tree))


@tag("attack")
class HostileRepositoryTestCase(TestCase):
    """A repository, and a program that leaves a mark when it is started."""

    server: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        server = HTTPServer(("127.0.0.1", 0), _AsksForPassword)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(server.shutdown)
        cls.server = f"http://127.0.0.1:{server.server_port}/"

    def prepared(self, way: Way) -> tuple[Repository, Path, dict[str, str]]:
        root = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        program, mark = root / "program", root / "started"
        program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
        program.chmod(0o700)
        repository = Repository(root / "alpha")
        repository.commit("one", **{"code.py": b"a = 1\nb = 2\n"})
        repository.commit("two", **{"code.py": b"a = 1\nb = 3\n"})
        branch_off(repository)
        if way.prepare:
            way.prepare(repository, str(program))
        for name, value in way.settings.items():
            text = value.replace(PROGRAM, str(program)).replace(SERVER, self.server)
            repository.git("config", name.replace(PROGRAM, str(program)), text)
        variables = {name: value.replace(PROGRAM, str(program)) for name, value in way.variables.items()}
        return repository, mark, variables


def run_plain_git(folder: Path, way: Way, variables: dict[str, str]) -> None:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "TERM": "xterm"}
    master, terminal = pty.openpty()
    try:
        subprocess.run(
            ["git", *way.control],
            cwd=folder,
            env={**os.environ, **own, **variables},
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
            stdout=terminal if way.on_terminal else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    finally:
        os.close(master)
        os.close(terminal)


def read_all(folder: Path, sha: str) -> None:
    """Call every function that runs git on a folder; what fails has been refused."""
    calls: list[Callable[[], object]] = [
        lambda: git.count_commits(folder),
        lambda: list(git.read_commits(folder)),
        lambda: git.read_commit(folder, "HEAD"),
        lambda: git.read_changes(folder, [sha], ["code.py", "module"]),
        lambda: git.list_files(folder),
        lambda: git.path_in_worktree(folder),
        lambda: git.top_of_worktree(folder),
        lambda: git.branch_work(folder),
        lambda: git.blame(folder, "code.py", b"a = 1\nb = 9\n"),
        lambda: compare_branches(folder),
        lambda: compare_files(folder),
        lambda: anchor_text(folder, sha),
    ]
    for call in calls:
        with suppress(HubError):
            call()


def anchor_text(folder: Path, sha: str) -> None:
    tree = working_tree_at(folder)
    if tree is not None:
        (folder / "new").mkdir(exist_ok=True)
        (folder / "new/code.py").write_text("b = 1\n")
        anchors = anchors_of_text("See code.py, new/code.py and `some_name`", tree, edits_of_commits(tree, [sha]))
        anchors.append(AnchorRecord(path="gone.py"))
        anchors_of_text("`some_name` is 1", tree)
        for anchor in anchors:
            check(anchor, tree, "0" * 40)


def compare_files(folder: Path) -> None:
    span = find_range(folder, "HEAD~1..HEAD")
    authors_of_files(span, "")
    for commit in (span.fork, span.head):
        listed = list_committed(span.top, commit, "", "")
        list(read_committed(span.top, list(listed.values())))


def compare_branches(folder: Path) -> None:
    tree = working_tree_at(folder)
    assert tree is not None
    side = branch_tip(tree, "side") or ""
    branch_states(tree, [BranchWork(side, "side"), BranchWork(tree.head, "side", has_edits=True), BranchWork("1" * 40)])
    dropped_commits(tree, [side])
    patches_of_branch(tree, side)
    unchanged_files(tree, [(side, "code.py")])
    main_of(tree)


@tag("attack")
class GitProgramsTests(HostileRepositoryTestCase):
    def test_a_clone_may_track_a_folder_that_git_takes_for_a_repository(self) -> None:
        repository, mark, _ = self.prepared(Way("", LOG, FETCHES[0][1], lacking_an_object))
        outer = Repository(repository.folder.parent / "outer")
        shutil.copytree(repository.folder / ".git", outer.folder / "sub", ignore=shutil.ignore_patterns("hooks"))
        sha = outer.commit("Add sub")
        clone = repository.folder.parent / "clone"
        outer.git("clone", "-q", str(outer.folder), str(clone))
        sub = clone / "sub"
        read_all(sub, repository.git("rev-parse", "HEAD"))
        # The folder belongs to the clone around it, as its name and its history
        self.assertEqual(identify_project(project=None, directory=sub), "outer")
        with self.assertRaisesRegex(HubError, "bare"):
            git.count_commits(sub)
        self.assertEqual([commit.sha for commit in git.read_commits(clone)], [sha])
        self.assertFalse(mark.exists(), "the program was started")
        run_plain_git(sub, Way("", LOG), {})
        self.assertTrue(mark.exists(), "the folder is no repository to git, so this test shows nothing")

    def test_a_working_tree_elsewhere_is_refused(self) -> None:
        repository, _, _ = self.prepared(Way("", LOG))
        repository.git("config", "core.worktree", "/etc")
        with self.assertRaisesRegex(HubError, "core.worktree"):
            git.top_of_worktree(repository.folder)

    def test_no_way_starts_a_program(self) -> None:
        for way in WAYS:
            with self.subTest(way.name):
                repository, mark, variables = self.prepared(way)
                sha = repository.git("rev-parse", "HEAD")
                with chdir(repository.folder), mock.patch.dict(os.environ, variables):
                    read_all(repository.folder, sha)
                self.assertFalse(mark.exists(), "the program was started")

    def test_a_branch_that_cannot_be_read_is_not_known(self) -> None:
        repository, mark, _ = self.prepared(Way("", LOG, FETCHES[0][1], lacking_an_object))
        (repository.folder / "code.py").unlink()  # git would read it in place of the object
        tree = working_tree_at(repository.folder)
        assert tree is not None
        work = BranchWork(repository.git("rev-parse", "side"), "side")
        self.assertEqual(branch_states(tree, [work])[work], "unknown")
        self.assertFalse(mark.exists(), "the program was started")
        sound, _, _ = self.prepared(Way("", LOG))
        tree = working_tree_at(sound.folder)
        assert tree is not None
        self.assertEqual(branch_states(tree, [work])[work], "unmerged")

    def test_plain_git_starts_each(self) -> None:
        for way in WAYS:
            with self.subTest(way.name):
                repository, mark, variables = self.prepared(way)
                run_plain_git(repository.folder, way, variables)
                self.assertTrue(mark.exists(), "this way starts nothing, so it shows nothing")


@tag("attack")
class DoorsTests(HostileRepositoryTestCase, HubTestCase):
    """What reads a repository unasked or by a command, with the worst of the ways."""

    def test_commands_and_hooks_start_nothing(self) -> None:
        repository, mark, _ = self.prepared(Way("", LOG, FETCHES[0][1], lacking_an_object))
        repository.write("notes.md", b"# Notes\n\nA gauge is read every hour.\n")
        output = f"[main {repository.git('rev-parse', '--short', 'HEAD')}] two"
        event = {
            "session_id": "s1", "cwd": str(repository.folder), "tool_name": "Bash", "tool_use_id": "1",
            "tool_input": {"command": "git commit -m two"}, "tool_response": {"stdout": output},
        }  # fmt: skip
        parsed = parse_hook(client="claude-code", event="PostToolUse", data=event)
        commits = find_commits(parsed)
        answers = StringIO()
        with chdir(repository.folder):
            for words in (["git", "."], ["markdown", "."]):
                call_command("import", *words, stdout=answers)
            with suppress(CommandError):
                call_command("blame", "code.py", stdout=answers)
        self.assertEqual([commit.message for commit in commits], ["two"])
        self.assertIn("imported 2 commits", answers.getvalue())
        self.assertFalse(mark.exists(), "the program was started")


@tag("attack")
class PythonModulesTests(TestCase):
    """The hub's own processes import nothing from the folder that they are started in."""

    def test_a_folder_with_the_names_of_modules_is_not_imported(self) -> None:
        root = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        folder, mark = root / "alpha", root / "imported"
        for name in ("json.py", "memoryhub/__init__.py", "memoryhub/cli.py", "django/__init__.py"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"open({str(mark)!r}, 'w')\n")
        words = module_command("memoryhub.cli", "--version")
        with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join([".", ""])):
            done = subprocess.run(words, cwd=folder, env=module_environment(), check=True, capture_output=True)
        self.assertIn(__version__, done.stdout.decode())
        self.assertFalse(mark.exists())
        plain = [word for word in words if word != "-P"]
        subprocess.run(plain, cwd=folder, env=module_environment(), check=False, capture_output=True)
        self.assertTrue(mark.exists(), "Python looks in no working folder, so this test shows nothing")

    def test_one_function_starts_modules(self) -> None:
        root = Path(memoryhub.__file__).parents[1]
        packages = [root / name for name in ("memoryhub", "sessions_app", "memories", "decisions", "governance")]
        places = [path for package in packages for path in package.rglob("*.py") if '"-m"' in path.read_text()]
        self.assertEqual([path.name for path in places], ["autostart.py"])
