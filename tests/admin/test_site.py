"""What all pages of the admin share: shell, overview, palette, isolation; the pages of secrets and imports."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.test import SimpleTestCase

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.rollback.schemas import RollbackMake
from governance.rollback.service import preview, roll_back
from memories.models import Memory
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas.links import RelationCreate
from memories.services.links import create_relation
from memoryhub.core import clock
from memoryhub.core.admin import cells
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import LeftOutRecord, MemoryRecord, Record, SessionRecord
from memoryhub.web.signin import ensure_owner
from sessions_app.schemas import SessionStart, SettingsChange
from sessions_app.services import start_session
from sessions_app.services.past_sessions import PastTurn
from sessions_app.services.profile import change_settings
from tests.admin.base import DECISIONS, AdminTestCase, DecidingTestCase, text_of
from tests.core.test_sanitize import TOKENS


class OverviewTests(AdminTestCase):
    def test_an_empty_project_says_what_to_do_and_leads_to_the_others(self) -> None:
        links = ('href="/p/beta/admin/"', '<a href="/p/alpha/admin/" class="here" aria-current="page">')
        self.assert_shows(self.page(), "First steps", "memory-hub import markdown", *links)

    def test_shows_how_the_project_stands_with_a_chart_and_its_table(self) -> None:
        before = clock.now() - timedelta(days=3)
        with clock.frozen(before):
            self.write("A choice", type="decision")
        self.write("A note", "text of the note")
        with self.store():
            start_session(command=SessionStart(purpose="Build the admin"))
        page = self.page()
        totals = ("2 memories", "1 session, 1 active", "3 events", "3 events in the past 30 days", "Show as a table")
        self.assert_shows(text_of(page), *totals, "Build the admin", "A choice", "A note")
        self.assertRegex(text_of(page), rf"{before.date()} 1 ")
        names = 'aria-labelledby="activity-svg-title activity-svg-desc"'
        self.assertRegex(page, rf'<svg class="activity"[^>]* role="group" {names}')


class CellTests(SimpleTestCase):
    def test_times_have_at_most_two_units(self) -> None:
        now = clock.now()
        ages = {
            3: "just now",
            60: "1 minute ago",
            7200: "2 hours ago",
            86_400 * 400: "1 year ago",
            -3600: "in the future",
        }
        with clock.frozen(now):
            for seconds, words in ages.items():
                self.assertEqual(cells.ago(now - timedelta(seconds=seconds)), words)
        for seconds, words in {8: "8 s", 300: "5 min", 3660: "1 h 1 min", 90_000: "1 d 1 h"}.items():
            self.assertEqual(cells.lasted(now, now + timedelta(seconds=seconds)), words)

    def test_every_cell_escapes_its_text(self) -> None:
        attack = '"><script>'
        for html in (
            *(cell(attack) for cell in (cells.badge, cells.event_badge, cells.code)),
            cells.link("/", attack),
            cells.tag_links([attack], ""),
        ):
            self.assertNotIn("<script>", html)


class NavigationTests(AdminTestCase):
    def test_the_navigation_leads_with_five_and_has_the_others_under_more(self) -> None:
        words = ("Overview Inbox Memories Decisions Sessions", "Hub Go to… Projects Help More Governance Log Settings")
        self.assert_shows(" ".join(text_of(self.page("")).split()), *words)
        self.assert_shows(self.page(""), '<details class="nav-more">')
        self.assert_shows(self.page("settings/"), '<details class="nav-more" open>')
        self.assert_shows(text_of(self.page("memories/knowledge/")), "All memories Facts Search Tags")
        self.assert_shows(text_of(self.find_page("facts")), "Facts alpha · Memories")

    def find_page(self, typed: str) -> str:
        return self.client.get("/find", {"q": typed, "from": "/p/alpha/admin/", "fragment": ""}).content.decode()

    def test_the_shell_lists_the_pages_of_the_section_here_and_in_the_hub(self) -> None:
        section = "Memories All memories Search Tags Context packs Decisions"
        self.assert_shows(text_of(self.page("memories/tag/")), section, lacks=("Sessions Turns", "Facts"))
        self.assert_shows(text_of(self.page("sessions_app/turn/")), "Sessions Sessions Turns Iterations Commits")
        self.assert_lacks(text_of(self.client.get("/global/admin/").content.decode()), "Decisions Sessions")
        for path in ("/", "/jobs", "/help/index.md"):
            page = self.client.get(path).content.decode()
            self.assert_shows(page, 'aria-label="Pages of the hub"', 'action="/find"', where=path)
        self.client.logout()
        self.assert_lacks(self.client.get("/admin/login/").content.decode(), 'id="nav"')


class HomeTests(AdminTestCase):
    def test_it_shows_what_happened_in_all_projects_and_what_is_pending(self) -> None:
        self.write("The SMS gateway takes 20 seconds")
        with self.store("beta"):
            record_decision(command=DecisionRecord(title="Warn by SMS", chosen="SMS"))
            change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        self.write("A proposal", project="beta")
        self.assert_shows(
            text_of(self.client.get("/").content.decode()),
            *("alpha Memories 1 Decisions 0", "beta Memories 1 Decisions 1", "1 memory needs review"),
            *("Warn by SMS Decision beta", "The SMS gateway takes 20 seconds Memory alpha"),
        )


class PaletteTests(AdminTestCase):
    def find(self, typed: str, **query: str) -> str:
        return self.client.get("/find", {"q": typed, **query}).content.decode()

    def test_entries_of_all_projects_are_found_by_a_part_of_their_title_or_by_number(self) -> None:
        first = self.write("The SMS gateway takes 20 seconds")
        second = self.write("Warn by SMS", project="beta")
        places = {"alpha": first, "beta": second}
        pages = [f"/p/{project}/admin/memories/memory/{number}/change/" for project, number in places.items()]
        self.assert_shows(self.find("sm"), *pages)
        self.assert_lacks(self.find("SMS gateway"), "Warn by SMS")
        self.assert_shows(self.find(f"#{first}"), "The SMS gateway")

    def test_items_are_picked_from_the_current_project_by_type_and_by_a_part_of_the_title(self) -> None:
        memory = self.write("Warn by SMS first")
        self.write("Warn by SMS", project="beta")
        with self.store():
            decision = record_decision(command=DecisionRecord(title="Warn by SMS and mail", chosen="both")).id
        cases: tuple[tuple[dict[str, str], list[int]], ...] = (
            ({"q": "by sms"}, [decision, memory]),
            ({"q": "by sms", "of": "decision"}, [decision]),
            ({"q": "sms", "of": "nonsense"}, [decision, memory]),
            *(({"q": typed}, []) for typed in ("", "nothing of it", "%")),
        )
        for query, ids in cases:
            page = self.client.get(self.address("pick/"), query).content.decode()
            self.assertEqual([int(number) for number in re.findall(r'data-number="(\d+)"', page)], ids, query)

    def test_the_current_projects_entries_pages_and_actions_come_first(self) -> None:
        self.write("A note")
        self.write("A note", project="beta")
        page = self.find("note", **{"from": "/p/beta/admin/memories/tag/", "fragment": "1"})
        self.assertLess(page.index("/p/beta/"), page.index("/p/alpha/"))
        self.assert_lacks(page, "<html")
        self.assert_shows(self.find("tags", **{"from": "/p/beta/admin/"}), "/p/beta/admin/memories/tag/")
        self.assert_shows(self.find("write", **{"from": "/p/beta/admin/"}), "Write a memory")
        self.client.force_login(add_person(command=PersonAdd(name="reader", role="viewer")))
        self.assert_lacks(self.find("", **{"from": "/p/alpha/admin/"}), "Redact a text", "New project", "People")

    def test_wildcards_umlauts_and_odd_input_are_text(self) -> None:
        self.write("100 % of_them")
        for typed in ("100 %", "of_", "!"):
            self.assertEqual(self.client.get("/find", {"q": typed}).status_code, 200, typed)
        self.assert_shows(self.find("0 %"), "100 % of_them")
        self.assert_lacks(self.find("of%them"), "100 % of_them")
        self.assert_shows(self.find("9" * 300), "No results")
        self.write("Ärger über den Ölstand", "another text")
        for typed in ("ärger", "Ärger", "ölstand", "ÜBER"):
            self.assert_shows(self.find(typed), "Ärger über den Ölstand", where=typed)
        self.delete(self.write("Short-lived", "a third text"))
        self.assert_lacks(self.find("short"), "Short-lived")


class FirstStepsTests(AdminTestCase):
    def test_the_steps_follow_what_happened(self) -> None:
        waiting = "Waiting for its first call. Run one of these in the project’s folder Claude Code"
        self.assert_shows(text_of(self.page()), "First steps 0 of 4", waiting)
        memory = self.write("The port is 8321")
        done = ("First steps 2 of 4", "agent made the first call.", "“The port is 8321”")
        self.assert_shows(text_of(self.page()), *done)
        with self.store("alpha"):
            record_decision(command=DecisionRecord(title="Use WAL", chosen="WAL", impact="low"))
            review_memory(command=ReviewVerdict(id=memory, verdict="rejected", reason="wrong"))
        self.assert_lacks(text_of(self.page()), "First steps")
        self.client.post("/first-steps/beta/hide")
        self.assert_lacks(text_of(self.page(project="beta")), "First steps")
        with self.store("gamma"):
            pass
        self.assert_shows(text_of(self.page(project="gamma")), "First steps 0 of 4")

    def test_the_sample_project_is_loaded_once_and_not_by_a_reader(self) -> None:
        self.client.force_login(add_person(command=PersonAdd(name="reader", role="viewer")))
        self.assert_lacks(self.page(), "Load the sample project")
        self.assertEqual(self.client.post("/sample").status_code, 403)
        self.client.force_login(ensure_owner())
        self.assert_shows(self.page(), "Load the sample project")
        answer = self.client.post("/sample", follow=True)
        self.assert_shows(answer.content.decode(), "Tidewatch (sample)")
        self.assert_lacks(self.page(), "Load the sample project")
        self.assert_shows(self.client.post("/sample", follow=True).content.decode(), "already exists")


class SignalTests(DecidingTestCase):
    def test_what_is_in_quarantine_is_not_shown_as_accepted(self) -> None:
        decision, memory = self.record("Use files"), self.write("A note", session="s-bad")
        later = self.record("Use one file", supersedes=[decision])
        with self.store(actor="owner", source="admin"):
            token = preview(command=RollbackMake(actor="agent")).confirm_token
            roll_back(command=RollbackMake(actor="agent", confirm_token=token))
        for page in (f"{DECISIONS}/?quarantine=inside", f"{DECISIONS}/{later}/change/"):
            self.assert_shows(self.page(page), "In quarantine, was accepted", lacks=("badge-accepted",))
        for page in ("memories/memory/?quarantine=inside", f"memories/memory/{memory}/change/"):
            self.assert_shows(self.page(page), 'badge-quarantined">In quarantine</span>')

    def test_no_badge_is_struck_through(self) -> None:
        for path in (Path(__file__).parents[2] / "memoryhub/static/memoryhub").glob("*.css"):
            rules = re.findall(r"([^{}]+)\{[^}]*line-through", path.read_text())
            self.assertEqual([rule for rule in rules if "badge" in rule], [], path.name)

    def test_a_related_memory_and_what_awaits_review_are_marked(self) -> None:
        self.configure(review_policy="all")
        decision, memory = self.record("Use files"), self.write("A note")
        self.assert_shows(text_of(self.page()), "Memory Proposed")
        with self.store():
            create_relation(command=RelationCreate(source=str(memory), relation="related_to", target=str(decision)))
        text = text_of(self.page(f"{DECISIONS}/{decision}/change/"))
        self.assert_shows(text, "No related decisions yet.", lacks=("No relations",))


SECRETS = "secrets/"
RULES = f"{SECRETS}?part=rules"
TOKEN = TOKENS["npm-token"]


def rules(*typed: dict[str, str]) -> dict[str, str]:
    fields = {"rule-TOTAL_FORMS": str(len(typed)), "rule-INITIAL_FORMS": "0", "text": "", "allow": ""}
    return fields | {
        f"rule-{number}-{name}": value for number, each in enumerate(typed) for name, value in each.items()
    }


class SecretsPageTests(AdminTestCase):
    def test_a_text_is_tried_and_what_would_go_is_marked_with_its_rule_and_origin(self):
        html = self.post(SECRETS, **rules() | {"text": f"Use {TOKEN} <private>quietly</private>"})
        self.assert_shows(html, f">{TOKEN}</mark>", "2 secrets found", "Memory Hub (MIT)")
        self.assertRegex(html, r"Use \[REDACTED:npm-token:[0-9a-f]{4}\]")
        self.assert_lacks(self.page(SECRETS), TOKEN)
        self.assert_shows(self.post(SECRETS, text=TOKEN), f">{TOKEN}</mark>")
        html = self.post(SECRETS, **rules({"id": "badge", "pattern": "ACME-[0-9]{6}"}) | {"text": "badge ACME-123456"})
        self.assert_shows(html, ">ACME-123456</mark>")
        html = self.post(SECRETS, **rules({"id": "badge", "pattern": "ACME-("}) | {"do": "save"})
        self.assert_shows(html, "is not a valid RE2 pattern: missing )", 'value="ACME-("')
        self.assert_lacks(self.page(RULES), 'value="badge"')

    def test_rules_and_what_is_no_secret_are_saved_for_this_project_alone(self):
        typed = {"id": "badge", "pattern": "ACME-[0-9]{6}", "keywords": "acme, other", "description": "A badge"}
        self.assert_shows(self.post(SECRETS, **rules(typed) | {"do": "save", "allow": f"{TOKEN}\n\n"}), "were saved")
        self.assert_shows(self.page(RULES), 'value="badge"', 'value="acme, other"', f">\n{TOKEN}</textarea>")
        self.assertEqual(self.memory(self.write("A", f"ACME-123456 {TOKEN}")).content[-len(TOKEN) :], TOKEN)
        self.assert_lacks(self.memory(self.write("B", "ACME-123456")).content, "ACME-123456")
        other = self.write("A", f"ACME-123456 {TOKEN}", project="beta")
        self.assertRegex(self.memory(other, "beta").content, r"^ACME-123456 \[REDACTED:npm-token:[0-9a-f]{4}\]$")
        self.assert_lacks(self.page(RULES, project="beta"), 'value="badge"')

    def test_the_rule_pack_is_searched_by_all_words(self):
        rule = ("<code>shippo-api-token</code>", "gitleaks 8.30.1, shippo-api-token (MIT)")
        self.assert_shows(self.page(SECRETS, q="shippo token gitleaks"), *rule, lacks=("<code>npm-token</code>",))
        self.assert_shows(self.page(SECRETS, q="github zzzz"), "No rule contains all of these words.")


RECORDS: list[Record] = [
    MemoryRecord("a", "Buoy <b>", "North of the pier.", tags=("sea",), created=datetime(2024, 3, 1, tzinfo=UTC)),
    MemoryRecord("b", "Pier", "Closed in winter.", kind="guideline", tags=("sea",)),
    SessionRecord("s", "Chart", (PastTurn("Where is the buoy?", "North."),)),
    LeftOutRecord("c", "it is deleted"),
]


class ImportsPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.assert_shows(self.page("imports/"), "Nothing was imported yet")
        with self.store("alpha", actor="maya", source="cli"):
            (report,) = Importer("tool", "alpha").run(RECORDS, place="/data/tool.db")
        assert report.batch
        self.batch = report.batch
        self.path = f"imports/{self.batch}/"

    def test_the_list_and_its_page_have_what_was_gained(self) -> None:
        row = rf"#{self.batch} tool .* maya 2 new, 1 session, 1 left out /data/tool.db"
        self.assertRegex(text_of(self.page("imports/")), row)
        self.assert_shows(
            text_of(self.page(self.path)),
            *("2 memories, written 2024-03-01 to", "1 session with 1 turn", "Tags: sea 2", "Beside it: 1 left out."),
            f"memory-hub memtest --write --from-import {self.batch}",
        )
        self.assertNotIn(b"Buoy <b>", self.client.get(self.address(self.path)).content)
        summary = "Imported from tool: 2 memories, 1 session with 1 turn, back to 2024-03-01"
        self.assert_shows(text_of(self.page()), summary)

    def test_an_import_is_undone_as_it_was_previewed(self) -> None:
        html = self.page(self.path)
        self.assert_shows(text_of(html), "1 session, 1 turn, 2 memories")
        (token,) = re.findall(r'name="token" value="(\w+)"', html)
        self.assert_shows(self.post(self.path, token="0" * 16), "changed since the preview")
        after = text_of(self.post(self.path, token=token))
        self.assert_shows(after, f"Import #{self.batch} is undone", "This import was undone")
        with self.store("alpha"):
            self.assertFalse(Memory.objects.exists())
        self.assert_shows(self.post(self.path, token=token), "undone already")
        self.assert_lacks(self.page(), "Imported from tool")

    def test_only_owners_undo_and_unknown_numbers_are_not_found(self) -> None:
        self.page("imports/9999/", status=404)
        self.client.force_login(add_person(command=PersonAdd(name="vera", role="viewer")))
        self.assert_shows(self.page(self.path), "Only owners can undo imports.")
        self.assertEqual(self.client.post(self.address(self.path), {"token": "x"}).status_code, 403)
