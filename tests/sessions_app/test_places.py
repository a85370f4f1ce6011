"""The project of a session is that in which it began, whatever folder a later event of its client names."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from memoryhub.config.identity import SETTINGS_FILE, bind_project, bound_folders
from memoryhub.core.errors import NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.session_places import FOLDER, SessionPlace, find_place, forget_old_places, note_place
from memoryhub.core.stores.store import list_projects
from sessions_app.hook_parser import parse_hook, place_event
from sessions_app.models import Session, SessionStatus
from sessions_app.services.capture import take_event
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase, make_git_folder


class PlaceTests(HubTestCase):
    def setUp(self):
        super().setUp()
        self.work = self.home / "work"
        self.alpha, self.gamma = (make_git_folder(self.work / name) for name in ("alpha", "gamma"))

    def send(self, event: str, folder: Path, *, session: str = "s1", client: str = "claude-code", **data: Any) -> str:
        parsed = parse_hook(client=client, event=event, data={"session_id": session, "cwd": str(folder), **data})
        project, placed = place_event(parsed, client=client, project=None)
        key = f"{event}-{session}-{json.dumps(data)}"
        take_event(event=placed, client=client, project=project, idempotency_key=key)
        return project

    def events(self, project: str) -> list[tuple[str, str]]:
        with self.store(project, create=False):
            return [(event.session_id, event.event_type) for event in RawEvent.objects.order_by("position")]

    def test_a_session_stays_in_the_project_in_which_it_began(self):
        nested, temporary = make_git_folder(self.alpha / "nested"), Path(tempfile.gettempdir())
        self.send("SessionStart", self.alpha, source="startup")
        for folder in (self.gamma, nested, temporary, Path.home(), self.work / "gone"):
            self.assertEqual(self.send("UserPromptSubmit", folder, prompt=f"In {folder}"), "alpha")
        self.send("SessionStart", self.gamma, source="resume")
        self.send("SessionEnd", self.gamma, reason="exit")
        self.assertEqual(list_projects(), ["alpha"])
        with self.store("alpha", create=False):
            self.assertEqual(Session.objects.get().status, SessionStatus.COMPLETED)
            self.assertEqual(Session.objects.get().directory, str(self.alpha))
        self.assertEqual(bound_folders("alpha"), [self.alpha])
        self.assertEqual(self.send("SessionStart", self.gamma, session="s2"), "gamma")

    def test_a_session_of_a_worktree_that_is_removed_ends_in_its_project(self):
        repository = Repository(self.work / "super")
        repository.commit("one")
        repository.git("worktree", "add", "-q", "../trees/one", "-b", "one")
        folder = self.work / "trees" / "one"
        self.send("SessionStart", folder)
        repository.git("worktree", "remove", "--force", str(folder))
        for event in ("UserPromptSubmit", "Stop", "SessionEnd"):
            self.assertEqual(self.send(event, folder, prompt="After the removal"), "super")
        self.assertEqual(list_projects(), ["super"])
        self.assertEqual(self.events("super")[-1], ("s1", "session.ended"))

    def test_the_root_that_the_client_names_decides_for_a_session_without_a_start(self):
        self.assertEqual(self.send("Stop", self.gamma, memory_hub_root=str(self.alpha)), "alpha")
        self.assertEqual(self.send("Stop", self.gamma), "alpha")

    def test_the_same_name_of_another_client_is_another_session(self):
        self.send("SessionStart", self.alpha)
        self.assertEqual(self.send("SessionStart", self.gamma, client="codex"), "gamma")

    def test_the_start_in_a_renamed_folder_names_the_project_that_it_may_have_had(self):
        self.send("SessionStart", self.alpha)
        shop = self.alpha.rename(self.work / "shop")
        parsed = parse_hook(client="claude-code", event="SessionStart", data={"session_id": "s2", "cwd": str(shop)})
        for key, answer in (("1", f"the folder of the project alpha, {self.alpha}, is gone"), ("2", "")):
            text = take_event(event=parsed, client="claude-code", project="shop", idempotency_key=key)
            self.assertIn(answer, text)
        self.assertNotIn("is gone", text)

    def test_a_folder_that_cannot_be_looked_at_is_no_project(self):
        for number, folder in enumerate((self.work / ("x" * 300), self.work / ("y" * 5_000))):
            with self.assertRaises(NotFound):
                self.send("SessionStart", folder, session=f"long-{number}")

    def test_events_without_a_session_have_no_place_in_common(self):
        note_place("claude-code", "", SessionPlace(str(self.alpha), "alpha"))
        self.assertIsNone(find_place("claude-code", ""))

    def test_no_event_makes_a_project_of_a_plain_folder(self):
        plain = self.work / "notes"
        plain.mkdir()
        for number, folder in enumerate((plain, Path(tempfile.gettempdir()), Path.home(), self.work / "gone")):
            with self.assertRaises(NotFound):
                self.send("SessionStart", folder, session=f"plain-{number}")
        self.assertEqual(list_projects(), [])

    def test_a_plain_folder_that_has_a_project_or_names_one_is_recorded(self):
        first, second = self.work / "notes", self.work / "more"
        for folder in (first, second):
            folder.mkdir()
        with self.assertRaisesRegex(NotFound, 'write project = "more" to .memory-hub.toml'):
            self.send("SessionStart", second)
        with self.store("notes"):
            bind_project("notes", first)
        (second / SETTINGS_FILE).write_text('project = "more"\n')
        self.assertEqual(self.send("SessionStart", first, session="s2"), "notes")
        self.assertEqual(self.send("SessionStart", second), "more")

    def test_a_commit_in_another_repository_is_not_one_of_the_session_s_project(self):
        repositories = [Repository(self.work / name) for name in ("one", "two")]
        self.send("SessionStart", repositories[0].folder)
        for repository in repositories:
            sha = repository.commit(f"Add to {repository.folder.name}")
            tool: Any = {
                "tool_input": {"command": "git commit -m Add"},
                "tool_response": {"stdout": f"[main {sha[:8]}] Add"},
            }
            self.send("PostToolUse", repository.folder, tool_name="Bash", **tool)
        types = [name for _, name in self.events("one")]
        self.assertEqual((types.count("command.run"), types.count("commit.recorded")), (2, 1))

    def test_notes_of_sessions_are_removed_after_a_time(self):
        self.send("SessionStart", self.alpha)
        [note] = (self.home / FOLDER).iterdir()
        forget_old_places()
        self.assertTrue(note.exists())
        os.utime(note, (0, 0))
        forget_old_places()
        self.assertFalse(note.exists())
        note.write_text("no note")
        self.assertEqual(self.send("UserPromptSubmit", self.gamma, prompt="x"), "gamma")
