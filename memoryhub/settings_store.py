"""Settings of a process that only works on stores: the MCP server and plain commands. Starts fast, serves no page."""

from __future__ import annotations

from memoryhub import env
from memoryhub.core.backends.sqlite.driver import install
from memoryhub.core.backends.sqlite.options import connection_settings

install()

HOME = env.home()

INSTALLED_APPS = ["memoryhub", "memoryhub.core", "sessions_app", "memories", "decisions", "governance"]

DATABASES = {
    "default": connection_settings(str(HOME / "hub.db"), create=True),
    "jobs": connection_settings(str(HOME / "jobs.db"), create=True),
}
DATABASE_ROUTERS = ["memoryhub.core.stores.routing.StoreRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False

LOGGING_CONFIG = "memoryhub.logs.configure"
LOGGING = {"version": 1}
"""Not empty, because Django leaves its logging alone then, and a failing page would say nothing."""

TEST_RUNNER = "tests.runner.HubTestRunner"
