"""Settings of processes that use only stores, the MCP server and some commands; they start fast."""

from __future__ import annotations

from memoryhub import env
from memoryhub.core.backends.postgresql.options import connection_settings as of_schema
from memoryhub.core.backends.postgresql.options import require_usable
from memoryhub.core.backends.sqlite.options import connection_settings as of_file
from memoryhub.core.backends.sqlite.options import install
from memoryhub.core.clock import machine_zone

install()

HOME = env.home()

INSTALLED_APPS = ["memoryhub", "memoryhub.core", "sessions_app", "memories", "decisions", "governance"]

if url := env.database_url():
    require_usable(url)
    DATABASES = {"default": of_schema(url, "hub"), "jobs": of_schema(url, "jobs")}
else:
    DATABASES = {
        "default": of_file(str(HOME / "hub.db"), create=True),
        "jobs": of_file(str(HOME / "jobs.db"), create=True),
    }
DATABASE_ROUTERS = ["memoryhub.core.stores.routing.StoreRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
# Dates without a zone are read, and days are shown, in this one; stores and JSON have UTC
TIME_ZONE = machine_zone()
USE_I18N = False

LOGGING_CONFIG = "memoryhub.logs.configure"
# Not empty: Django would leave logging unconfigured, and errors in pages would not be logged
LOGGING = {"version": 1}

TEST_RUNNER = "tests.runner.HubTestRunner"
