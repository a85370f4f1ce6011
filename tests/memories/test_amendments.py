"""Newer entries that amend or contradict older ones: rules, findings, searches, recall and verdicts."""

from __future__ import annotations

import random
from typing import Literal
from unittest import mock

from decisions.amendments import judge_amendment
from decisions.schemas import DecisionRecord
from decisions.selectors import find_decision
from decisions.services import record_decision
from memories.models import Amendment, AmendmentKind, Relation
from memories.pack.recall import recall_body
from memories.pack.sections import GatherRequest
from memories.present import hit_line, written
from memories.schemas import MemoryRestore
from memories.schemas.links import AmendmentResult, AmendmentVerdict
from memories.scopes import levels
from memories.search import engine
from memories.search.index import text_index
from memories.search.parsed_query import parse
from memories.services.revise import restore_version
from memories.validity.amendment_rules import AmendmentEvidence, TitledText, _parsed, amendment, states_change
from memories.validity.amendments import Statement, amendments_among
from memoryhub.core import clock, log
from memoryhub.core.contributions import recall_of
from memoryhub.core.errors import ConflictError, Forbidden, Invalid, NotFound
from memoryhub.core.origin import use_origin
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from tests.governance.rollback_case import quarantine
from tests.memories.base import MemoriesTestCase
from tests.support import HubTestCase

# An older and a newer text; a title is before "::"
EXPLICIT = (
    ("API timeouts are 30s.", "API timeouts were increased from 30s to 60s."),
    ("The billing service listens on port 8080.", "The billing service port changed to 9090."),
    ("Unit tests are written with Jest.", "We're standardizing unit tests on Vitest; Jest is deprecated."),
    ("Error reports go to Sentry.", "Error reports go to Datadog now."),
    ("Package manager::The project uses yarn.", "Package manager switched::We switched the project from yarn to pnpm."),
    ("Use moment.js for dates.", "moment.js is gone, use date-fns for dates."),
    ("Logs are JSON lines on stdout.", "Logs are plain text, JSON logs were turned off."),
    (
        "Session storage::User sessions are stored in Memcached with a sliding expiry of two hours.",
        "Sessions moved to Redis::We moved sessions to Redis with replication, Memcached only has page fragments.",
    ),
    ("The engine::The game is made with Godot 4.1.3 and its templates.", "Engine upgrade::We upgraded to Godot 4.3."),
    ("Lessons need Python 3.11.", "From the summer term on lessons need Python 3.13, which has better messages."),
)
OTHER_VALUE = (
    ("Max upload size: 10 MB", "Max upload size: 25 MB"),
    ("Retry policy::Retries: 3", "Retry policy update::Retries: 5"),
    ("Auth tokens expire after 24 hours.", "Auth tokens expire after 1 hour."),
    ("Node 18 is required.", "Node 20 is required."),
    ("CI runs on CircleCI.", "CI runs on GitHub Actions."),
    ("The flag checkout_v2 is enabled.", "The flag checkout_v2 is disabled."),
    ("Use REST for internal services.", "Use gRPC for internal services."),
    ("Commit the lock file.", "Do not commit the lock file."),
    ("use tabs", "use spaces"),
    ("Never shuffle across shards.", "Always shuffle across shards."),
    ("Der Port ist 8080.", "Der Port ist 9090."),
    ("The docs are deployed by hand.", "The docs are deployed by a workflow."),
    ("Upload limit::Uploads may have 10 MB at most.", "Upload size::The upload limit is 25 MB."),
    ("Node version::The frontend is built with Node 16.", "Node 20::The frontend is built with Node 20."),
    ("Merging::Pull requests are squash merged.", "No squashing::Do not squash pull requests; use merge commits."),
)
BOTH_TRUE = (
    ("The API returns 404 for unknown users.", "The API returns 403 for locked users."),
    ("The web service runs on port 3000.", "The worker service runs on port 4000."),
    ("On staging the timeout is 10 s.", "In production the timeout is 30 s."),
    ("Deploy with make deploy.", "On staging we no longer use make deploy."),
    ("We use Redis for caching.", "We use Redis for queues now."),
    ("Water is over the quay of Skagen at 1.35 m.", "Water is over the quay of Hirtshals at 1.60 m."),
    ("Tokens are not stored in logs.", "Tokens are stored in Redis."),
    ("Migrations are not run at start.", "Migrations are run by the deploy job."),
    ("The client never retries POST requests.", "The client retries GET requests three times."),
    ("The parser results are validated with pydantic.", "We no longer cache parser results in memory."),
    ("Run make test before a commit.", "Run make lint before a commit."),
    ("We support Python 3.10.", "We support Python 3.11 too."),
    ("Never log tokens.", "Never log passwords."),
    ("The build takes 4 minutes.", "Should the build take 3 minutes instead?"),
    ("model.py defines User", "model.py defines Order"),
    ("Fixed the login bug in auth.py.", "Fixed the login bug in session.py."),
    ("Web port::The port is 3000.", "Worker port::The port is 4000."),
    ("The pool keeps at most 100 connections.", "The pool keeps at most 20 idle connections."),
    ("Der Server für Tests heißt alpha.", "Der Server für Demos heißt beta."),
    ("Le port du serveur est 8080.", "Le port du client est 9090."),
    ("Staging layer::Tables are kept for 30 days, from raw files.", "Raw layer::Raw files are kept for 90 days."),
    ("Bugs of the facets are sorted by interns.", "Bugs of the exports are sorted by maintainers."),
    ("Zitate sind kursiv.", "Überschriften sind nicht mehr kursiv."),
    (
        "Guest baskets::Guest baskets are stored for 14 days and then removed by the nightly job.",
        "Merging baskets::The quantities are added. The guest basket row is removed afterwards.",
    ),
)


def _text(line: str) -> TitledText:
    title, _, content = line.rpartition("::")
    return TitledText(content, title)


DENIED = [
    ("The archives of a release are not signed.", "The archives of a release are signed with minisign."),
    ("The docs are deployed by hand.", "The docs are deployed at each push, never by hand."),
    ("The man page is generated by help2man.", "The man page is written by hand and not generated."),
    ("Screenshots are made by a script.", "Screenshots::Screenshots are made by hand, there is no script."),
    ("New code is written with semicolons.", "Style::New code is written without semicolons."),
    ("We use npm for package management.", "Use pnpm for package management, not npm."),
]


AMENDING = (AmendmentEvidence.EXPLICIT, AmendmentEvidence.VALUE)
# Pairs of sections that contradict each other, and such as do not
IN_SECTIONS = (
    ("Database::The server needs\nPostgres 14.", "Requirements::The server needs\nPostgres 15."),
    ("Man page::The man page is generated by help2man.", "The man page::The man page is not generated."),
)
NOT_IN_SECTIONS = (
    ("Changes::The server needs Postgres 14.", "Requirements::The server needs Postgres 15."),
    ("Release 1.4::The server needs Postgres 14.", "Release 1.5::The server needs Postgres 15."),
    ("Versions::- The server needs Postgres 14.", "Requirements::- The server needs Postgres 15."),
    ("Database::The server runs on Postgres.", "Hosting::We moved the server from Postgres to MySQL."),
)
# On the same matter: the newer is read first, without a mark
NEAR = (
    ("make the jump buffer 80 ms", "80 ms is too short on the handheld, let's go with 120 ms for the jump buffer"),
    ("By default it uses one thread per physical core.", "at most 4 threads by default, physical cores are scarce"),
)


class RulesTests(HubTestCase):
    def test_sections_contradict_by_their_sentences(self) -> None:
        for pairs, evidence in ((IN_SECTIONS, AmendmentEvidence.VALUE), (NOT_IN_SECTIONS, None)):
            for older, newer in pairs:
                with self.subTest(newer):
                    sections = [_text(text)._replace(is_section=True) for text in (older, newer)]
                    self.assertIs(amendment(*sections), evidence)

    def test_what_is_on_the_same_matter_is_near(self) -> None:
        for older, newer in NEAR:
            with self.subTest(newer):
                self.assertIs(amendment(_text(older), _text(newer)), AmendmentEvidence.NEAR)

    def test_words_of_change_on_the_same_subject_amend(self) -> None:
        for older, newer in EXPLICIT:
            with self.subTest(newer):
                self.assertIs(amendment(_text(older), _text(newer)), AmendmentEvidence.EXPLICIT)

    def test_another_value_in_the_same_place_amends(self) -> None:
        for older, newer in OTHER_VALUE:
            with self.subTest(newer):
                self.assertIn(amendment(_text(older), _text(newer)), AMENDING)

    def test_what_one_denies_and_the_other_says_does(self) -> None:
        for pair in DENIED:
            for older, newer in (pair, pair[::-1]):
                with self.subTest(newer):
                    self.assertIn(amendment(_text(older), _text(newer)), AMENDING)

    def test_texts_that_are_both_true_do_not(self) -> None:
        for older, newer in BOTH_TRUE:
            with self.subTest(newer):
                self.assertIn(amendment(_text(older), _text(newer)), (AmendmentEvidence.NEAR, None))

    def test_a_long_text_is_not_amended_by_a_sentence(self) -> None:
        older, newer = EXPLICIT[0]
        self.assertIsNone(amendment(TitledText(f"{older} {'It is described at length. ' * 40}"), TitledText(newer)))

    def test_words_of_change_are_the_same_without_parsing(self) -> None:
        texts = [text for pair in (*EXPLICIT, *OTHER_VALUE, *DENIED, *BOTH_TRUE) for text in pair]
        texts += [f"First a note. {text}" for text in texts]
        texts += ["From now on, tabs.", "The cache is turned off.", "I moved the file.", "Should we drop Redis?"]
        for text in texts:
            with self.subTest(text):
                parsed = _parsed(TitledText(text))
                is_changing = any(sentence.states_change for sentence in parsed.first)
                self.assertEqual(states_change(TitledText(text)), is_changing)
        self.assertEqual([states_change(TitledText(text)) for text in texts[-4:]], [True, True, False, False])

    def test_a_value_by_somebody_else_contradicts(self) -> None:
        older, newer = map(_text, OTHER_VALUE[3])
        for speaker, kind in (("ada", AmendmentKind.AMENDS), ("user", AmendmentKind.AMENDS), ("bob", "contradicts")):
            (pair,) = amendments_among([Statement(1, older, 1, "ada"), Statement(2, newer, 2, speaker)])
            self.assertEqual(pair.kind, kind)

    def test_a_session_that_was_at_work_already_does_not_amend(self) -> None:
        older, newer = map(_text, OTHER_VALUE[3])
        for began, kind in ((3, AmendmentKind.AMENDS), (1, AmendmentKind.CONTRADICTS)):
            statements = [
                Statement(1, older, 2, "ada", session_id="s1", session_began_at=1),
                Statement(2, newer, 4, "ada", session_id="s2", session_began_at=began),
            ]
            (pair,) = amendments_among(statements)
            self.assertEqual(pair.kind, kind)

    def test_without_an_order_another_value_contradicts(self) -> None:
        older, newer = map(_text, OTHER_VALUE[3])
        (pair,) = amendments_among([Statement(1, older, 1, "ada"), Statement(2, newer, 1, "ada")])
        self.assertEqual(pair.kind, AmendmentKind.CONTRADICTS)


STORED = ("Session storage", "User sessions are stored in Memcached.")
MOVED = ("Sessions moved to Redis", "We moved user sessions to Redis, Memcached is gone.")
QUESTION = "where are user sessions stored"


class AmendmentsTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(4):
            self.write(f"Note {number}", f"Chapter {number} tells of something else, such as colours.")
        self.older = self.write(*STORED)

    def said(self, text: str, session: str = "s-7") -> int:
        start_session(command=SessionStart(session_id=session))
        turn = automatic_turn(session_id=session)
        event = append_automatically(turn=turn, type="message.user", payload={"content": text})
        close_turn(turn)
        return event.position

    def recalled(self, prompt: str = QUESTION) -> list[int]:
        body = recall_body(GatherRequest(levels(), clock.now(), parse(prompt)), 0.1)
        return [int(item.reference.partition("#")[2]) for section in body.sections for item in section.items]

    def judge(self, newer: int, older: int, verdict: Literal["accepted", "dismissed"]) -> AmendmentResult:
        with use_origin(actor="ada", source="admin"):
            return judge_amendment(command=AmendmentVerdict(newer_id=newer, older_id=older, verdict=verdict))

    def test_a_write_answers_with_what_it_amends(self) -> None:
        result = self.written(*MOVED)
        self.assertIn(f"it seems to amend #{self.older} Session storage", written(result).text)
        stored = Amendment.objects.get()
        self.assertEqual((stored.newer_id, stored.older_id, stored.is_certain), (result.id, self.older, True))
        self.assertEqual(self.written("Basket", "The basket is merged at login.").amendments, [])

    def test_in_a_large_store_entries_are_not_looked_for_by_common_words(self) -> None:
        for number in range(5):
            self.write(f"Zorblat {number}", f"The zorblat has part {number}.")
        with (
            mock.patch.multiple(engine, _LARGE_STORE=0, _TELLING_MATCHES=5, _ENOUGH=1),
            mock.patch.object(text_index, "with_any", wraps=text_index.with_any) as with_any,
        ):
            result = self.written("Zorblat sessions moved to Redis", MOVED[1])
        groups = [group for call in with_any.call_args_list if call.kwargs["by_score"] for group in call.args[0]]
        self.assertIn(("memcached",), groups)
        self.assertNotIn(("zorblat",), groups)
        self.assertEqual([amended.id for amended in result.amendments], [self.older])

    def test_an_update_answers_with_what_it_amends_as_a_write_does(self) -> None:
        note = self.write("Sessions", "User sessions live for an hour.")
        result = self.update(note, content=MOVED[1])
        self.assertIn(f"it seems to amend #{self.older} Session storage", written(result).text)
        self.assertEqual(Amendment.objects.get().newer_id, note)
        self.assertEqual(self.update(note, tags=["sessions"]).amendments, [])
        self.assertEqual(self.get(self.older)["marks"][0]["text"], f"amended by #{note}")
        self.update(note, content="User sessions live for an hour.")
        self.assertFalse(Amendment.objects.exists())
        self.assertEqual(restore_version(command=MemoryRestore(id=note, version=2)).amendments[0].id, self.older)
        self.assert_rebuilds()

    def test_a_search_has_the_newer_before_the_older(self) -> None:
        newer = self.write(*MOVED)
        hits = self.search(QUESTION).results
        self.assertEqual([hit["id"] for hit in hits[:2]], [newer, self.older])
        self.assertIn(f"amended by #{newer}", hit_line(hits[1]))

    def test_a_newer_entry_without_the_words_is_shown(self) -> None:
        newer = self.write(*MOVED)
        self.assertEqual(self.hits("Memcached stored storage")[:2], [newer, self.older])

    def test_recall_gives_the_newer_instead(self) -> None:
        self.assertEqual(self.recalled(), [self.older])
        newer = self.write(*MOVED)
        self.assertEqual(self.recalled(), [newer])

    def test_the_last_of_a_chain_is_first(self) -> None:
        middle = self.write(*MOVED)
        newest = self.write("Sessions in PostgreSQL", "User sessions are no longer in Redis, they moved to PostgreSQL.")
        self.assertEqual(self.hits(QUESTION)[0], newest)
        self.assertEqual(self.recalled(), [newest])
        self.assertEqual(self.search("Redis").results[0]["id"], newest)
        self.assertEqual(self.get(middle)["marks"][0]["text"], f"amended by #{newest}")

    def test_contradictions_name_each_other(self) -> None:
        with use_origin(actor="bob"):
            newer = self.write("Where sessions are", "User sessions are stored in Redis.")
        texts = [self.get(key)["marks"][0]["text"] for key in (self.older, newer)]
        self.assertEqual(texts, [f"contradicts #{newer}", f"contradicts #{self.older}"])
        self.assertEqual(self.hits(QUESTION)[:2], [newer, self.older])
        self.assertEqual(set(self.recalled()), {newer, self.older})

    def test_recall_gives_both_where_the_newer_has_no_words_of_change(self) -> None:
        newer = self.write("Where sessions are", "User sessions are stored in Redis.")
        marks = [[mark["text"] for mark in self.get(key)["marks"]] for key in (self.older, newer)]
        self.assertEqual(marks, [[f"amended by #{newer}"], []])
        self.assertEqual(self.recalled(), [newer, self.older])

    def test_recall_gives_both_where_the_older_is_less_relevant(self) -> None:
        older = self.write("Merging", "Among much else, the changelog is written by the person who merges.")
        text = "The changelog is written by the author of a change, not by the person who merges."
        newer = self.write("Who writes the changelog", text)
        self.assertEqual(self.recalled("Who writes the changelog?"), [newer, older])

    def test_the_newer_of_two_on_the_same_matter_is_first_without_a_mark(self) -> None:
        older = self.write("Jump buffer", "Make the jump buffer 80 ms, it feels good with the controller.")
        newer = self.write("Handheld", "80 ms is too short on the handheld, let's go with 120 ms for the jump buffer.")
        question = "how long is the jump buffer"
        self.assertEqual([hit["marks"] for hit in self.search(question).results[:2]], [[], []])
        self.assertEqual(self.hits(question)[:2], [newer, older])
        self.assertEqual(self.recalled(question), [newer, older])
        self.assertFalse(Amendment.objects.exists())

    def test_sections_of_documents_contradict_each_other(self) -> None:
        texts = ("The local certificates are valid for 90 days.", "The local certificates are valid for 365 days.")
        ids: list[int] = []
        for number, text in enumerate(texts):
            ids.append(self.write(f"guide-{number}.md › Certificates", text, type="reference"))
        hits = self.search("how long are the certificates valid").results
        self.assertEqual({hit["marks"][0]["text"] for hit in hits}, {f"contradicts #{key}" for key in ids})

    def test_messages_amend_messages_and_entries(self) -> None:
        text = "user sessions are not stored in Memcached any more, use Redis"
        prompt = self.said(text)
        recall_of("s-7", text)
        self.assertEqual(self.hits(QUESTION)[:2], [prompt, self.older])
        self.assertEqual(self.recalled(), [prompt, self.older])

    def test_a_prompt_with_words_of_change_is_recorded(self) -> None:
        prompt = self.said("memcached is gone, sessions live in redis")
        recall_of("s-7", "memcached is gone, sessions live in redis")
        self.assertEqual(Amendment.objects.get().newer_id, prompt)
        self.assertEqual(self.hits("stored")[0], prompt)

    def test_a_dismissed_pair_is_never_marked_again(self) -> None:
        newer = self.write(*MOVED)
        self.judge(newer, self.older, "dismissed")
        self.assertEqual(self.search(QUESTION).results[0]["marks"], [])
        self.assertEqual(self.get(self.older)["marks"], [])
        prompt = self.said("user sessions are not stored in Memcached any more, use Redis")
        self.judge(prompt, self.older, "dismissed")
        self.assertEqual([hit["marks"] for hit in self.search(QUESTION).results if hit["id"] == self.older], [[]])
        self.assert_rebuilds()

    def test_an_accepted_one_supersedes(self) -> None:
        newer = self.write(*MOVED)
        self.assertTrue(self.judge(newer, self.older, "accepted").is_accepted)
        self.assertEqual(Relation.objects.get().source_id, newer)
        self.assertEqual(self.get(self.older)["superseded_by"], [newer])
        self.assert_rebuilds()

    def test_a_verdict_is_given_once_and_not_by_the_author(self) -> None:
        newer = self.write(*MOVED)
        verdict = AmendmentVerdict(newer_id=newer, older_id=self.older, verdict="accepted")
        with self.refuses(Forbidden, f"wrote the text of #{newer}; someone else must review it"):
            judge_amendment(command=verdict)
        self.assertFalse(Relation.objects.exists())
        self.judge(newer, self.older, "accepted")
        head = log.head()[0]
        self.judge(newer, self.older, "accepted")
        with self.refuses(ConflictError, f"a person accepted that #{newer} supersedes #{self.older}"):
            self.judge(newer, self.older, "dismissed")
        with self.refuses(NotFound, "are no two entries or messages"):
            self.judge(newer, newer, "accepted")
        self.assertEqual(log.head()[0], head)

    def test_what_a_message_amends_is_dismissed_only(self) -> None:
        text = "user sessions are not stored in Memcached any more, use Redis"
        prompt = self.said(text)
        recall_of("s-7", text)
        head = log.head()[0]
        with self.refuses(Invalid, f"#{prompt} is a message"):
            self.judge(prompt, self.older, "accepted")
        self.assertEqual(log.head()[0], head)

    def test_decisions_amend_and_are_amended(self) -> None:
        first = record_decision(command=DecisionRecord(title="Session store", chosen="Sessions are kept in Redis."))
        second = record_decision(command=DecisionRecord(title="Session store", chosen="Sessions are kept in Valkey."))
        self.assertEqual([entry.id for entry in second.amendments], [first.id])
        self.judge(second.id, first.id, "accepted")
        self.assertEqual(find_decision(first.id).status, "superseded")
        memory = self.written("Session store moved", "Sessions are no longer kept in Valkey.")
        self.assertEqual([entry.id for entry in memory.amendments], [second.id])
        self.judge(memory.id, second.id, "accepted")
        self.assertEqual(find_decision(second.id).status, "deprecated")

    def test_what_is_gone_takes_no_part(self) -> None:
        newer = self.write(*MOVED)
        self.delete(newer)
        self.assertEqual(self.get(self.older)["marks"], [])
        self.restore(newer)
        self.assertEqual(len(self.get(self.older)["marks"]), 1)
        quarantine(newer)
        self.assertEqual(self.get(self.older)["marks"], [])
        self.assertEqual(self.recalled(), [self.older])

    def test_an_erased_entry_leaves_no_finding(self) -> None:
        self.erase(self.write(*MOVED))
        self.assertFalse(Amendment.objects.exists())
        self.assert_rebuilds()

    def test_a_new_text_is_compared_anew(self) -> None:
        newer = self.write(*MOVED)
        self.update(self.older, tags=["sessions"])
        self.assertEqual(len(self.get(self.older)["marks"]), 1)
        self.update(self.older, content="User sessions live in Redis with replication.")
        self.assertFalse(Amendment.objects.exists())
        self.assertEqual(self.get(self.older)["marks"], [])
        self.assertEqual(self.update(newer, content="Nothing is known.").amendments, [])
        self.assert_rebuilds()


class RebuildTests(MemoriesTestCase):
    def test_a_rebuild_gives_the_same_findings(self) -> None:
        for seed in range(4):
            with self.subTest(seed=seed), self.store(f"rebuilt-{seed}", **self.origin):
                self.act(random.Random(seed))
                self.assertTrue(Amendment.objects.exists())
                self.assert_rebuilds()

    def act(self, chance: random.Random) -> None:
        ids = [self.write(*STORED), self.write(*MOVED)]
        for number in range(10):
            chosen = chance.choice(ids)
            is_live = self.get(chosen, include_deleted=True)["deleted_at"] is None
            act = chance.choice(["write", "write", "update", "delete", "dismiss"])
            if act == "write":
                ids.append(self.write(f"Sessions {number}", f"User sessions are no longer in Redis but in db{number}."))
            elif not is_live:
                self.restore(chosen)
            elif act == "update":
                self.update(chosen, content=f"User sessions are stored in db{number}.")
            elif act == "delete":
                self.delete(chosen)
            elif chosen != ids[0]:
                with use_origin(source="admin"):
                    command = AmendmentVerdict(newer_id=chosen, older_id=ids[0], verdict="dismissed")
                    judge_amendment(command=command)
