"""Served by uvicorn in tests: Django under ASGI, ten requests a minute for all."""

from django.core.asgi import get_asgi_application

from tests.http.served_sync import configure_django

configure_django()
app = get_asgi_application()
