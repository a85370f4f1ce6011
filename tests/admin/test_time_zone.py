from __future__ import annotations

from datetime import UTC, datetime

from memoryhub.core import clock
from tests.admin.working import WorkingTestCase

EVENING = datetime(2026, 3, 4, 22, 30, tzinfo=UTC)
# What a browser may be made to send in place of a zone.
NO_ZONES = ("", "Nowhere/Land", "../../etc/passwd", "/etc/passwd", "Europe", "\x00", "UTC;x", "é" * 300)


class TimeZoneTests(WorkingTestCase):
    def setUp(self) -> None:
        super().setUp()
        with clock.frozen(EVENING):
            self.session = self.start("s-1", "Lay the floor")
            self.turn("s-1", ("note.added", {"content": "mind the gap"}))

    def test_times_are_in_the_viewers_zone_with_utc_in_the_tooltip(self) -> None:
        pages = {
            "sessions_app/session/": "2026-03-05 07:30",
            f"sessions_app/session/{self.session}/change/": "07:30:00",
        }
        for path, shown in pages.items():
            self.client.cookies.pop("hub_time_zone", None)
            self.assertNotIn(f">{shown}<", self.page(path))
            self.client.cookies["hub_time_zone"] = "Asia/Tokyo"
            page = self.page(path)
            self.assertIn(f">{shown}<", page)
            self.assertIn('title="2026-03-04 22:30:00 UTC"', page)

    def test_what_is_no_zone_is_utc(self) -> None:
        for name in NO_ZONES:
            self.client.cookies["hub_time_zone"] = name
            self.assertIn("2026-03-04 22:30", self.page("sessions_app/session/"), name)
