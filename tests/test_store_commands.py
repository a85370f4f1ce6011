from __future__ import annotations

import io

from django.core.management import CommandError, call_command

from memories import services
from memories.models import Memory, MemoryScope
from memories.schemas import MemoryWrite
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, use_store
from memoryhub.registry.organizations import OrgCreate, create_org
from tests.support import HubTestCase


class StoreCommandTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        create_org(command=OrgCreate.model_validate({"id": "acme"}))
        for store, scope in ((GLOBAL_STORE, MemoryScope.GLOBAL), (org_store("acme"), MemoryScope.ORG)):
            with use_store(store, create=True):
                services.write_memory(command=MemoryWrite(title="Tanks", content="marmaladeish water", scope=scope))

    def run_in(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command(*arguments, stdout=out)
        return out.getvalue()

    def test_each_store_is_verified_made_anew_and_replayed(self):
        for where in (("--global",), ("--org", "acme")):
            with self.subTest(where=where):
                self.assertIn("the chain holds: ", self.run_in("verify", *where))
                self.assertIn("identical", self.run_in("rebuild", *where))
                self.assertIn("marmaladeish", self.run_in("replay", *where))

    def test_text_is_taken_out_of_the_one_that_was_named_alone(self):
        said = self.run_in("redact", "--text", "marmaladeish", "--org", "acme")
        token = said.strip().rpartition(" ")[2]
        said = self.run_in("redact", "--text", "marmaladeish", "--org", "acme", "--confirm", token)
        self.assertIn("redacted 1 match in 1 event", said)
        self.assertIn("global/events.db", said)
        self.assertNotIn("marmaladeish", self.run_in("replay", "--org", "acme"))
        self.assertIn("marmaladeish", self.run_in("replay", "--global"))

    def test_an_id_may_be_written_as_answers_write_it(self):
        with use_store(GLOBAL_STORE):
            (memory_id,) = Memory.objects.values_list("id", flat=True)
        for given in (f"#{memory_id}", str(memory_id)):
            said = self.run_in("redact", "--whole", "--ids", given, "--global")
            self.assertIn("nothing was changed; to redact, add --confirm", said)
        with self.assertRaisesRegex(CommandError, "'twelve' is not an id; write 412 or '#412'"):
            self.run_in("retention", "lift", "twelve", "--global")

    def test_what_was_left_there_is_rolled_back_and_retained_there(self):
        self.assertIn(
            "nothing was changed; add --yes to roll back", self.run_in("rollback", "--actor", "unknown", "--global")
        )
        self.run_in("rollback", "--actor", "unknown", "--global", "--yes")
        with use_store(GLOBAL_STORE):
            self.assertEqual(Memory.objects.live().count(), 0)
        self.assertIn("to delete: 0 in 0 events", self.run_in("retention", "plan", "--global"))
