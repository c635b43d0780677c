"""Served by wsgiref in tests, ten requests a minute for all: `python -m tests.http.served_sync flask`."""

import os
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

from throttle import Limiter
from throttle.rules import Guard, Rule

LIMITS = "10/min"


def guard():
    return Guard(Limiter(os.environ["REDIS_URL"], scope="served", timeout=5), Rule(LIMITS), exempt="/health/")


def wsgi():
    from throttle.wsgi import ThrottleMiddleware

    def hello(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]

    return ThrottleMiddleware(hello, guard())


def flask():
    from flask import Flask

    from throttle.flask import Throttle

    app = Flask(__name__)
    Throttle(app, guard())
    app.add_url_rule("/", view_func=lambda: "hello")
    return app


def configure_django():
    from django.conf import settings
    from django.http import HttpResponse
    from django.urls import path

    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=(path("", lambda request: HttpResponse("hello")),),
        MIDDLEWARE=["throttle.django.ThrottleMiddleware"],
        THROTTLE={
            "REDIS": os.environ["REDIS_URL"], "SCOPE": "served", "RULES": [{"limits": LIMITS}], "TIMEOUT": 5,
            "EXEMPT": ["/health/"],
        },
    )  # fmt: skip


def django():
    from django.core.wsgi import get_wsgi_application

    configure_django()
    return get_wsgi_application()


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 50


if __name__ == "__main__":
    app = {"wsgi": wsgi, "flask": flask, "django": django}[sys.argv[1]]()
    make_server("127.0.0.1", int(os.environ["PORT"]), app, server_class=Server).serve_forever()
