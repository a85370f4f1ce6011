"""The REST door: assembles the apps' routers under ``/api/v1``."""

from __future__ import annotations

from ninja import NinjaAPI

from memoryhub import __version__

api = NinjaAPI(title="Memory Hub", version=__version__)
