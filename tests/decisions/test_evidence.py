"""Evidence: commits that name decisions, files, reverts, and finding commits by what they are about."""

from __future__ import annotations

from decisions import selectors, services
from decisions.models import ArtifactLink, CommitLink
from decisions.projectors import mentions, reverted_sha
from decisions.schemas import DecisionEvidence, DecisionGet, DecisionMark
from memories.schemas import MemorySearch
from memories.selectors import search
from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from sessions_app.schemas import IterationStart
from sessions_app.services.iterations import start_iteration
from tests.decisions.base import DecisionsTestCase


class TrailerTests(DecisionsTestCase):
    def test_trailers_name_decisions(self):
        message = "Wait fairly\n\nRefs: #4, #5 and #4\nDecision: #4\nSee #9\n"
        self.assertEqual(dict(mentions(message)), {4: "implements", 5: "relates"})

    def test_a_revert_names_its_commit(self):
        self.assertEqual(reverted_sha('Revert "x"\n\nThis reverts commit abcdef1234567.'), "abcdef1234567")
        self.assertIsNone(reverted_sha("We should revert commit abcdef1"))

    def test_a_commit_links_itself_with_what_its_trailers_name(self):
        decision = self.record("Fair waiting").id
        self.commit("abc1", f"Wait fairly\n\nDecision: #{decision}\nRefs: #999")
        links = [(commit["sha"][:4], commit["link_type"]) for commit in self.get(decision)["commits"]]
        self.assertEqual(links, [("abc1", "implements")])

    def test_a_number_that_is_no_decision_is_no_link(self):
        first = self.commit("abc1", "First")
        self.commit("abc2", f"Second\n\nDecision: #{first}")
        self.assertFalse(CommitLink.objects.exists())

    def test_a_revert_links_itself_and_asks_for_a_review(self):
        decision = self.record("Fair waiting").id
        self.commit("abc1", f"Wait fairly\n\nDecision: #{decision}")
        self.commit("def2", f"Revert it\n\nThis reverts commit {'abc1'.ljust(40, '0')}.")
        found = self.get(decision)
        self.assertEqual([commit["link_type"] for commit in found["commits"]], ["reverts", "implements"])
        self.assertEqual(found["review"], "commit def2000000 reverts abc1000000, which implemented it")
        services.mark_decision(command=DecisionMark(id=decision, reviewed=True))
        self.assertEqual(self.get(decision)["review"], "")


class EvidenceTests(DecisionsTestCase):
    def test_commits_are_named_by_sha_or_id(self):
        first, second = self.commit("abc1", "First"), self.commit("def2", "Second")
        found = self.get(self.record("Use WAL", commits=["abc1", f"#{second}"]).id)
        self.assertEqual({commit["id"] for commit in found["commits"]}, {first, second})

    def test_a_commit_that_is_not_recorded_yet_is_linked_when_it_is(self):
        decision = self.record("Use WAL", commits=["abc1"]).id
        self.assertEqual(self.get(decision)["artifacts"], [{"kind": "commit", "value": "abc1"}])
        self.commit("abc1", "Use WAL")
        found = self.get(decision)
        self.assertEqual((found["artifacts"], found["commits"][0]["link_type"]), ([], "implements"))

    def test_evidence_can_be_added_later_and_is_stored_once(self):
        decision = self.record("Use WAL").id
        for _ in range(2):
            command = DecisionEvidence(id=decision, files=["./core/wal.py"], validations=["250 power cuts, none lost"])
            services.add_evidence(command=command)
        kinds = list(ArtifactLink.objects.order_by("kind").values_list("kind", "value"))
        self.assertEqual(kinds, [("file_path", "core/wal.py"), ("validation", "250 power cuts, none lost")])

    def test_empty_evidence_is_refused(self):
        decision = self.record("Use WAL").id
        with self.assertRaisesRegex(Invalid, "pass at least one of commits, files"):
            services.add_evidence(command=DecisionEvidence(id=decision))


class FileTests(DecisionsTestCase):
    def behind(self, path: str) -> list[int]:
        return [decision["id"] for decision in selectors.get_decisions(command=DecisionGet(file_path=path))]

    def test_a_file_gives_the_decisions_behind_it_those_with_most_commits_on_it_first(self):
        wal, locks = self.record("WAL").id, self.record("Locks").id
        self.commit("a1b2", f"One\n\nDecision: #{locks}", "core/sqlite.py")
        self.commit("a2b2", f"Two\n\nDecision: #{wal}", "core/sqlite.py", "core/wal.py")
        self.commit("a3b2", f"Three\n\nDecision: #{wal}", "core/sqlite.py")
        self.assertEqual(self.behind("core/sqlite.py"), [wal, locks])
        self.assertEqual(self.behind("./core/"), [wal, locks])
        self.assertEqual(self.behind("core/wal.py"), [wal])

    def test_a_file_that_was_named_counts_too(self):
        decision = self.record("WAL", files=["core/wal.py"]).id
        self.assertEqual(self.behind("core"), [decision])

    def test_a_file_without_decisions_is_not_found(self):
        with self.assertRaisesRegex(NotFound, "there is no decision behind 'core/x.py'"):
            self.behind("core/x.py")


class CommitSearchTests(DecisionsTestCase):
    def found(self, query: str) -> list[int]:
        results = search(command=MemorySearch.model_validate({"query": query, "sources": ["commit"]})).results
        return [hit["id"] for hit in results]

    def test_a_commit_is_found_by_its_decisions_words(self):
        decision = self.record("Authentication of callers", context="Who may log in?").id
        commit = self.commit("abc1", f"Check the bearer\n\nDecision: #{decision}")
        self.commit("abc2", "Something else")
        self.assertEqual(self.found("who may log in, authentication"), [commit])

    def test_a_commit_that_is_linked_later_is_found_by_them_too(self):
        commit = self.commit("abc1", "Check the bearer")
        self.assertEqual(self.found("authentication"), [])
        self.record("Authentication of callers", commits=["abc1"])
        self.assertEqual(self.found("authentication"), [commit])

    def test_a_commit_is_found_by_its_paths_and_its_iteration(self):
        start_iteration(command=IterationStart(command="feature", description="Let people sign in"))
        commit = self.commit("abc1", "Add a form", "web/registration/views.py")
        self.assertEqual((self.found("registration"), self.found("people sign in")), ([commit], [commit]))

    def test_a_rebuild_comes_out_the_same(self):
        decision = self.record("Authentication", commits=["abc1"], files=["a.py"]).id
        self.commit("abc1", "Check", "a.py")
        self.commit("abc2", f"Undo\n\nThis reverts commit {'abc1'.ljust(40, '0')}.\n\nDecision: #{decision}", "a.py")
        self.record("Other", supersedes=[decision])
        before = self.found("authentication")
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(self.found("authentication"), before)
