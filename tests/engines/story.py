"""A generated history: every step of a story, then calls of writing tools with inputs of their schemas."""

from __future__ import annotations

import hashlib
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from decisions.amendments import judge_amendment
from decisions.models import EdgeRelation
from decisions.schemas import DecisionEvidence, DecisionLink, DecisionMark
from decisions.services import add_evidence, link_decisions, mark_decision
from governance.imports import preview_undo, undo_import
from governance.redaction.schemas import RedactionRun
from governance.redaction.service import preview_redaction, redact
from governance.retention.schemas import HoldLift, HoldPlace
from governance.retention.service import lift_hold, place_hold, run_due
from governance.rollback.schemas import RollbackMake, RollbackUndo
from governance.rollback.service import preview, roll_back, undo_rollback
from memories.events import ENTRY_ANCHORED, AnchorRecord, EntryAnchored, Verdict
from memories.models import RelationType, Resolution
from memories.review.schemas import ReviewMerge, ReviewTouch, ReviewVerdict
from memories.review.services import merge_into, review_memory, withdraw_verdict
from memories.schemas.links import AmendmentVerdict
from memories.uses import notes
from memories.uses.drain import count_uses, prune_uses
from memories.validity.events import CHECK_ALLOWED, CHECK_RAN, CheckAllowed, CheckRan
from memories.validity.models import CheckOutcome
from memoryhub.core import clock, ids, log
from memoryhub.core.errors import ConfirmationRequired, HubError
from memoryhub.core.log.anchor import replace_anchor
from memoryhub.core.log.chain import accept_loss
from memoryhub.core.log.quarantine import QUARANTINE_LIFTED, QUARANTINE_PLACED, QuarantineLifted, QuarantinePlaced
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import current_store, project_store, use_store
from memoryhub.core.tools import Tool, ToolGroup, all_tools, find_tool
from memoryhub.transfer.bundles.applying import apply_bundle
from memoryhub.transfer.bundles.archive import create_bundle, open_bundle
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import MemoryRecord, SessionRecord
from sessions_app.events.client import client_events
from sessions_app.schemas import ProjectDescribe, SettingsChange
from sessions_app.services.past_sessions import PastTurn
from sessions_app.services.profile import change_settings, describe
from tests.engines.answers import CONTROL, WORDS, Values, arguments, entity_of, is_valid

KINDS = ("observation", "guideline", "knowledge", "tool")
PROJECT = "generated"
_SETTINGS: dict[str, Any] = {
    "retention_days": 60,
    "review_after": {"knowledge": 20},
    "retention": [{"what": "deleted", "kind": "tool", "after_days": 10}],
}


class Story:
    """Each ``do_…`` is a step; they are taken in the order in which they stand."""

    def __init__(self, seed: int, repository: Path) -> None:
        self.chance = Random(seed)
        self.repository = repository
        self.memories: list[int] = []
        self.decisions: list[int] = []
        self._numbers = count(1)

    def steps(self) -> list[Callable[[], None]]:
        return [getattr(self, name) for name in vars(Story) if name.startswith("do_")]

    def text(self, most: int) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, most)))

    def title(self) -> str:
        return f"{self.text(3)[:150]} {next(self._numbers)}"

    def call(self, name: str, /, **given: Any) -> dict[str, Any]:
        tool = find_tool(name)
        assert tool is not None, name
        return tool.handler(tool.input.model_validate(given)).data

    def write(self, **given: Any) -> int:
        fields = {"title": self.title(), "content": self.text(40), "tags": [self.text(1)[:60]], **given}
        memory = int(self.call("memory_write", **fields)["id"])
        self.memories += [memory] if given.get("scope", "project") == "project" else []
        return memory

    def decide(self, **given: Any) -> int:
        texts = {"context": self.text(20), "chosen": self.text(4), "rationale": self.text(9)}
        fields = {"title": self.title(), **texts, **given}
        self.decisions.append(int(self.call("decision_record", **fields)["id"]))
        return self.decisions[-1]

    def govern(self) -> Any:
        return use_origin(actor="olga", source="admin", session_id="", turn_id="")

    def do_describe(self) -> None:
        self.call("org_create", org_id="team", name="Ärzte & 水位", description=CONTROL)
        self.call("project_create", project_id="other", org_id="team", description="Beside this one")
        describe(command=ProjectDescribe(name="Generated 😀", org_id="team", root_path=str(self.repository)))
        change_settings(command=SettingsChange(settings=_SETTINGS))

    def do_start_sessions(self) -> None:
        self.call("session_start", session_id="s-main", purpose=self.text(6), metadata={"ticket": [1, "水位"]})
        self.call("session_start", session_id="s-scratch", mode="scratch")
        self.call("session_start", session_id="s-scrätch 2", mode="scratch")
        self.call("session_pause", session_id="s-main")
        self.call("session_resume", session_id="s-main")

    def do_write_every_kind(self) -> None:
        for kind in KINDS:
            for scope in ("project", "project", "org", "global"):
                self.write(kind=kind, scope=scope)
        self.write(content=CONTROL, attributes={"related_chunks": ["Feed.py:1"]}, source="https://a.example/?q=1%202")
        links = [{"uri": "feed.py", "type": "governs"}]
        for path in ("feed.py", "Feed.py"):
            self.write(kind="guideline", resource_links=links, attributes={"priority": 9}, content=f"See {path}.")
        self.write(kind="knowledge", attributes={"valid_until": "2026-03-01T00:00:00Z", "confidence": 0.1})
        self.call("guideline_add", name="Ärger über Straßen", content=self.text(9), priority=5, category="Style")
        self.call("tool_add", name="pump", description=self.text(9), examples=[{"in": 1}], category="cli")
        self.call("knowledge_add", title="ÄRGER ÜBER STRASSEN", content=self.text(9), confidence=1 / 3)

    def do_write_in_scratch_sessions(self) -> None:
        for session in ("s-scratch", "s-scrätch 2"):
            with use_origin(session_id=session):
                self.write(scope="session", content=f"only here: {self.text(20)}")
        self.call("session_end", session_id="s-scratch", promote=True, summary=CONTROL)
        self.call("session_end", session_id="s-scrätch 2", discard=True)

    def do_write_again(self) -> None:
        for content in ("first", "second"):
            self.write(title="Topic", content=f"{content} tide", topic_key="topic/潮汐")
        for _ in range(2):
            self.write(title="Same", content="The same tide gauge, twice.")

    def do_revise_often(self) -> None:
        for memory in self.memories[2:8:2]:
            for number in range(6):
                self.call("memory_update", id=memory, content=f"{number} {self.text(9)}", change_reason=self.text(3))

    def do_append_every_client_event(self) -> None:
        for number, (name, kind) in enumerate(client_events().items()):
            if number % 4 == 0:
                turn = self.call("turn_begin", session_id="s-main", turn_id=f"t-{number}")
            payload = {field: self._filled(about.annotation) for field, about in kind.schema.model_fields.items()}
            given = {key: value for key, value in payload.items() if value is not None}
            self.call("event_append", type=name, payload=given, ack_token=turn["ack_token"])
        self.call("turn_end", ack_token=turn["ack_token"], summary=f"As #{self.memories[0]} says")

    def _filled(self, annotation: Any) -> Any:
        if annotation is str:
            return f"{self.text(3)[:50]} \x1b[31m"
        if annotation is bool:
            return self.chance.random() < 0.5
        if "Generated" in str(annotation):
            return "2026-11-20T08:30:00.000Z"
        return self.chance.randint(0, 9) if "int" in str(annotation) else {"file_path": "feed.py", "list": [1.5, None]}

    def do_begin_a_turn_that_expires(self) -> None:
        self.call("turn_begin", session_id="s-main", turn_id="t-left-open")

    def do_iterate(self) -> None:
        self.call("turn_begin", session_id="s-main", turn_id="t-after")
        self.call("iteration_start", command="spike", description=self.text(9))
        self.call("iteration_complete", abandon=True, outcome="nothing")
        self.call("iteration_start", command="feature", description=CONTROL)
        self.call("iteration_advance", phase="design", artifacts=["a.md", "https://ä.example/b"])
        self.call("iteration_advance", completed="design", phase="build")

    def do_decide(self) -> None:
        first = self.decide(topic="feeds", files=["feed.py", "docs"], notes=[self.text(5)], impact="critical")
        second = self.decide(topic="feeds", supersedes=[first], prs=["https://pr.example/1"], decided_at="2025-12-01")
        for relation in EdgeRelation.values:
            self.decide(**{relation: [second]}, alternatives=[{"option": self.text(3), "why_not": self.text(4)}])
        self.call("decision_supersede", id=self.decisions[-1], chosen=self.text(4), validations=["measured"])
        link_decisions(command=DecisionLink(id=self.decisions[3], relation="relates_to", to=first))
        self.call("decision_unlink", id=self.decisions[3], relation="relates_to", to=first, reason=self.text(3))
        mark_decision(command=DecisionMark(id=self.decisions[4], status="deprecated", reason=self.text(3)))
        add_evidence(command=DecisionEvidence(id=second, files=["Feed.py"], notes=["twice", "twice"]))

    def do_commit(self) -> None:
        shas = self._shas()
        for sha, decision in zip(shas, self.decisions, strict=False):
            self.call("commit_record", sha=sha, directory=str(self.repository), decision_ids=[decision])
        self.call("commit_record", sha=shas[0], decision_ids=[self.decisions[1]], link_type="relates")
        body = f"Bump\n\nReverts #{self.decisions[2]}. This reverts commit {shas[0]}."
        self.call("commit_record", sha="ab" * 20, message=body, files=[{"path": "dir/ü.py", "insertions": 2}])
        self.call("iteration_complete", outcome=self.text(5))

    def _shas(self) -> list[str]:
        from sessions_app.git import read_commits

        return [commit.sha for commit in read_commits(self.repository)]

    def do_relate(self) -> None:
        for number, relation in enumerate([*RelationType.values, *RelationType.values]):
            self.call("relation_create", source=self.memories[number], relation=relation, target=self.memories[-1])
        for decision in self.decisions[4:]:
            self.call("relation_create", source=self.memories[2], relation="applies_to", target=decision)
        made = self.call("relation_create", source=self.decisions[0], relation="related_to", target="project")
        self.call("relation_create", source=self.memories[0], relation="derived_from", target=self.memories[5])
        self.call("relation_create", source=self.memories[5], relation="derived_from", target=self.memories[6])
        self.call("relation_delete", id=made["id"], reason=CONTROL)

    def do_tag(self) -> None:
        self.call("tag_create", name="Größe 水位", category="unit", description=CONTROL)
        self.call("tag_attach", id=self.memories[0], tags=["größe 水位", "a,b", "100%"])
        self.call("tag_attach", id="project", tags=["größe 水位", "z"])
        self.call("tag_detach", id=self.memories[0], tags=["a,b"])

    def do_conflict(self) -> None:
        made = [self.write() for _ in (*Resolution.values, "left open")]
        for memory, resolution in zip(made, [*Resolution.values, ""], strict=True):
            self.call("memory_update", id=memory, base_version=1, content=f"a {self.text(9)}")
            conflict = self.call("memory_update", id=memory, base_version=1, content=f"b {self.text(9)}")["conflict"]
            merged = {"content": self.text(9)} if resolution == "merge" else {}
            if resolution:
                self.call("memory_conflict_resolve", id=conflict, resolution=resolution, reason="so", **merged)

    def do_review(self) -> None:
        change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        proposed = [self.write(kind=kind) for kind in (*KINDS, "observation", "observation")]
        self.call("memory_update", id=self.memories[1], content=self.text(20), change_reason=self.text(3))
        change_settings(command=SettingsChange(settings={"review_policy": None}))
        with self.govern():
            for memory, verdict in zip(proposed, (Verdict.ACCEPTED, Verdict.REJECTED, Verdict.REJECTED), strict=False):
                review_memory(command=ReviewVerdict(id=memory, verdict=verdict, reason=self.text(3)))
            withdraw_verdict(command=ReviewTouch(id=proposed[2]))
            merge_into(command=ReviewMerge(id=proposed[4], into=self.memories[0]))

    def do_delete(self) -> None:
        kept, gone, gone_for_ever = (self.write(kind="tool") for _ in range(3))
        for memory in (kept, gone, gone_for_ever):
            self.call("memory_delete", id=memory, reason=self.text(3))
        self.call("memory_restore", id=kept)
        self.call("memory_restore", id=self.memories[1], version=1)
        try:
            self.call("memory_delete", id=gone_for_ever, permanent=True)
        except ConfirmationRequired as asked:
            self.call("memory_delete", id=gone_for_ever, permanent=True, confirm_token=asked.data["confirm_token"])
        self.call("guideline_deactivate", name="Ärger über Straßen")

    def do_use(self) -> None:
        self.call("memory_get", ids=self.memories[:4])
        self.call("memory_search", query="tide gauge")
        self.call("memory_context", session_id="s-main", query=f"{self.text(4)} 水位", max_tokens=900)
        self.call("memory_context", session_id="s-main")
        count_uses()
        self.call("memory_affirm", id=self.memories[5], reason=self.text(3))
        self.call("memory_affirm", id=self.decisions[2])

    def do_hold(self) -> None:
        with self.govern():
            place_hold(command=HoldPlace(stream_id="session:s-main", reason=self.text(3)))
            hold = place_hold(command=HoldPlace(stream_id=f"memory:{self.memories[2]}", reason="so"))
            lift_hold(command=HoldLift(id=hold.id, reason=CONTROL))

    def do_roll_back(self) -> None:
        for session in ("s-bad", "s-worse"):
            with use_origin(actor="mallory", session_id=session):
                self.call("session_start", session_id=session)
                bad = self.write()
                self.call("memory_update", id=self.memories[3], content=self.text(9))
                self.call("relation_create", source=bad, relation="related_to", target=self.memories[0])
                self.decide(refines=[self.decisions[0]])
        with self.govern():
            made = [self._rolled_back(session_id="s-bad"), self._rolled_back(session_id="s-worse", action="undo")]
            undo_rollback(command=RollbackUndo(id=made[0], reason=self.text(3)))

    def _rolled_back(self, **selection: str) -> int:
        command = RollbackMake.model_validate(selection)
        token = preview(command=command).confirm_token
        return roll_back(command=command.model_copy(update={"confirm_token": token})).id

    def do_quarantine(self) -> None:
        with self.govern(), log.transaction():
            placed = QuarantinePlaced(ids=[self.memories[4], self.decisions[3]], reason=self.text(3))
            log.append(log.prepare(QUARANTINE_PLACED, placed), entity="quarantine")
            log.append(log.prepare(QUARANTINE_LIFTED, QuarantineLifted(ids=[self.decisions[3]])), entity="quarantine")

    def do_redact(self) -> None:
        self.write(content="The secret word is marmalade.")
        command = RedactionRun(text="marmalade", label="word", reason=self.text(3))
        with self.govern():
            token = preview_redaction(command=command).confirm_token
            redact(command=command.model_copy(update={"confirm_token": token}))

    def do_import(self) -> None:
        at = clock.now() - timedelta(days=9)
        for keys in ("abc", "bcd"):
            memories = [MemoryRecord(key, self.title(), self.text(20), created=at, tags=("im port",)) for key in keys]
            turns = (PastTurn(self.text(9), self.text(9), at, at), PastTurn(CONTROL, "", at))
            session = SessionRecord(f"s-{keys}", self.text(3), turns, "done", started=at, ended=at)
            reports = Importer("mem0", PROJECT).run([*memories, session], place="/data/ü.json")
        batch = reports[0].batch
        assert batch
        with self.govern():
            undo_import(batch_id=batch, token=preview_undo(batch).token)

    def do_merge(self) -> None:
        with self.govern(), TemporaryDirectory() as folder:
            path = Path(folder, "other.bundle")
            with use_store(project_store("other")):
                self.write(title="From another store", scope="project")
                create_bundle(path)
            apply_bundle(open_bundle(path, lambda: ""), current_store())

    def do_amend(self) -> None:
        older = self.write(title="Deploy day", content="The service is deployed on Fridays.")
        newer = self.write(
            title="Deploys", content="From now on the service is deployed on Tuesdays instead of Fridays."
        )
        with self.govern():
            judge_amendment(command=AmendmentVerdict(newer_id=newer, older_id=older, verdict="dismissed"))

    def do_anchor_and_check(self) -> None:
        memory, text, digest = self.memories[1], "pyproject.toml matches `asyncpg`", "c" * 64
        anchors = [AnchorRecord(path="src/ü.py", symbol="load", first=3, last=9, digest="d" * 32, words=["ü", "5"])]
        run = CheckRan(entity_id=memory, digest=digest, text=text, outcome=CheckOutcome.FAILED, lines=[self.text(3)])
        allowed = CheckAllowed(entity_id=memory, digest=digest, seal="e" * 64, text=text)
        with self.govern(), log.transaction():
            stream = f"memory:{memory}"
            log.append(log.prepare(ENTRY_ANCHORED, EntryAnchored(entity_id=memory, anchors=anchors)), stream=stream)
            log.append(log.prepare(CHECK_ALLOWED, allowed), stream=stream)
            log.append(log.prepare(CHECK_RAN, run), stream=stream)

    def do_lose_events(self) -> None:
        with self.govern():
            replace_anchor(current_store(), log.head()[0] + 7, "f" * 64)
            accept_loss(store=current_store(), reason=self.text(3))

    def do_retain(self) -> None:
        with self.govern(), clock.frozen(clock.now() + timedelta(days=75)):
            run_due(now=clock.now())
            prune_uses(now=clock.now(), until=time.monotonic())


CALLS = 80
# They begin and end turns and sessions, or make stores
_NOT_CALLED = (ToolGroup.TURNS, ToolGroup.SCOPES)
_TEXTS = frozenset({"content", "description", "chosen", "rationale", "context", "reason", "change_reason"})
_NAMES = frozenset({"title", "name"})
_NOT_GIVEN = ("idempotency_key", "scope_id", "confirm_token", "permanent", "entry_type", "source_type", "target_type")
_ATTEMPTS = 50
_BEGIN = datetime(2026, 1, 1, 23, 59, tzinfo=UTC)


def write_history(seed: int, repository: Path) -> list[str]:
    """Write the history into its project, and return what was refused."""
    story, moment = Story(seed, repository), _BEGIN
    with use_store(project_store(PROJECT), create=True), use_origin(source="mcp", actor="ada", session_id="s-main"):
        for step in story.steps():
            moment += timedelta(hours=story.chance.randint(1, 60), milliseconds=story.chance.randint(0, 999))
            with clock.frozen(moment), deterministic():
                step()
        moment += timedelta(days=80)
        return [refused for number in range(CALLS) if (refused := _call(story, moment + timedelta(hours=number)))]


def _call(story: Story, moment: datetime) -> str:
    """Call a writing tool with random arguments; return why it was refused, "" if it was not."""
    tool = story.chance.choice([tool for tool in all_tools() if tool.writes and tool.group not in _NOT_CALLED])
    with clock.frozen(moment), deterministic():
        given = _chosen(tool, story)
        try:
            story.call(tool.name, **given)
        except HubError as error:
            return f"{tool.name} {given}: {error.message}"
    return ""


def _chosen(tool: Tool, story: Story) -> dict[str, Any]:
    fields, chance = tool.input.model_fields, story.chance
    found = {name: given[:8] for name, given in arguments(tool.input, Values(), entity_of(tool.name)).items() if given}
    found |= {name: [story.text(30)] for name in fields if name in _TEXTS}
    found |= {name: [story.title()[-60:]] for name in fields if name in _NAMES and fields[name].is_required()}
    always = [name for name, field in fields.items() if field.is_required() or name == "id"]
    others = [name for name in found if name not in (*always, *_NOT_GIVEN)]
    for _ in range(_ATTEMPTS):
        names = [*always, *chance.sample(others, k=chance.randint(0, min(3, len(others))))]
        given = {name: chance.choice(found[name]) for name in names}
        if is_valid(tool.input, given):
            return given
    raise AssertionError(f"no valid arguments of {tool.name} in {found}")


_drawn: Counter[int] = Counter()


@contextmanager
def deterministic() -> Iterator[None]:
    """Derive identifiers, salts and tokens from counts and the frozen clock: both databases get the same log."""

    # A count for each size, because the wipe of a database draws numbers too
    def digest(size: int) -> bytes:
        _drawn[size] += 1
        return hashlib.sha256(f"{size} {_drawn[size]}".encode()).digest()[:size]

    with (
        mock.patch.object(ids, "random_bytes", digest),
        mock.patch.object(ids, "uuid7", lambda: str(uuid.UUID(bytes=digest(16)))),
        mock.patch.object(secrets, "token_urlsafe", lambda size: digest(size).hex()),
        mock.patch.object(time, "time_ns", lambda: int(clock.now().timestamp()) * 10**9),
        mock.patch.object(time, "time", lambda: clock.now().timestamp()),
        mock.patch.object(notes, "_SLOTS", 1),
    ):
        yield
