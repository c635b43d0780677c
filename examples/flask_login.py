r"""A login that cannot be guessed at: a limit per address and one per user name, decided together.

You should see five attempts answered with 401, whichever address they come from, then 429 with `Retry-After: 12` for
this user name. Other names go on being answered, until their address has had ten attempts in the minute.

    401 {"error":"wrong user name or password"}
    …
    429 {"type": …, "title": "Rate exceeded", "detail": "Too fast for \"user name\", 5 requests in 60 s. Try again …"}

Run `python -m examples.flask_login`, then
`for n in $(seq 7); do curl -s -w ' %{http_code}\n' localhost:8000/login -d 'user=ann&password=x'; done`.
"""

import os
from wsgiref.simple_server import make_server

from flask import Flask, jsonify, request

from throttle import Limiter, TokenBucket
from throttle.flask import Throttle, limit
from throttle.rules import Guard

USERS = {"ann": "correct horse battery staple"}  # yours are hashed

app = Flask(__name__)
limiter = Limiter(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), scope="examples.flask_login")
Throttle(app, Guard(limiter))


def user_name(asking):
    # Names that nobody has are counted too: an attacker must not be able to tell them apart.
    return ("name", asking.request.form.get("user", "").strip().casefold())


@app.post("/login")
@limit(
    (TokenBucket("10/min", 10, name="address"), "address"),
    (TokenBucket("5/min", 5, name="user name"), user_name),
)
def login():
    user = request.form.get("user", "").strip().casefold()
    if user in USERS and USERS[user] == request.form.get("password"):
        return jsonify(hello=user)
    return jsonify(error="wrong user name or password"), 401


@app.get("/health")
def health():
    return "ok"


if __name__ == "__main__":
    make_server("127.0.0.1", int(os.environ.get("PORT", "8000")), app).serve_forever()
