"""The inbox, the review queue and conflicts: what waits for a person, and their verdicts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from unittest import mock

from governance.inbox import InboxItem, InboxItemType, count_entries, open_entries, with_texts
from governance.redaction.copies import Look
from memories.events import Verdict
from memories.models import Conflict
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.services import update_memory, write_memory
from memoryhub.registry.people import PersonAdd, add_person
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from tests.admin.base import AdminTestCase, text_of

INBOX = "inbox/"
# How many items a page has in these tests
MOST = 6
LONG_AGO = "2020-01-01T00:00:00Z"


class InboxTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.disputed = self.write("How we retry", "Retry three times.\n\nWait.\n")
        for text in ("Retry five times.\n\nWait.\n", "Retry three times.\n\nWait a minute.\n"):
            with self.store(actor="codex", source="mcp", session_id="fix"):
                result = update_memory(command=MemoryUpdate(id=self.disputed, base_version=1, content=text))
        assert result.conflict
        self.conflict = result.conflict
        self.expired = self.write("Freeze until spring", kind="knowledge", attributes={"valid_until": LONG_AGO})
        self.configure(review_policy="all")
        self.first = self.write("Use tabs", "In every file.", session="fix")
        self.second = self.write("Name the tests", "By what they show.", session="later")
        self.third = self.write("Sort the imports", "With the linter.", session="later")

    def values(self, *ids: int) -> list[str]:
        return [f"proposal-{memory_id}-1" for memory_id in ids]

    def give(self, verdict: str, *values: str) -> str:
        page = self.client.post(self.address(f"{INBOX}verdicts/"), {"verdict": verdict, "entry": values}, follow=True)
        return text_of(page.content.decode())

    def review_of(self, *ids: int) -> list[str]:
        return [str(self.memory(memory_id).review) for memory_id in ids]

    def path_of(self, entry: InboxItem) -> str:
        return {
            InboxItemType.PROPOSAL: f"memories/memory/review/{entry.id}/",
            InboxItemType.CONFLICT: f"memories/conflict/{entry.id}/change/",
            InboxItemType.RECHECK: f"governance/affirmation/{entry.id}/",
        }[entry.type]

    def test_a_row_tells_kind_text_and_reason_below_the_purpose_of_its_session(self) -> None:
        with self.store(actor="agent", source="mcp"):
            start_session(command=SessionStart(session_id="planned", purpose="Settle the style of the code"))
        proposal = self.write("Wrap long lines", "At 120 characters.", kind="guideline", session="planned")
        page = self.page(INBOX)
        row = re.search(rf'<li id="inbox-proposal-{proposal}".*?</li>', page, re.DOTALL)
        assert row
        for part in ("Wrap long lines", "At 120 characters.", "Proposal", "Guideline", "Policy"):
            self.assertIn(part.lower(), text_of(row[0]).lower())
        self.assert_shows(page, "Settle the style of the code", "No session")

    def test_an_item_that_is_erased_while_it_is_read_gives_a_message(self) -> None:
        reading = "memories.admin.comparing.plain_versions_of"
        for path in (f"{QUEUE}{self.first}/", f"memories/conflict/{self.conflict}/change/"):
            with mock.patch(reading, lambda ids: {memory_id: [] for memory_id in ids}):
                answer = self.client.get(self.address(path), follow=True)
            self.assert_shows(text_of(answer.content.decode()), "was changed or erased while it was read")
            self.assertLess(answer.status_code, 500)
        with self.store():
            self.assertEqual(with_texts([replace(open_entries()[0], about=10**9)]), [])

    def test_all_types_are_in_one_list_with_those_of_a_session_together(self) -> None:
        with self.store():
            entries = open_entries()
            counts = count_entries()
        expected = [(InboxItemType.CONFLICT, self.conflict, "fix"), (InboxItemType.PROPOSAL, self.first, "fix")]
        expected += [(InboxItemType.PROPOSAL, memory_id, "later") for memory_id in (self.second, self.third)]
        expected += [(InboxItemType.RECHECK, self.expired, "")]
        self.assertEqual([(entry.type, entry.id, entry.session_id) for entry in entries], expected)
        self.assertEqual(counts, {InboxItemType.CONFLICT: 1, InboxItemType.PROPOSAL: 3, InboxItemType.RECHECK: 1})
        for entry in entries:
            page = self.page(self.path_of(entry))
            self.assertEqual(len(re.findall(r'<li id="inbox-', page)), 5, entry)
            self.assertEqual(len(re.findall(r'<li id="inbox-[^"]*" class="[^"]* here"', page)), 1, entry)
        self.assert_shows(text_of(self.page(f"{QUEUE}{self.second}/")), "3 of 5")
        self.assertEqual(re.findall(r'<li id="inbox-(\w+)-', self.page(INBOX, show="recheck")), ["recheck"])
        self.assertEqual(len(re.findall(r'<li id="inbox-', self.page(INBOX, show="nonsense"))), 5)

    def test_secrets_that_newer_rules_find_lead_the_list(self) -> None:
        with mock.patch("governance.inbox.last_look", return_value=Look("digest", 9, 3, 2)):
            page = self.page(INBOX)
        self.assert_shows(page, "3 possible secrets in older texts")
        self.assertEqual(re.findall(r'<li id="inbox-(\w+)-', page)[0], "secret")
        (link,) = re.findall(r'<li id="inbox-secret-0".*?href="([^"]*)"', page, re.DOTALL)[:1]
        self.assertEqual(self.client.get(link).status_code, 200)

    def test_verdicts_are_given_and_undone_together_but_for_what_someone_else_decided_since(self) -> None:
        shown = self.give("accepted", *self.values(self.first, self.third), f"recheck-{self.expired}-0")
        self.assert_shows(shown, "2 memories accepted.", "Undo 2 verdicts")
        self.assertEqual(self.review_of(self.first, self.second, self.third), ["accepted", "proposed", "accepted"])
        undo = f"{QUEUE}undo/chosen/"
        shown = text_of(self.post(undo, ids=f"{self.first} {self.third}"))
        self.assert_shows(shown, "2 verdicts undone.")
        self.assertEqual(self.review_of(self.first, self.third), ["proposed", "proposed"])
        self.give("accepted", *self.values(self.first, self.third))
        with self.store(actor="rita", source="admin"):
            review_memory(command=ReviewVerdict(id=self.third, verdict=Verdict.REJECTED))
        shown = text_of(self.post(undo, ids=f"{self.first} {self.third} 0 {'9' * 25} x"))
        self.assert_shows(shown, "1 verdict undone.", f"last verdict on #{self.third} is of rita")
        self.assertEqual(self.review_of(self.first, self.third), ["proposed", "rejected"])

    def test_what_changed_since_it_was_shown_is_refused_and_the_others_are_confirmed(self) -> None:
        self.update(self.first, base_version=1, content="In most files.", actor="agent")
        shown = self.give("accepted", *self.values(self.first, self.second))
        self.assert_shows(shown, "1 memory accepted.", f"#{self.first} is at version 2")
        shown = self.give("affirmed", f"recheck-{self.expired}-0", *self.values(self.third))
        self.assert_shows(shown, "1 item confirmed as still valid. This cannot be undone.")
        self.assertEqual(self.review_of(self.first, self.second, self.third), ["proposed", "accepted", "proposed"])

    def test_bad_input_changes_nothing(self) -> None:
        ours = f"proposal-{self.first}-1"
        numbers = [f"proposal-{number}-1" for number in ("x", "9" * 40, "9" * 25, "0")]
        values = ["", "nothing-1-1", *numbers, f"proposal-{self.first}-0", f"recheck-{self.expired}-0"]
        for verdict, value in (*(("accepted", value) for value in values), ("affirmed", ours), ("withdrawn", ours)):
            self.assert_shows(self.give(verdict, value), "Nothing was changed.", where=value)
        self.assertEqual(self.review_of(self.first), ["proposed"])

    def test_a_verdict_leads_to_the_next_item_of_any_type_but_never_out_of_the_hub(self) -> None:
        page = self.page(f"{QUEUE}{self.third}/")
        following = self.address(f"governance/affirmation/{self.expired}/")
        self.assert_shows(page, f'name="next" value="{following}"')
        accept = self.address(f"{QUEUE}{self.third}/accept/")
        self.assertRedirects(self.client.post(accept, {"next": following, "base_version": "1"}), following)
        for page in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"):
            self.post(f"{QUEUE}undo/")
            answer = self.client.post(accept, {"next": page, "base_version": "1"})
            self.assertTrue(answer["Location"].startswith("/p/alpha/"), page)

    def test_a_viewer_reads_all_of_it_and_judges_nothing(self) -> None:
        self.client.force_login(add_person(command=PersonAdd(name="vera", role="viewer")))
        self.assert_shows(self.page(INBOX), "Use tabs", lacks=('name="entry"',))
        item = f"{QUEUE}{self.first}/"
        self.assert_shows(self.page(item), "Reason:", lacks=("Accept <kbd>",))
        for path, fields in (
            (f"{INBOX}verdicts/", {"verdict": "accepted", "entry": f"proposal-{self.first}-1"}),
            (f"{item}accept/", {"base_version": "1"}),
        ):
            self.assertEqual(self.client.post(self.address(path), fields).status_code, 403, path)
        self.assertEqual(self.review_of(self.first), ["proposed"])

    def test_many_items_take_no_more_queries_and_a_part_is_listed(self) -> None:
        for module in ("governance.inbox", "memoryhub.web.inbox_page"):
            self.enterContext(mock.patch(f"{module}.MOST", MOST))
        before = self.queries_of(INBOX)
        with self.store(actor="agent", source="mcp", session_id="bulk"):
            for number in range(MOST):
                write_memory(command=MemoryWrite(title=f"Note {number}", content=f"What note {number} says."))
        self.assertLessEqual(self.queries_of(INBOX), before)
        total = MOST + 5
        self.assert_shows(text_of(self.page(INBOX)), f"1 to {MOST} of {total}")
        second = self.page(INBOX, page="2")
        self.assert_shows(text_of(second), f"{MOST + 1} to {total} of {total}")
        self.assertEqual(len(re.findall(r'<li id="inbox-', second)), 5)
        self.assertEqual(self.page(INBOX, page="99").count('<li id="inbox-'), 5)
        for strange in ("0", "x", "9" * 30):
            self.assertEqual(self.page(INBOX, page=strange).count('<li id="inbox-'), MOST)
        # The last of a page leads to the first of the next one, which is listed beside it
        with self.store():
            entries = open_entries()
        item = self.page(self.path_of(entries[MOST - 1]))
        self.assert_shows(item, f'href="{self.address(self.path_of(entries[MOST]))}" data-key="j"')
        self.assert_shows(text_of(self.page(self.path_of(entries[MOST]))), f"{MOST + 1} to {total} of {total}")


QUEUE = "memories/memory/review/"


class ReviewPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.configure(review_policy="all")
        self.first = self.write("Retry three times", "After a **timeout**.", session="s-1", tags=["net"])
        self.second = self.write("Use tabs", "In every file.", kind="guideline")

    def say(self, memory_id: int, verdict: str, **fields: Any) -> str:
        return self.post(f"{QUEUE}{memory_id}/{verdict}/", **fields)

    def standing(self, memory_id: int) -> tuple[str, str]:
        memory = self.memory(memory_id)
        return memory.review, memory.review_reason

    def test_the_menu_counts_and_an_item_shows_its_text_evidence_and_reason(self) -> None:
        self.assert_shows(text_of(self.page()), "Inbox 2 pending")
        self.assert_lacks(text_of(self.page(project="beta")), "pending")
        self.assert_shows(self.page(QUEUE, project="beta"), "No memories to review")
        self.page(f"{QUEUE}{self.first}/", project="beta", status=302)
        html = self.page(f"{QUEUE}{self.first}/")
        self.assert_shows(html, "After a <strong>timeout</strong>.")
        evidence = ("agent", "mcp", "s-1", f"#{self.first}", "net")
        self.assert_shows(text_of(html), "1 of 2", "Reason: policy reviews all writes.", *evidence)
        before = self.queries_of(f"{QUEUE}{self.first}/")
        for number in range(5):
            self.write(f"Title {number}", f"Text number {number} of some.")
        self.assertEqual(self.queries_of(f"{QUEUE}{self.first}/"), before)

    def test_a_verdict_leads_to_the_next_item_and_is_taken_back(self) -> None:
        shown = text_of(self.say(self.first, "accept", base_version="1"))
        self.assert_shows(shown, f"Accepted #{self.first} “Retry three times”.", "1 of 1")
        shown = text_of(self.say(self.second, "reject", base_version="1", reason="We use spaces."))
        self.assert_shows(shown, "No memories to review")
        self.assertEqual(self.standing(self.second), ("rejected", "We use spaces."))
        shown = text_of(self.post(f"{QUEUE}undo/"))
        self.assert_shows(
            shown, f"Undid the verdict on #{self.second} “Use tabs”", "Reason: policy reviews all writes."
        )
        self.update(self.second, content="In most files.")
        shown = text_of(self.say(self.second, "accept", base_version="1"))
        stale = f"#{self.second} is at version 2 now, but you reviewed version 1"
        self.assert_shows(shown, stale, "In most files.")
        self.assertEqual(self.standing(self.second)[0], "proposed")

    def test_an_edit_that_cannot_be_kept_loses_nothing(self) -> None:
        fields = {"title": "", "content": "After two timeouts.", "type": "note", "base_version": "1"}
        html = self.say(self.first, "edit", **fields)
        self.assert_shows(html, "Not saved. Correct the errors below.", "After two timeouts.")
        shown = text_of(self.say(self.first, "edit", **{**fields, "title": "Retry twice"}))
        self.assert_shows(shown, f"Accepted #{self.first} “Retry twice”.")
        memory = self.memory(self.first)
        self.assertEqual((memory.review, memory.version, memory.content), ("accepted", 2, "After two timeouts."))

    def test_a_merge_shows_both_texts_and_needs_a_memory_that_is_there(self) -> None:
        with self.store("alpha", actor="ada", source="admin"):
            target = write_memory(command=MemoryWrite(title="How we retry", content="Three times.")).id
        html = self.page(f"{QUEUE}{self.first}/merge/", other=f"#{target}")
        self.assert_shows(html, f"Merge #{self.first} into #{target}")
        for typed, refusal in (("999", "There is no memory #999"), ("", "Select the memory"), ("x", "must be an id")):
            answer = self.client.get(self.address(f"{QUEUE}{self.first}/merge/"), {"other": typed}, follow=True)
            self.assertIn(refusal, answer.content.decode(), typed)
        fields = {"into": str(target), "into_version": "1", "base_version": "1", "content": "Three times, then stop."}
        self.assert_shows(self.say(self.first, "merge", **fields), f"Merged #{self.first} into #{target}.")
        self.assertEqual(self.memory(target).content, "Three times, then stop.")

    def test_what_may_be_about_the_same_is_beside_it(self) -> None:
        text = "The test server listens on port 8321 of the loopback address."
        waiting = self.write("Ports of the test server", text)
        alike = self.write("Where the server listens", "The server listens on port 8080 of the loopback address.")
        html = self.page(f"{QUEUE}{waiting}/")
        self.assert_shows(html, f"Merge into #{alike}", lacks=(f"Merge into #{self.first}",))
        self.assert_shows("".join(re.findall(r"<ins>.*?</ins>", html)), "8321")

    def test_lists_hide_what_was_rejected_and_give_verdicts_on_many(self) -> None:
        action: dict[str, Any] = {"action": "reject_chosen", "_selected_action": [str(self.first), str(self.second)]}
        self.assert_shows(self.post("memories/memory/", **action), "2 memories rejected.")
        self.assertEqual(self.memories(), [])
        self.assertEqual(set(self.memories(review="rejected")), {self.first, self.second})
        self.assertEqual(self.memories(review="rejected", q="tabs"), [self.second])
        again = {**action, "action": "accept_chosen", "_selected_action": [str(self.first)]}
        self.assert_shows(self.post("memories/memory/?review=rejected", **again), "1 memory accepted.")
        self.assert_shows(self.page_of(self.second), "Lists, searches and packs don’t show it")
        self.assert_shows(self.say(self.second, "accept", base_version="1", back="memory"), "Accepted")
        self.assertEqual(set(self.memories()), {self.first, self.second})

    def test_verdicts_given_together_are_undone_together(self) -> None:
        action: dict[str, Any] = {"action": "reject_chosen", "_selected_action": [str(self.first), str(self.second)]}
        page = self.post("memories/memory/", **action)
        self.assert_shows(page, "Verdicts given together: 2.")
        (ids,) = re.findall(r'name="ids" value="([\d ]+)"', page)
        self.assert_lacks(self.page("memories/memory/"), "Verdicts given together")
        self.post(f"{QUEUE}undo/")
        self.assert_shows(self.post(f"{QUEUE}undo/chosen/", ids=ids), "1 verdict undone.", "There is no verdict on #")
        self.assertEqual([self.standing(each)[0] for each in (self.first, self.second)], ["proposed", "proposed"])


BASE_TEXT = "Retry three times.\n\nWait a second.\n\nThen tell the caller.\n"
EARLIER = BASE_TEXT.replace("three", "five")
LATER = BASE_TEXT.replace("a second", "a minute")


class ConflictTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write("How we retry", BASE_TEXT, tags=["retries"])
        self.conflict_id = self.disagree()
        self.one = f"memories/conflict/{self.conflict_id}/"

    def disagree(self) -> int:
        for actor, text in (("claude", EARLIER), ("codex", LATER)):
            with self.store(actor=actor, source="mcp"):
                command = MemoryUpdate(id=self.memory_id, base_version=1, content=text, change_reason=f"by {actor}")
                result = update_memory(command=command)
        assert result.conflict
        return result.conflict

    def conflict(self) -> Conflict:
        with self.store():
            found: Conflict = Conflict.objects.get(id=self.conflict_id)
            return found

    def settle(self, **fields: str) -> str:
        return self.post(f"{self.one}settle/", **fields)

    def test_it_is_announced_and_shows_both_versions_and_their_merge(self) -> None:
        page = self.page_of(self.memory_id)
        self.assert_shows(page, f"Resolve conflict #{self.conflict_id}", self.address(f"{self.one}change/"))
        for path in ("memories/tag/", "memories/conflict/"):
            self.assert_shows(text_of(self.page(path)), "Inbox 1 pending", where=path)
        self.assert_shows(self.page(), "1 unresolved conflict<")
        self.assert_lacks(self.page(project="beta"), "to be settled")
        self.assert_shows(self.page("memories/conflict/", "beta"), "When two clients change the same version")
        self.assert_shows(text_of(self.page_of(self.memory_id, "versions")), "with v2")
        page = self.page(f"{self.one}change/")
        names = ("Version 2 (earlier)", "Version 3 (later)", "claude", "codex", "by claude", "by codex")
        marks = ("Retry [removed: five ] times.", "Wait a [added: minute ] .", "Version 1, the base of both versions")
        self.assert_shows(text_of(page), *names, *marks)
        draft = page.partition('name="content"')[2].partition(">")[2].partition("</textarea>")[0]
        self.assertEqual(draft.strip("\n"), EARLIER.replace("a second", "a minute").strip("\n"))

    def test_the_earlier_is_kept(self) -> None:
        page = text_of(self.settle(resolution="keep_a", reason="measured"))
        texts = ("Resolved. Version 4 is current.", "Resolved: keep the earlier version", "owner", "measured")
        self.assert_shows(page, *texts)
        self.assertEqual(self.memory(self.memory_id).content, EARLIER)
        self.assertEqual((self.conflict().resolved_by, self.conflict().reason), ("owner", "measured"))

    def test_the_later_is_kept_without_another_version_and_only_once(self) -> None:
        self.assert_shows(self.settle(resolution="keep_b"), "Resolved. Version 3 is current.")
        self.assertEqual(self.memory(self.memory_id).version, 3)
        refusal = f"The conflict was not resolved. Conflict #{self.conflict_id} was resolved with keep_b by owner."
        self.assert_shows(self.settle(resolution="keep_a"), refusal)
        self.assertEqual(self.memory(self.memory_id).version, 3)
        self.assert_lacks(self.page(f"{self.one}change/"), "Resolve conflict")

    def test_they_are_merged(self) -> None:
        page = self.settle(resolution="merge", content="Both\r\nof them", title="How we retry now", split_title="x")
        self.assert_shows(page, "Resolved. Version 4 is current.")
        memory = self.memory(self.memory_id)
        self.assertEqual((memory.title, memory.content), ("How we retry now", "Both\nof them"))

    def test_both_are_kept_as_two_memories(self) -> None:
        page = self.settle(resolution="both", content="ignored", title="ignored", split_title="How the worker retries")
        split = self.conflict().split_id
        assert split
        self.assert_shows(page, f"The earlier version is now #{split}.")
        self.assertEqual(self.memory(split).title, "How the worker retries")
        self.assertEqual((self.memory(split).content, self.memory(self.memory_id).content), (EARLIER, LATER))

    def test_what_cannot_be_settled_is_said_and_nothing_typed_is_lost(self) -> None:
        page = self.settle(reason="because of this")
        self.assert_shows(page, "Choose one of the four resolutions.", 'value="because of this"')
        page = self.settle(resolution="merge", content="a long merged text", title="t" * 201)
        self.assert_shows(page, "'title' must have at most 200 characters", "a long merged text")
        self.assertRegex(page, r'value="merge" checked')
        self.assertRedirects(self.client.get(self.address(f"{self.one}settle/")), self.address(f"{self.one}change/"))
        self.delete(self.memory_id)
        self.assert_shows(self.page(f"{self.one}change/"), "Restore it to resolve the conflict")
        self.settle(resolution="keep_a")
        self.assertIsNone(self.conflict().resolved_at)

    def test_open_ones_come_first_and_filter_by_state(self) -> None:
        self.settle(resolution="keep_b")
        with self.store():
            stands = self.memory(self.memory_id).version
            for text in ("one", "two"):
                command = MemoryUpdate(id=self.memory_id, base_version=stands, content=text)
                newer = update_memory(command=command).conflict
        self.assertEqual(self.listed("memories/conflict/"), [newer, self.conflict_id])
        self.assertEqual(self.listed("memories/conflict/", state="open"), [newer])
        self.assertEqual(self.listed("memories/conflict/", state="settled"), [self.conflict_id])
