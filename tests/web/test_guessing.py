"""Wrong tokens and links are counted wherever they are tried, and no detour saves a guess."""

from __future__ import annotations

import json
from unittest import TestCase

from tests.web.public_server import HOST, public_hub, send, send_raw, status_of
from tests.web.server import Server

LIMITS = json.dumps({"failures_burst": 3, "failures_per_minute": 0.01})
WRONG = {"Authorization": f"Bearer mh_abcdefgh_{'a' * 43}"}
REST = "/api/v1/projects"
# Addresses that a wrong token does not close, because they need none
OPEN = ("/api/v1/openapi.json", "/admin/login/")


class GuessTests(TestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.enterClassContext(public_hub(limits=LIMITS))
        cls.server.api("POST", "projects", {"project_id": "alpha"})

    def statuses(self, client: str, *paths: str, **headers: str) -> list[int]:
        return [send(self.server, "GET", path, client=client, **headers).status for path in paths]

    def test_a_wrong_token_at_the_hubs_health_counts(self):
        statuses = self.statuses("203.0.113.21", *["/api/v1/health"] * 3, REST, **WRONG)
        self.assertEqual(statuses, [200, 200, 200, 429])
        self.assertEqual(self.statuses("203.0.113.21", "/api/v1/health"), [200])

    def test_an_answer_that_needs_no_token_does_not_make_one_accepted(self):
        for number, path in enumerate(OPEN):
            with self.subTest(path=path):
                client = f"203.0.113.{31 + number}"
                self.assertEqual(self.statuses(client, *[REST] * 3, path, REST, **WRONG), [401, 401, 401, 429, 429])
                self.assertEqual(self.statuses(f"198.51.100.{31 + number}", path, *[REST] * 4, **WRONG)[1:4], [401] * 3)

    def test_a_wrong_token_is_not_accepted_by_way_of_an_open_address(self):
        others = [{"Authorization": f"Bearer mh_abcdefgh_{letter * 43}"} for letter in "bcdef"]
        for other in others:
            send(self.server, "GET", OPEN[0], client="203.0.113.51", **other)
        statuses = [self.statuses("203.0.113.51", REST, **other)[0] for other in others]
        self.assertEqual(statuses, [401, 401, 401, 429, 429])

    def test_a_link_with_a_token_counts_as_a_link(self):
        right = {"Authorization": f"Bearer {self.server.token}"}
        for number, headers in enumerate((WRONG, right)):
            with self.subTest(headers=number):
                client = f"203.0.113.{61 + number}"
                self.statuses(client, REST, **headers)
                links = [f"/signin/{number}" for number in range(4)]
                self.assertEqual(self.statuses(client, *links, **headers), [410, 410, 410, 429])

    def test_a_request_has_one_authorization(self):
        right = f"Authorization: Bearer {self.server.token}"
        for path in (REST, "/p/alpha/mcp"):
            for lines in ((right, right), (right, "Authorization: Bearer x"), ("Authorization: Bearer x", right)):
                answer = send_raw(self.server, f"GET {path} HTTP/1.1", *lines, Host=HOST)
                self.assertEqual(status_of(answer), 400)
