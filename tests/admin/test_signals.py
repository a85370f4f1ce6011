"""Badges, colours and sentences that say only what is true."""

from __future__ import annotations

import re
from pathlib import Path

from governance.rollback.schemas import RollbackMake
from governance.rollback.services import preview, roll_back
from memories.schemas.links import RelationCreate
from memories.services.relations import create_relation
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.admin.base import text_of
from tests.admin.deciding import PAGE, DecidingTestCase

STYLES = Path(__file__).parents[2] / "memoryhub" / "static" / "memoryhub"


class SignalTests(DecidingTestCase):
    def test_what_is_in_quarantine_is_not_shown_as_accepted(self) -> None:
        decision, memory = self.record("Use files"), self.write("A note", session="s-bad")
        later = self.record("Use one file", supersedes=[decision])
        with self.store(actor="owner", source="admin"):
            plan = {"actor": "agent"}
            token = preview(command=RollbackMake.model_validate(plan)).confirm_token
            roll_back(command=RollbackMake.model_validate({**plan, "confirm_token": token}))
        for page in (f"{PAGE}/?quarantine=inside", f"{PAGE}/{later}/change/"):
            html = self.page(page)
            self.assertIn("In quarantine, was accepted", html)
            self.assertNotIn("badge-accepted", html)
        for page in ("memories/memory/?quarantine=inside", f"memories/memory/{memory}/change/"):
            self.assertIn('badge-quarantined">In quarantine</span>', self.page(page))

    def test_the_overview_marks_what_awaits_review(self) -> None:
        with self.store():
            change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        self.write("A note")
        self.assertIn("Note Proposed", text_of(self.page()))

    def test_no_badge_is_struck_through(self) -> None:
        for path in STYLES.glob("*.css"):
            struck = re.findall(r"([^{}]+)\{[^}]*line-through", path.read_text())
            self.assertEqual([rule for rule in struck if "badge" in rule], [], path.name)

    def test_a_decision_with_a_related_memory_is_not_called_unrelated(self) -> None:
        decision, memory = self.record("Use files"), self.write("A note")
        with self.store():
            create_relation(command=RelationCreate(source=str(memory), relation="related_to", target=str(decision)))
        text = text_of(self.page(f"{PAGE}/{decision}/change/"))
        self.assertNotIn("No relations", text)
        self.assertIn("No related decisions yet.", text)

    def test_times_name_their_zone_if_it_is_not_the_viewers(self) -> None:
        self.write("A note")
        moment = r'<span class="date">[\d-]+ [\d:]+( UTC)?</span>'
        self.assertEqual(set(re.findall(moment, self.page("memories/memory/"))), {" UTC"})
        self.client.cookies["hub_time_zone"] = "Asia/Tokyo"
        self.assertEqual(set(re.findall(moment, self.page("memories/memory/"))), {""})
