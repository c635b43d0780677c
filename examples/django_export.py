r"""Exports that wait their turn: 202 says when one will start, 503 when there will be room for one.

You should see a customer's first export start at once and the next ones ten seconds apart. What would wait for more
than 35 seconds is not accepted; another customer's export starts at once.

    202 {"id": "…", "starts_in": 0.0}
    202 {"id": "…", "starts_in": 10.0}
    202 {"id": "…", "starts_in": 20.0}
    202 {"id": "…", "starts_in": 30.0}
    503 {"type": …, "title": "Too much work is waiting", "status": 503, "detail": "… Try again in 5 s."}

Run `python -m examples.django_export`, then
`for n in $(seq 5); do curl -s -w ' %{http_code}\n' -X POST localhost:8000/export/acme/; done`.
`celery -A examples.django_export worker` does what was accepted.
"""

import os
from wsgiref.simple_server import make_server

from celery import Celery
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from throttle import throttled

REDIS = os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0")

settings.configure(
    SECRET_KEY="for this example alone",
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["throttle.django"],
    MIDDLEWARE=["throttle.django.ThrottleMiddleware"],
    THROTTLE={
        "REDIS": REDIS,
        "SCOPE": "examples.django_export",
        # how often one may ask; how fast exports run is the task's own limit
        "RULES": [{"limits": "30/min", "key": "address", "path": "/export/<customer>/", "methods": "POST"}],
        "EXEMPT": ["/health/"],
    },
)

app = Celery("examples.django_export", broker=REDIS)
app.conf.update(task_default_queue="examples.django_export")


@throttled("6/min", key="{customer}", max_wait=35)
@app.task
def export(customer):
    print(f"export for {customer}")


@csrf_exempt
@require_POST
def start(request, customer):
    starts_in = export.throttle.estimate(customer)
    result = export.delay(customer)  # raises BacklogFull beyond max_wait, which is answered with 503
    return JsonResponse({"id": result.id, "starts_in": round(starts_in, 1)}, status=202)


urlpatterns = [path("export/<str:customer>/", start), path("health/", lambda request: HttpResponse("ok"))]


if __name__ == "__main__":
    make_server("127.0.0.1", int(os.environ.get("PORT", "8000")), get_wsgi_application()).serve_forever()
