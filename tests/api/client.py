"""A REST client in the process of the test."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from memoryhub.rest.auth import read_token
from tests.support import HubTestCase


class RestTestCase(HubTestCase):
    """Calls REST with the hub's token. The projects ``alpha`` and ``beta`` exist."""

    def setUp(self) -> None:
        super().setUp()
        self.client = Client(headers={"host": "localhost"}, raise_request_exception=False)
        for project in ("alpha", "beta"):
            with self.store(project):
                pass

    def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, expect: int = 200, **headers: str
    ) -> Any:
        """Send a request to ``/api/v1/<path>``, check the status, and return the response with its ``data``."""
        sent = {"Authorization": f"Bearer {read_token() if token is None else token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, str | bytes) else "" if body is None else json.dumps(body)
        response: Any = self.client.generic(
            method, f"/api/v1/{path}", content, content_type="application/json", headers=sent
        )
        self.assertEqual(response.status_code, expect, response.content[:500])
        self.check_shape(response)
        response.data = json.loads(response.content) if response.content else None
        return response

    def check_shape(self, response: Any) -> None:
        """Check the security policy, and that every error is a problem."""
        self.assertIn("default-src 'self'", response["Content-Security-Policy"])
        if response.status_code >= 400:
            self.assertEqual(response["Content-Type"], "application/problem+json")
            problem = json.loads(response.content)
            self.assertEqual(problem["status"], response.status_code)
            self.assertTrue(problem["detail"] and problem["code"] and problem["title"])
            self.assertNotIn("Traceback", problem["detail"])

    def write(self, title: str = "Use WAL", content: str = "readers do not wait for writers", **fields: Any) -> int:
        answer = self.call(
            "POST", "projects/alpha/memories", {"title": title, "content": content, **fields}, expect=201
        )
        memory_id: int = answer.data["id"]
        return memory_id
