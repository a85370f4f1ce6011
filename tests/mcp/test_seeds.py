from __future__ import annotations

import tempfile
from pathlib import Path

from memoryhub.core.tools import all_tools
from tests.mcp.client import McpTestCase
from tests.mcp.seeds import STORY, Values

KINDS = ("tool", "guideline", "knowledge")
VERBS = ("add", "update", "get", "list", "history", "deactivate")
# Tools in the documents, by their older names
NAMES = {
    "001": "write_memory update_memory delete_memory memories://get/ memories://list memories://search/".split(),
    "002": "turn.begin event.append turn.end memory.search context.pack decision.record decision.supersede "
    "audit.replay".split(),
    "003": [
        *(f"memory_{kind}_{verb}" for kind in KINDS for verb in VERBS),
        *"memory_org_create memory_org_list memory_project_create memory_project_list memory_project_get".split(),
        *"memory_session_start memory_session_end memory_session_list".split(),
        *"memory_tag_create memory_tag_list memory_tag_attach memory_tag_detach".split(),
        *"memory_relation_create memory_relation_list memory_relation_delete".split(),
        *"memory_query memory_context memory_conflicts memory_conflict_resolve".split(),
    ],
    "004": "memory_search memory_log_decision memory_log_commit memory_get_iteration memory_get_timeline "
    "memory_stats".split(),
}


class SeedTests(McpTestCase):
    tools_module = ""

    def test_every_call_gets_the_expected_answer(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        server = self.connect("--project", "alpha", cwd=folder)
        known: Values = {}
        for number, call in enumerate(STORY):
            with self.subTest(number=number, name=call.name):
                call.make(server, known)

    def test_the_story_has_every_call_of_each_document(self) -> None:
        for document, names in NAMES.items():
            made = [call.name for call in STORY if call.document == document]
            missing = [name for name in names if not any(call.startswith(name) for call in made)]
            self.assertEqual(missing, [], document)

    def test_the_story_has_every_older_name(self) -> None:
        calls = {call.name.replace(".", "_") for call in STORY}
        names = {name for tool in all_tools() for name in tool.aliases}
        self.assertEqual(names - calls, set())
