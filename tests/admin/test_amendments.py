"""Amendments in the inbox: both texts side by side, and the verdicts."""

from __future__ import annotations

from governance.inbox import InboxItemType, open_entries, with_texts
from memories.events import AMENDMENT_FOUND, AmendmentFound
from memories.models import Amendment, AmendmentKind
from memories.superseded import superseded_by
from memoryhub.core import log
from memoryhub.registry.people import PersonAdd, add_person
from tests.admin.base import DecidingTestCase, text_of


class AmendmentPageTests(DecidingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.older = self.write("Day of deploys", "Deploys happen on Tuesdays.", kind="knowledge")
        self.newer = self.write("New day of deploys", "Deploys happen on Wednesdays now.", kind="knowledge")
        self.amendment = self.find_amendment(self.newer, self.older)

    def find_amendment(self, newer: int, older: int, *, is_certain: bool = True) -> int:
        payload = AmendmentFound(newer_id=newer, older_id=older, kind=AmendmentKind.AMENDS, is_certain=is_certain)
        with self.store(actor="agent"), log.transaction():
            return log.append(log.prepare(AMENDMENT_FOUND, payload), entity="amendment").position

    def open(self) -> list[int]:
        with self.store():
            return [entry.id for entry in open_entries([InboxItemType.AMENDMENT])]

    def give(self, verdict: str, amendment: int = 0) -> str:
        return text_of(self.post(f"memories/amendment/{amendment or self.amendment}/verdict/", verdict=verdict))

    def superseded(self) -> list[int]:
        with self.store():
            return superseded_by([self.older]).get(self.older, [])

    def test_a_pair_is_one_item_with_both_texts_and_their_difference(self) -> None:
        with self.store():
            (entry,) = with_texts(open_entries([InboxItemType.AMENDMENT]))
        self.assertEqual((entry.id, entry.about, entry.why), (self.amendment, self.newer, f"amends #{self.older}"))
        page = self.page(f"memories/amendment/{self.amendment}/change/")
        self.assert_shows(page, 'aria-current="true"', "</span>Tuesdays", "</span>Wednesdays", "Memories")
        self.assert_shows(text_of(page), f"#{self.newer} amends #{self.older}", "Accept: it supersedes", "Dismiss")
        self.assertEqual(self.client.get(self.address("memories/amendment/"))["Location"], self.address("inbox/"))

    def test_accepting_supersedes_the_older_and_dismissing_keeps_both(self) -> None:
        self.assert_shows(self.give("accepted"), f"#{self.newer} supersedes #{self.older}.")
        self.assertEqual((self.superseded(), self.open()), ([self.newer], []))
        self.assert_shows(text_of(self.page(f"memories/amendment/{self.amendment}/change/")), "Accepted:")

    def test_dismissing_keeps_both(self) -> None:
        self.assert_shows(self.give("dismissed"), "Dismissed: both stay.")
        self.assertEqual((self.superseded(), self.open()), ([], []))
        with self.store():
            self.assertFalse(Amendment.objects.get(id=self.amendment).is_accepted)

    def test_an_older_decision_is_superseded_by_a_newer_one_and_deprecated_by_a_memory(self) -> None:
        first, second = self.record("Redis"), self.record("Valkey")
        self.give("accepted", self.find_amendment(second, first))
        self.assertEqual(self.decision(first).status, "superseded")
        by_memory = self.find_amendment(self.newer, second)
        self.assert_shows(self.page(f"memories/amendment/{by_memory}/change/"), "the decision becomes deprecated")
        self.give("accepted", by_memory)
        self.assertEqual(self.decision(second).status, "deprecated")

    def test_a_verdict_that_is_none_changes_nothing(self) -> None:
        self.assert_shows(self.give("perhaps"), "verdict")
        self.assertEqual((self.superseded(), self.open()), ([], [self.amendment]))

    def test_a_form_tells_what_the_new_text_seems_to_amend(self) -> None:
        note = self.write("Deploys", "Nothing yet.", kind="knowledge")
        text = "Deploys happen on Mondays now, no longer on Tuesdays."
        shown = self.act(note, "edit", title="Deploys", content=text, base_version="1", type="fact", confidence="1")
        self.assert_shows(text_of(shown), f"It seems to amend #{self.older} Day of deploys")

    def test_what_is_uncertain_deleted_or_superseded_does_not_wait(self) -> None:
        third = self.write("Weather", "It rains.")
        self.find_amendment(third, self.newer, is_certain=False)
        self.assertEqual(self.open(), [self.amendment])
        self.delete(self.newer)
        self.assertEqual(self.open(), [])
        self.assert_shows(self.give("accepted"), f"#{self.newer}", "deleted")
        self.assertEqual(self.superseded(), [])

    def test_texts_that_have_little_in_common_are_shown_without_marks(self) -> None:
        text = "We moved all of that to the weekend; nobody is at work then."
        third = self.write("Weekend", text, kind="knowledge")
        page = self.page(f"memories/amendment/{self.find_amendment(third, self.older)}/change/")
        self.assert_shows(page, text, "Deploys happen on Tuesdays.", lacks=("<del>", "<ins>"))

    def test_lists_are_filtered_by_mark(self) -> None:
        self.assertEqual(self.memories(mark="amended"), [self.older])
        self.assertEqual(self.memories(mark="origin"), [])
        page = text_of(self.page("memories/memory/", mark="perhaps"))
        self.assert_shows(page, "mark: perhaps", "Amended", "Not accepted")
        self.assertEqual(self.memories(mark="perhaps"), [])

    def test_a_viewer_reads_the_pair_and_judges_nothing(self) -> None:
        self.client.force_login(add_person(command=PersonAdd(name="vera", role="viewer")))
        page = self.page(f"memories/amendment/{self.amendment}/change/")
        self.assert_shows(page, "Tuesdays", lacks=("Dismiss <kbd>",))
        answer = self.client.post(
            self.address(f"memories/amendment/{self.amendment}/verdict/"), {"verdict": "accepted"}
        )
        self.assertEqual(answer.status_code, 403)
