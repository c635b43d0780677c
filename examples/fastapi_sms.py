r"""An SMS API: three limits decided together, then a backlog that says when a message will go out.

You should see messages accepted, half a second apart, until the plan `free` has had its five:

    {"starts_in":0.0} 202
    {"starts_in":0.5} 202
    …
    {… "title": "Rate exceeded", … "detail": "Too fast for \"free\", 5 requests in 60 s. Try again in 12 s." …} 429

With the key `pro` it goes on until ten seconds of messages are waiting; then a 503 says when there will be room.

Run `uvicorn examples.fastapi_sms:api`, and `celery -A examples.fastapi_sms worker` to send what was accepted, then

    for n in $(seq 7); do
        curl -s -w ' %{http_code}\n' localhost:8000/sms -H 'X-API-Key: free' --json '{"to": "+49555", "text": "hello"}'
    done
"""

import os

from celery import Celery
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from throttle import AsyncLimiter, TokenBucket, throttled
from throttle.fastapi import REFUSED, install
from throttle.rules import Guard, Rule

REDIS = os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0")
PLANS = {  # by API key; who has none that is known is counted by address, as free
    "free": TokenBucket("5/min", 5, name="free"),
    "pro": TokenBucket("600/min", 600, name="pro"),
}

app = Celery("examples.fastapi_sms", broker=REDIS)
app.conf.update(task_default_queue="examples.fastapi_sms")
api = FastAPI()


@throttled("2/s", max_wait=10)
@app.task
def send_sms(to, text):
    print(f"to {to}: {text}")


class Message(BaseModel):
    to: str
    text: str


@api.post("/sms", status_code=202, responses=REFUSED)
def accept(message: Message):
    starts_in = send_sms.throttle.estimate(message.to, message.text)
    send_sms.delay(message.to, message.text)  # raises BacklogFull beyond max_wait, which is answered with 503
    return {"starts_in": round(starts_in, 1)}


@api.exception_handler(RequestValidationError)
def not_understood(request, error):
    # FastAPI's own shows what was sent, and fails with a 500 if that is no UTF-8.
    return JSONResponse({"detail": [{"loc": one["loc"], "msg": one["msg"]} for one in error.errors()]}, 422)


@api.get("/health")
def health():
    return "ok"


def known_key(asking):
    key = asking.header("x-api-key")
    return key if key in PLANS else None


def plan(asking):
    return PLANS[asking.api_key or "free"]


guard = Guard(
    AsyncLimiter(REDIS, scope="examples.fastapi_sms"),
    Rule(("60/min", "address"), (plan, "api_key"), ("1000/s", None), path="/sms", methods="POST", name="sms"),
    Rule("300/min", key="address"),
    api_key=known_key,
    exempt="/health",
)
install(api, guard)
