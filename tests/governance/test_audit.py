"""The audit: who was given which pack and who changed how much, from the log, through every interface."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from datetime import timedelta
from typing import Any
from unittest import mock

from django.test import Client, tag

from governance import audit
from governance.audit import AuditExport, AuditPeriod, AuditRequest, export_audit, list_activity, list_packs_read
from memories.pack.service import pack_context
from memories.schemas import MemoryWrite
from memories.schemas.query import ContextPackRequest
from memories.services import write_memory
from memoryhub.core import clock, log
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import MEMBER_ROLES, Grant, use_grant
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.rest.auth import read_token
from tests.api.client import RestTestCase

READERS = (("ann/laptop", "mcp"), ("ann/desk", "hook"), ("ben/laptop", "mcp"), ("token:ci", "rest"), ("codex", "mcp"))
PERSONS = {"ann/laptop": ("ann", "laptop"), "ann/desk": ("ann", "desk"), "ben/laptop": ("ben", "laptop")}


class AuditTestCase(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store():
            write_memory(command=MemoryWrite(title="Tide", content="The tide feed refuses for an hour."))

    def read(self, actor: str, source: str, query: str = "") -> int:
        with self.store(), use_origin(actor=actor, source=source):
            return pack_context(command=ContextPackRequest(query=query)).id

    def written_by(self, actor: str, source: str, title: str) -> None:
        with self.store(), use_origin(actor=actor, source=source):
            write_memory(command=MemoryWrite(title=title, content=f"About {title}."))

    def audited(self, **fields: Any) -> list[dict[str, Any]]:
        with self.store():
            return list_packs_read(command=AuditRequest(**fields)).results


@tag("backend")
class ReadingTests(AuditTestCase):
    def test_each_reader_of_the_same_pack_is_named(self) -> None:
        packs = [self.read(actor, source) for actor, source in READERS]
        self.assertEqual(len(set(packs)), len(READERS))
        found = {item["position"]: item for item in self.audited()}
        for pack, (actor, source) in zip(packs, READERS, strict=True):
            person, client = PERSONS.get(actor, ("", actor))
            item = found[pack]
            self.assertEqual((item["person"], item["client"], item["door"]), (person, client, source))
            self.assertEqual(item["entries"], ["#1"])
            with self.store():
                self.assertEqual(item["digest"], log.digest_at(pack))

    def test_the_same_reader_is_named_once_for_the_same_pack(self) -> None:
        self.assertEqual(self.read("ann/laptop", "mcp"), self.read("ann/laptop", "mcp"))
        self.assertEqual(len(self.audited()), 1)

    def test_counts_agree_with_what_was_done(self) -> None:
        source = random.Random(7)
        expected: Counter[tuple[str, str, str]] = Counter()
        for number in range(60):
            actor, door = source.choice(READERS)
            if source.random() < 0.5:
                before = len(self.audited(limit=100))
                self.read(actor, door, f"question {number}")
                expected[actor, door, "packs"] += len(self.audited(limit=100)) - before
            else:
                self.written_by(actor, door, f"Fact {number}")
                expected[actor, door, "writes"] += 1
        with self.store():
            found = list_activity(command=AuditPeriod())
        for actor, door in READERS:
            person, client = PERSONS.get(actor, ("", actor))
            (one,) = [item for item in found if (item.person, item.client, item.door) == (person, client, door)]
            self.assertEqual((one.packs, one.writes), (expected[actor, door, "packs"], expected[actor, door, "writes"]))

    def test_a_person_is_found_with_all_their_clients_and_nobody_else(self) -> None:
        others = (("annabel/laptop", "mcp"), ("ann0", "mcp"), ("Ann/laptop", "mcp"))
        for actor, source in (*READERS, ("ann", "admin"), *others):
            self.read(actor, source, f"asked by {actor}")
        found = [(item["person"], item["client"]) for item in self.audited(person="ann")]
        self.assertEqual(sorted(found), [("ann", ""), ("ann", "desk"), ("ann", "laptop")])

    def test_a_period_begins_with_its_first_and_ends_before_its_last_moment(self) -> None:
        now = clock.now()
        for hours in range(4):
            with clock.frozen(now + timedelta(hours=hours)):
                self.read("ann/laptop", "mcp", f"question {hours}")
        found = self.audited(since=now + timedelta(hours=1), until=now + timedelta(hours=3))
        self.assertEqual([item["query"] for item in found], ["question 2", "question 1"])

    def test_pages_follow_each_other(self) -> None:
        packs = [self.read("ann/laptop", "mcp", f"question {number}") for number in range(5)]
        found, cursor = [], None
        while True:
            with self.store():
                page = list_packs_read(command=AuditRequest(limit=2, cursor=cursor))
            found += [item["position"] for item in page.results]
            cursor = page.meta.next_cursor
            if cursor is None:
                break
        self.assertEqual(found, sorted(packs, reverse=True))

    def test_whoever_reads_the_log_reads_the_audit(self) -> None:
        self.read("ann/laptop", "mcp", "tides")
        viewer = Grant(frozenset(), everywhere=False, places={"project:alpha": MEMBER_ROLES["viewer"]})
        with use_grant(viewer), self.store(create=False):
            event = RawEvent.objects.get(event_type="context.packed")
            (item,) = list_packs_read(command=AuditRequest()).results
            self.assertEqual((item["position"], item["person"]), (event.position, "ann"))
            self.assertEqual([one.packs for one in list_activity(command=AuditPeriod(person="ann"))], [1])
            self.assertIn('"tides"', next(iter(export_audit(command=AuditExport(form="jsonl")))))

    def test_a_long_audit_is_exported_in_steps(self) -> None:
        with self.store(), use_origin(actor="ann/laptop", source="mcp"):
            packs = [
                pack_context(command=ContextPackRequest(query=f"q{number}", session_id=f"s{number}")).id
                for number in range(7)
            ]
            with mock.patch.object(audit, "_AT_ONCE", 3):
                lines = [json.loads(line) for line in export_audit(command=AuditExport(form="jsonl"))]
        self.assertEqual(lines[0]["client"], "laptop")
        self.assertEqual([line["position"] for line in lines], packs)


class InterfaceTests(AuditTestCase):
    def test_the_routes(self) -> None:
        self.read("ann/laptop", "mcp", "=cmd()")
        listed = self.call("GET", "projects/alpha/audit").data
        self.assertEqual([item["person"] for item in listed["results"]], ["ann"])
        activity = self.call("GET", "projects/alpha/audit/activity?person=ann").data
        self.assertEqual([(one["client"], one["packs"]) for one in activity], [("laptop", 1)])
        address = "/api/v1/projects/alpha/audit/export?form=csv"
        exported = self.client.get(address, headers={"authorization": f"Bearer {read_token()}"})
        (line,) = csv.DictReader(io.StringIO(exported.getvalue().decode()))
        self.assertEqual((line["person"], line["query"], line["entries"]), ("ann", "'=cmd()", "#1"))
        for query in ("form=xml", "since=yesterday"):
            self.call("GET", f"projects/alpha/audit/export?{query}", expect=422)

    def test_the_page_and_its_download(self) -> None:
        self.read("ann/laptop", "mcp", "tides")
        owner = Client(headers={"host": "localhost"})
        owner.force_login(add_person(command=PersonAdd(name="olga", role="owner")))
        page = "/p/alpha/admin/audit/"
        self.assertContains(owner.get(page), "laptop")
        self.assertNotContains(owner.get(f"{page}?person=ben"), "laptop")
        self.assertEqual(owner.get(f"{page}?since=yesterday").status_code, 422)
        (line,) = [json.loads(text) for text in owner.get(f"{page}?form=jsonl").getvalue().decode().splitlines()]
        self.assertEqual(line["query"], "tides")
        viewer = Client(headers={"host": "localhost"})
        viewer.force_login(add_person(command=PersonAdd(name="vic", role="viewer")))
        self.assertContains(viewer.get(page), "laptop")
        self.assertContains(viewer.get(page), f'href="{page}"')
