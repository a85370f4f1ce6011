from __future__ import annotations

from unittest import mock

from memoryhub.rest import framework, openapi, reference
from tests.api.client import RestTestCase


class ReferenceTests(RestTestCase):
    def test_the_schema_and_its_page_are_built_once(self) -> None:
        with (
            mock.patch.object(framework, "complete", wraps=openapi.complete) as completed,
            mock.patch.object(reference, "groups", wraps=reference.groups) as grouped,
        ):
            for _ in range(3):
                self.assertIn("/api/v1/projects", self.client.get("/api/v1/openapi.json").json()["paths"])
                self.assertContains(self.client.get("/api/v1/docs"), "http://localhost/api/v1/projects")
        self.assertLessEqual((completed.call_count, grouped.call_count), (1, 1))

    def test_examples_name_the_address_of_the_request(self) -> None:
        for host in ("localhost:1234", "127.0.0.1:99"):
            page = self.client.get("/api/v1/docs", headers={"host": host})
            self.assertContains(page, f"&#x27;http://{host}/api/v1/projects&#x27;")
