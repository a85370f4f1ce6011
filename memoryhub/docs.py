"""The page that describes the REST door: Swagger UI from our own server, without inline script or style."""

from __future__ import annotations

from ninja.openapi.docs import Swagger


class DocsPage(Swagger):
    """``/api/v1/docs``; works with the admin's session, or with the token entered under *Authorize*."""

    template = "memoryhub/api_docs.html"
    default_settings = {
        "layout": "BaseLayout",
        "deepLinking": True,
        "docExpansion": "list",
        "defaultModelsExpandDepth": 0,
        "displayRequestDuration": True,
        "validatorUrl": None,
    }
