from __future__ import annotations

from datetime import UTC, datetime

from sessions_app.schemas import CommitRecord, IterationAdvance, IterationComplete, IterationStart
from sessions_app.services import record_commits
from sessions_app.services.iterations import advance_iteration, complete_iteration, start_iteration
from tests.admin.base import text_of
from tests.admin.working import WorkingTestCase

ITERATIONS = "sessions_app/iteration/"


class IterationTests(WorkingTestCase):
    def begin(self, description: str = "Keep the log short", *phases: str) -> int:
        with self.store(actor="agent", source="mcp"):
            iteration = start_iteration(command=IterationStart(command="fix", description=description))
            for phase in phases:
                advance_iteration(command=IterationAdvance(phase=phase, artifacts=[f"docs/{phase}.md"]))
            return iteration.id

    def end(self, outcome: str = "", *, abandon: bool = False) -> None:
        with self.store():
            complete_iteration(command=IterationComplete(outcome=outcome, abandon=abandon))

    def commit(self, sha: str, message: str) -> None:
        record = CommitRecord(sha=sha * 40, message=message, committed_at=datetime(2026, 3, 4, tzinfo=UTC))
        with self.store():
            record_commits(commits=[record])

    def test_the_list_shows_status_phases_and_commits(self) -> None:
        first = self.begin("Keep the log short\nfor ever", "plan", "build")
        self.commit("a", "Keep it short")
        self.commit("b", "Measure it")
        page = self.page(ITERATIONS)
        for shown in ("Keep the log short", "fix", "Active", "1 phase done", "now: build"):
            self.assertIn(shown, text_of(page))
        self.assertRegex(page, r'class="field-commits">2<')
        self.assertNotIn("for ever", page)
        self.end()
        second = self.begin("Another")
        self.assertEqual(self.listed(ITERATIONS), [second, first])
        self.assertEqual(self.listed(ITERATIONS, status__exact="completed"), [first])
        self.assertEqual(self.listed(ITERATIONS, q="another"), [second])

    def test_the_page_shows_steps_artifacts_commits_and_timeline(self) -> None:
        iteration = self.begin("Keep the log short", "plan", "build")
        self.start("s-1", "Lay the floor")
        self.ask("s-1", "Measure it")
        self.commit("a", "Keep it short")
        page = self.page(f"{ITERATIONS}{iteration}/change/")
        text = text_of(page)
        for shown in ("plan done", "build current", "docs/plan.md", "Measure it", "Keep it short"):
            self.assertIn(shown, text)
        self.assertIn('class="is-current" aria-current="step"', page)

    def test_an_abandoned_iteration_shows_its_last_phase_and_no_later_events(self) -> None:
        iteration = self.begin("Keep the log short", "plan", "build")
        self.end("It was <not> worth it.", abandon=True)
        self.write("written afterwards")
        page = self.page(f"{ITERATIONS}{iteration}/change/")
        for shown in ("Abandoned", 'class="is-stopped"', "It was <not> worth it."):
            self.assertIn(shown, page)
        self.assertNotIn("written afterwards", page)

    def test_completing_an_iteration_completes_its_last_phase(self) -> None:
        iteration = self.begin("Keep the log short", "plan", "build")
        self.end("Shorter.")
        page = self.page(f"{ITERATIONS}{iteration}/change/")
        self.assertIn("plan done", text_of(page))
        self.assertIn("build done", text_of(page))

    def test_an_iteration_without_phases_commits_and_artifacts_has_a_page(self) -> None:
        iteration = self.begin("")
        text = text_of(self.page(f"{ITERATIONS}{iteration}/change/"))
        for shown in ("No phases yet", "No artifacts yet", "A commit is attached"):
            self.assertIn(shown, text)
        self.assertIn("No description", self.page(ITERATIONS))

    def test_its_stream_redirects_to_it(self) -> None:
        iteration = self.begin()
        answer = self.client.get(self.address(f"stream/iteration:{iteration}/"))
        self.assertRedirects(answer, self.address(f"{ITERATIONS}{iteration}/change/"))

    def test_the_list_makes_as_many_queries_for_many_as_for_few(self) -> None:
        self.begin("one")
        few = self.queries_of(ITERATIONS)
        for number in range(8):
            self.end()
            self.begin(f"number {number}", "plan")
            self.commit(f"{number}", "a commit")
        self.assertLessEqual(self.queries_of(ITERATIONS), few)

    def test_beta_has_no_such_iteration(self) -> None:
        iteration = self.begin("Keep the zebrafish")
        self.page(f"{ITERATIONS}{iteration}/change/", "beta", status=404)
        self.assertNotIn("zebrafish", self.page(ITERATIONS, "beta"))
