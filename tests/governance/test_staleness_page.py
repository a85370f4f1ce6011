from __future__ import annotations

from datetime import timedelta
from unittest import TestCase

from decisions.models import Decision
from governance.admin.staleness import patch
from governance.models import Affirmation
from memories.models import Memory
from memoryhub.core import clock
from memoryhub.registry.people import PersonAdd, add_person
from tests.admin.base import AdminTestCase, text_of

PAGE = "governance/affirmation/"


class PageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        links = [{"uri": "src/", "type": "governs"}]
        self.guideline = self.write("Validate <at> the edge", resource_links=links, kind="guideline")
        ends = {"valid_until": clock.to_text(clock.now() - timedelta(days=3))}
        self.fact = self.write("The port is 8321", kind="knowledge", attributes=ends)
        self.write("Beta's own", project="beta", kind="knowledge", attributes=ends)
        self.decide_and_commit()

    def decide_and_commit(self) -> None:
        from decisions.schemas import DecisionRecord
        from decisions.services import record_decision
        from sessions_app.schemas import CommitRecord
        from sessions_app.services import record_commits

        files = [{"path": "src/auth.py", "insertions": 3, "deletions": 1}]
        made = {"message": "Shorten <tokens>", "author": "Bo", "committed_at": clock.now(), "files": files}
        with self.store("alpha"):
            choice = DecisionRecord(title="Sign tokens", chosen="HMAC", files=["src/auth.py"], impact="high")
            self.decision = record_decision(command=choice).id
            record_commits(commits=[CommitRecord.model_validate({"sha": "a" * 40, **made})])

    def test_one_thing_is_shown_at_a_time_with_why_and_what_changed(self):
        first = self.page(PAGE)
        self.assertIn("The port is 8321", text_of(first))
        self.assertRegex(text_of(first), r"1 of 3 .* It was valid until")
        shown = text_of(self.page(f"{PAGE}{self.decision}/"))
        self.assertRegex(shown, r"Sign tokens Decision High impact .* A commit changed a file that it governs .* HMAC")
        self.assertRegex(shown, r"Shorten aaaaaaaaaa Bo .* src/auth.py \+3 −1")
        self.assertIn("No diff", shown)
        raw = self.client.get(self.address(f"{PAGE}{self.decision}/")).content
        self.assertIn(b"Shorten &lt;tokens&gt;", raw)
        self.assertNotIn("Beta's own", text_of(first) + shown)

    def test_affirming_leads_to_the_next_and_the_last_leaves_nothing(self):
        left = text_of(self.post(f"{PAGE}{self.fact}/affirm/"))
        self.assertIn(f"Confirmed #{self.fact} “The port is 8321”.", left)
        self.assertIn("1 of 2", left)
        self.assertIsNone(self.memory(self.fact).valid_until)
        self.post(f"{PAGE}{self.guideline}/affirm/", reason="read it")
        self.assertIn("Nothing to recheck", text_of(self.post(f"{PAGE}{self.decision}/affirm/")))
        with self.store("alpha"):
            self.assertEqual(Affirmation.objects.get(entity_id=self.guideline).reason, "read it")

    def test_a_time_that_is_none_is_refused_and_one_to_come_is_kept(self):
        self.assertIn("Enter a time such as", self.post(f"{PAGE}{self.fact}/affirm/", valid_until="soon"))
        self.assertIn("is in the past", self.post(f"{PAGE}{self.fact}/affirm/", valid_until="2001-01-01"))
        self.post(f"{PAGE}{self.fact}/affirm/", valid_until="2099-12-31")
        ends = self.memory(self.fact).valid_until
        self.assertEqual(str(ends)[:10], "2099-12-31")

    def test_retiring_deletes_a_memory_and_deprecates_a_decision(self):
        self.assertIn(f"Deleted #{self.guideline}", self.post(f"{PAGE}{self.guideline}/retire/", reason="gone"))
        self.assertIn(f"Deprecated #{self.decision}", self.post(f"{PAGE}{self.decision}/retire/"))
        with self.store("alpha"):
            self.assertEqual(Decision.objects.get(id=self.decision).status, "deprecated")
            self.assertIsNotNone(Memory.objects.get(id=self.guideline).deleted_at)
        self.assertIn("is not stale", self.post(f"{PAGE}{self.decision}/retire/"))

    def test_what_does_not_wait_leads_to_the_queue(self):
        self.assertEqual(self.client.get(self.address(f"{PAGE}999/")).status_code, 302)
        self.assertEqual(self.client.get(self.address(f"{PAGE}{self.fact}/affirm/")).status_code, 405)

    def test_a_viewer_sees_it_and_changes_nothing(self):
        self.client.force_login(add_person(command=PersonAdd(name="vic", role="viewer")))
        shown = self.page(f"{PAGE}{self.fact}/")
        self.assertIn("The port is 8321", shown)
        self.assertNotIn("Still valid <kbd>", shown)
        for act in ("affirm", "retire"):
            self.assertEqual(self.client.post(self.address(f"{PAGE}{self.fact}/{act}/")).status_code, 403)
        self.assertIn("1 of 3", text_of(self.page(PAGE)))

    def test_the_navigation_says_how_much_waits(self):
        self.assertIn("Inbox 3 pending", text_of(self.page(PAGE)))
        self.assertIn("Inbox 3 pending", text_of(self.page()))
        self.assertIn("3 items need rechecking", text_of(self.page()))

    def test_a_thing_says_on_its_own_page_that_it_waits(self):
        page = self.page(f"decisions/decision/{self.decision}/change/")
        self.assertIn("Needs recheck A commit changed a file that it governs.", text_of(page))
        self.assertIn(f"{PAGE}{self.decision}/", page)

    def test_the_number_of_queries_does_not_grow_with_the_queue(self):
        before = self.queries_of(f"{PAGE}{self.guideline}/")
        for number in range(12):
            self.write(f"Guide {number}", resource_links=[{"uri": "src/", "type": "governs"}], content=f"text {number}")
        with self.store("alpha"):
            from sessions_app.schemas import CommitRecord
            from sessions_app.services import record_commits

            files = [{"path": "src/auth.py"}]
            made = {"message": "Again", "committed_at": clock.now(), "files": files}
            record_commits(commits=[CommitRecord.model_validate({"sha": "b" * 40, **made})])
        self.assertIn("of 15", text_of(self.page(f"{PAGE}{self.decision}/")))
        self.assertLessEqual(self.queries_of(f"{PAGE}{self.guideline}/"), before)


class PatchTests(TestCase):
    def test_each_file_has_a_part_and_each_line_says_what_became_of_it(self):
        shown = patch(
            "diff --git a/src/a b.py b/src/a b.py\nindex 1..2 100644\n--- a/src/a b.py\n+++ b/src/a b.py\n"
            "@@ -1,2 +1,2 @@ def <f>\n same\n-- gone\n+<script>\n\\ No newline at end of file\n"
            "diff --git a/new.py b/new.py\nnew file mode 100644\nBinary files /dev/null and b/new.py differ\n"
            "… 3 more lines"
        )
        self.assertEqual(shown.count("<h4"), 2)
        self.assertIn('<h4 class="patch-file">src/a b.py</h4>', shown)
        self.assertIn('<span class="line-removed">-- gone\n</span>', shown)
        self.assertIn('<span class="line-added">+&lt;script&gt;\n</span>', shown)
        self.assertIn("new file mode", shown)
        self.assertIn("3 more lines", shown)
        self.assertNotIn("index 1", shown)
        self.assertNotIn("+++", shown)

    def test_what_is_no_diff_shows_nothing(self):
        self.assertEqual(patch(""), "")
