"""Entries about code that has changed, in the recheck queue, in the inbox and at every door."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from decisions.models import Decision
from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.inbox import InboxItemType, count_entries, open_entries, with_texts
from governance.staleness import working_tree
from governance.staleness.schemas import Affirm, StaleList, Why
from governance.staleness.selectors import count_rechecks, count_stale, grouped, list_stale, queue, stale_group
from governance.staleness.service import affirm
from memories.models import CodeAnchor, Memory
from memories.pack import preview_pack
from memories.schemas.query import ContextPackRequest
from memories.validity.freshness import check
from memories.validity.models import Provenance
from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid
from sessions_app.schemas import ProjectDescribe, SessionStart
from sessions_app.selectors import caller_tree
from sessions_app.services import start_session
from sessions_app.services.profile import describe
from tests.admin.base import text_of
from tests.api.client import RestTestCase
from tests.governance.staleness import StalenessTestCase
from tests.governance.test_doors import DoorsTestCase
from tests.mcp.case import McpTestCase
from tests.sessions_app.test_git import Repository

AUTH = (
    b"LIFE = 3600\n\n\ndef check(token):\n    return token.age < LIFE\n\n\ndef sign(token):\n    return hmac(token)\n"
)
SHORTER = AUTH.replace(b"3600", b"900")
GROUPS = "governance/affirmation/group/"


class AnchoredCase(RestTestCase):
    """A project with a repository of two files, in which an agent works."""

    repository: Repository

    def begin(self) -> None:
        self.repository = Repository(Path(tempfile.mkdtemp(prefix="repository-")))
        self.addCleanup(shutil.rmtree, self.repository.folder)
        self.repository.write("src/auth.py", AUTH)
        self.repository.write("src/pool.py", b"SIZE = 10\n")
        self.repository.commit("Begin")

    def describe(self) -> None:
        describe(command=ProjectDescribe(root_path=str(self.repository.folder)))
        start_session(command=SessionStart(session_id="s-1", directory=str(self.repository.folder)))

    def edit(self, path: str, content: bytes | None) -> None:
        """Write a file, or delete it, and let the queue look at the working tree again."""
        if content is None:
            (self.repository.folder / path).unlink()
        else:
            self.repository.write(path, content)
        working_tree._comparisons.clear()


class QueueTests(StalenessTestCase, AnchoredCase):  # type: ignore[misc]
    def setUp(self) -> None:
        super().setUp()
        self.begin()
        self.describe()
        self.life = self.write("Life of tokens", anchors=["src/auth.py:1"])
        self.sign = self.record("Sign tokens", anchors=["src/auth.py#sign", "src/pool.py:1"]).id

    def reasons(self) -> dict[int, list[str]]:
        return {item["id"]: [reason["why"] for reason in item["reasons"]] for item in self.stale()}

    def test_code_that_has_changed_or_is_gone_makes_an_entry_due_and_moved_code_does_not(self):
        self.assertEqual(self.reasons(), {})
        self.edit("src/auth.py", b"# The sessions\n" + AUTH)
        self.assertEqual(self.reasons(), {})
        self.edit("src/auth.py", SHORTER)
        self.assertEqual(self.reasons(), {self.life: ["changed"]})
        self.edit("src/pool.py", None)
        self.assertEqual(self.reasons(), {self.life: ["changed"], self.sign: ["gone"]})
        (item,) = self.stale(why="changed")
        (reason,) = item["reasons"]
        self.assertEqual((reason["name"], reason["says"]), ("src/auth.py", "src/auth.py:1 has changed since"))

    def test_an_entry_is_affirmed_for_the_code_as_it_is_now(self):
        self.edit("src/auth.py", SHORTER)
        before = CodeAnchor.objects.get(entity_id=self.life).digest
        self.affirm(self.life, reason="a quarter of an hour")
        self.assertNotEqual(CodeAnchor.objects.get(entity_id=self.life).digest, before)
        self.assertEqual(self.due(), [])
        self.edit("src/auth.py", AUTH)
        self.assertEqual(self.due(), [self.life])
        self.assert_rebuilds()

    def test_each_item_is_in_one_group_with_all_its_reasons(self):
        self.edit("src/auth.py", SHORTER.replace(b"hmac", b"signed"))
        self.edit("src/pool.py", b"SIZE = 20\n")
        self.guide("Nothing else", "src/other.py")
        guide = self.guide("Every token", "src/auth.py")
        self.commit_now("Shorten", "src/auth.py", "src/other.py")
        groups, single = grouped(queue(tree=caller_tree()).due)
        self.assertEqual([(group.why, group.name, group.ids) for group in groups], [
            (Why.CHANGED, "src/auth.py", [self.life, self.sign]),
        ])  # fmt: skip
        self.assertIn(guide, [item.id for item in single])
        (of_sign,) = [item for item in self.stale() if item["id"] == self.sign]
        names = [reason["name"] for reason in of_sign["reasons"]]
        self.assertEqual(names, ["src/auth.py", "src/pool.py"])
        self.assertEqual(count_rechecks(), {None: 2, Why.CHANGED: 1})
        self.assertEqual(count_stale(), 3)
        shown = stale_group(groups[0].id)
        assert shown
        self.assertEqual([item["id"] for item in shown[1]], [self.life, self.sign])
        self.assertIsNone(stale_group(1))

    def test_an_affirmation_names_the_code_that_an_entry_is_about_now(self):
        self.edit("src/auth.py", SHORTER.replace(b"hmac", b"signed"))
        affirm(command=Affirm(id=self.sign, anchors=["src/pool.py"]))
        self.assertEqual([anchor.path for anchor in CodeAnchor.objects.filter(entity_id=self.sign)], ["src/pool.py"])
        self.assertEqual(self.due(), [self.life])
        head = log.head()
        with self.assertRaisesMessage(Invalid, "there is no text file src/none.py"):
            affirm(command=Affirm(id=self.life, anchors=["src/none.py"]))
        self.assertEqual(log.head(), head)
        self.assert_rebuilds()

    def test_the_diff_of_a_file_is_masked_and_bounded(self):
        secret = b'TOKEN = "ghp_' + b"a1B2" * 9 + b'"\n'
        self.edit("src/auth.py", SHORTER + secret + b"".join(b"line %d\n" % number for number in range(2_000)))
        (item,) = self.stale(diff=True)
        diff = item["diffs"]["src/auth.py"]
        self.assertIn("-LIFE = 3600\n+LIFE = 900", diff)
        self.assertIn("[REDACTED:github-token:", diff)
        self.assertNotIn("a1B2", diff)
        self.assertRegex(diff, r"… \d+ more lines\Z")

    def test_without_a_working_tree_nothing_is_said_of_the_code(self):
        self.edit("src/auth.py", SHORTER)
        shutil.move(self.repository.folder / ".git", self.repository.folder / "elsewhere")
        self.assertEqual(self.due(), [])

    def test_a_pack_is_the_same_whatever_the_queue_has_of_the_working_tree(self):
        pack = preview_pack(command=ContextPackRequest()).body
        self.edit("src/auth.py", SHORTER)
        self.assertEqual(queue().due, [])
        changed = preview_pack(command=ContextPackRequest()).body
        for text in (pack.text, changed.text):
            self.assertEqual(text.count(f"#{self.life} "), 1)

    def test_files_are_compared_once_and_only_for_changed_entries_until_minutes_pass(self):
        self.edit("src/auth.py", SHORTER)
        self.assertEqual(self.due(), [self.life])
        with mock.patch.object(working_tree, "check", side_effect=check) as compared:
            self.assertEqual(self.due(), [self.life])
            count_entries()
            compared.assert_not_called()
            pool = self.write("Size of the pool", anchors=["src/pool.py:1"])
            self.assertEqual(self.due(), [self.life])
            compared.assert_called_once()
            self.repository.write("src/pool.py", b"SIZE = 20\n")
            self.assertEqual(self.due(), [self.life])
            self.pass_time(minutes=4)
            self.assertEqual(set(self.due()), {self.life, self.sign, pool})

    def test_deleted_and_superseded_entries_are_not_due(self):
        self.edit("src/auth.py", SHORTER.replace(b"hmac", b"signed"))
        self.record("Sign again", supersedes=[self.sign])
        Memory.objects.filter(id=self.life).update(deleted_at=clock.now())
        working_tree._comparisons.clear()
        self.assertEqual(self.due(), [])


class BranchTests(StalenessTestCase, AnchoredCase):  # type: ignore[misc]
    def setUp(self) -> None:
        super().setUp()
        self.begin()
        self.describe()
        git = self.repository.git
        git("checkout", "-q", "-b", "feature/queue")
        self.repository.commit("Queue", **{"src/queue.py": b"RETRIES = 4\n"})
        with self.store("alpha", source="mcp", actor="agent", session_id="s-1"):
            self.retries = self.write("Retries", anchors=["src/queue.py:1"])
        git("checkout", "-q", "main")
        working_tree._comparisons.clear()

    def drop(self) -> None:
        self.repository.git("branch", "-q", "-D", "feature/queue")
        working_tree._comparisons.clear()

    def test_entries_of_a_dropped_branch_are_one_item_and_count_as_learnt_here_once_they_are_kept(self):
        self.drop()
        groups, _ = grouped(queue(tree=caller_tree()).due)
        self.assertEqual([(group.why, group.name, group.ids) for group in groups], [
            (Why.DROPPED, "feature/queue", [self.retries]),
        ])  # fmt: skip
        (entry,) = with_texts(open_entries([InboxItemType.BRANCH]))
        self.assertEqual((entry.title, entry.text), ("feature/queue", "Retries"))
        head = self.repository.git("rev-parse", "HEAD")
        self.affirm(self.retries)
        provenance = Provenance.objects.get(id=self.retries)
        self.assertEqual((provenance.commit, provenance.branch), (head, "main"))
        working_tree._comparisons.clear()
        self.assertEqual(self.due(), [])
        self.assert_rebuilds()

    def test_what_main_has_stays_there_when_it_is_affirmed_on_another_branch(self):
        with self.store("alpha", source="mcp", actor="agent", session_id="s-1"):
            life = self.write("Life", anchors=["src/auth.py:1"])
        before = Provenance.objects.get(id=life).commit
        self.repository.git("checkout", "-q", "-b", "feature/other")
        self.repository.commit("Other", **{"src/other.py": b"OTHER = 1\n"})
        self.affirm(life)
        self.assertEqual(Provenance.objects.get(id=life).commit, before)


class DoorTests(DoorsTestCase, AnchoredCase):  # type: ignore[misc]
    """The same at the pages and routes."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()
        with self.store(actor="agent", source="mcp", session_id="s-1"):
            self.describe()
        self.life = self.write("Life of tokens", "An hour.", session="s-1", anchors=["src/auth.py:1"])
        choice = {"title": "Sign tokens", "chosen": "HMAC", "anchors": ["src/auth.py#sign"]}
        with self.store(actor="agent", source="mcp", session_id="s-1"):
            self.sign = record_decision(command=DecisionRecord.model_validate(choice)).id
        self.edit("src/auth.py", SHORTER.replace(b"hmac", b"signed"))

    def group(self) -> str:
        with self.store():
            (entry,) = open_entries([InboxItemType.FILE])
        return f"{GROUPS}{entry.id}/"

    def left(self) -> list[int]:
        with self.store():
            return [item["id"] for item in list_stale(command=StaleList()).results]

    def test_the_inbox_has_one_item_a_file_with_its_entries_and_the_diff(self) -> None:
        page = self.page("inbox/")
        self.assertEqual(len(re.findall(r'<li id="inbox-', page)), 1)
        self.assert_shows(text_of(page), "src/auth.py", "Changed file", "Changed; 2 entries are about it")
        page = self.page(self.group())
        self.assert_shows(page, 'aria-current="true"', "src/auth.py#sign has changed since", 'id="entry-')
        self.assert_shows(text_of(page), "-LIFE = 3600", "+LIFE = 900", "An hour.", "HMAC", "Still valid: all 2")
        answer = self.client.get(self.address(f"governance/affirmation/{self.life}/"))
        self.assertEqual(answer["Location"], f"{self.address(self.group())}#entry-{self.life}")
        answer = self.client.get(self.address("governance/affirmation/"))
        self.assertIn(self.group(), answer["Location"])

    def test_a_verdict_is_given_on_all_of_a_file_or_on_one(self) -> None:
        group = self.group()
        shown = self.post(f"governance/affirmation/{self.life}/affirm/", next=self.address(group))
        self.assert_shows(text_of(shown), f"Confirmed #{self.life}", "HMAC", lacks=("An hour.",))
        self.assertEqual(self.left(), [self.sign])
        shown = self.post(f"{group}verdict/", id=[str(self.sign)], verdict="retire", reason="another library")
        self.assert_shows(text_of(shown), "1 entry retired.")
        self.assertEqual(self.left(), [])
        with self.store():
            self.assertEqual(Decision.objects.get(id=self.sign).status, "deprecated")
        self.assertEqual(self.client.get(self.address(group))["Location"], self.address("inbox/"))

    def test_what_cannot_be_judged_is_reported_and_the_other_entries_are(self) -> None:
        self.delete(self.life)
        ids = [str(self.life), str(self.sign), "x", "9" * 30]
        shown = text_of(self.post(f"{self.group()}verdict/", id=ids))
        self.assert_shows(shown, "1 entry confirmed. This cannot be undone.", f"#{self.life}")
        self.assertEqual(self.left(), [])

    def test_a_row_of_the_list_is_confirmed_with_all_its_entries(self) -> None:
        with self.store():
            (entry,) = open_entries([InboxItemType.FILE])
        self.assert_shows(self.page("inbox/"), f'value="file-{entry.id}-0"')
        shown = self.post("inbox/verdicts/", verdict="affirmed", entry=f"file-{entry.id}-0")
        self.assert_shows(text_of(shown), "2 items confirmed as still valid.")
        self.assertEqual(self.left(), [])

    def test_the_page_of_an_entry_shows_its_code_and_changes_it(self) -> None:
        page = self.page_of(self.life)
        self.assert_shows(text_of(page), "src/auth.py:1 Changed named", "Needs recheck src/auth.py:1 has changed since")
        self.assert_shows(text_of(page), "Learnt at", "on main")
        shown = text_of(self.act(self.life, "anchors", anchors="src/auth.py:4-5\r\n\r\nsrc/pool.py"))
        self.assert_shows(shown, "Saved 2 anchors.", "src/auth.py:4-5 Unchanged", "src/pool.py Unchanged")
        for text, problem in (
            ("src/auth.py:90", "There is no line 90 in src/auth.py, which has 9 lines."),
            ("/etc/passwd", "'/etc/passwd' is an absolute path;"),
            ("\n".join(f"src/auth.py:{number}" for number in range(1, 10)), "at most 8"),
        ):
            shown = text_of(self.act(self.life, "anchors", anchors=text))
            self.assert_shows(shown, problem)
        self.assert_shows(text_of(self.act(self.life, "anchors", anchors="")), "Removed the anchors.")
        page = self.post(f"decisions/decision/{self.sign}/anchors/", anchors="src/auth.py#check")
        self.assert_shows(text_of(page), "Saved 1 anchor.", "src/auth.py#check Unchanged named")

    def test_lists_and_searches_show_labels_with_the_reason(self) -> None:
        label = '<span class="badge badge-mark-changed" title="src/auth.py:1 has changed since">Code changed</span>'
        self.assert_shows(self.page("memories/memory/"), label)
        self.assert_shows(self.page("memories/memory/", q="tokens"), label)
        self.assert_shows(self.page("decisions/decision/"), "Code changed")
        self.assert_shows(
            text_of(self.page("memories/searchdocument/", query="tokens")), "Code changed src/auth.py:1 has"
        )
        pack = text_of(self.page("memories/contextpack/now/", query="tokens"))
        self.assert_shows(pack, "Marked entries", f"Only for a recheck #{self.life} src/auth.py:1 has changed since")

    def test_routes_list_them_with_diffs_and_affirm(self) -> None:
        answer = self.ask("GET", "stale?why=changed&diff=true")
        self.assertEqual([item["id"] for item in answer["results"]], [self.life, self.sign])
        self.assertIn("+LIFE = 900", answer["results"][0]["diffs"]["src/auth.py"])
        self.ask("POST", f"stale/{self.life}/affirm", {})
        self.assertEqual(self.left(), [self.sign])
        memory = self.ask("GET", f"memories/{self.life}")
        self.assertEqual((memory["anchors"], memory["marks"]), (["src/auth.py:1"], []))


class AnchoredMcpTests(McpTestCase, AnchoredCase):
    def test_an_agent_names_code_reads_what_is_said_against_it_and_affirms(self) -> None:
        self.begin()
        with self.store("alpha"):
            self.describe()
        say = self.connect("--project", "alpha", "--profile", "full", cwd=self.repository.folder).say
        written = say("memory_write", title="Life of tokens", content="An hour.", anchors=["src/auth.py:1"])
        memory = int(re.findall(r"#(\d+)", written)[0])
        self.assertIn("code: src/auth.py:1", say("memory_get", ids=[memory]))
        self.edit("src/auth.py", SHORTER)
        stale = say("memory_stale", diff=True)
        self.assertIn("src/auth.py:1 has changed since; src/auth.py:", stale)
        self.assertIn("+LIFE = 900", stale)
        say("memory_affirm", id=memory)
        self.assertEqual(say("memory_stale"), "nothing needs rechecking")
        changed = say("memory_update", id=memory, anchors=["src/auth.py#sign"])
        self.assertEqual(changed, f"changed the anchors of #{memory} Life of tokens")
        refused = say("memory_update", id=memory, anchors=["src/none.py"])
        self.assertIn("there is no text file src/none.py in the working tree", refused)
        decided = say("decision_record", title="Sign", chosen="HMAC", anchors=["src/auth.py#sign"])
        decision = int(re.findall(r"#(\d+)", decided)[0])
        self.assertIn("code: src/auth.py#sign", say("decision_get", ids=[decision]))
