"""The backend of a small chat: it answers the six hooks of the server. Python 3.9 or newer, no packages.

Usage: backend.py [PORT] [SECONDS]: after so many seconds the server asks again about a connection or a subscription.
"""

import json
import re
import sys
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 3001
LIFETIME = int(sys.argv[2]) if len(sys.argv) > 2 else 300

sessions = {"ada-secret": "ada", "bob-secret": "bob", "cid-secret": "cid"}
names = {"ada": "Ada", "bob": "Bob", "cid": "Cid"}
members = {"chat:team": {"ada", "bob", "cid"}, "chat:board": {"ada"}}
prices = {"tea": "2.40", "cake": "3.10"}


def allow(**result):
    return {"result": result}


def refuse(code, message):
    return {"error": {"code": code, "message": message}}


def end(code, reason):
    return {"disconnect": {"code": code, "reason": reason}}


def soon():
    return int(time.time()) + LIFETIME


def is_member(user, channel):
    return isinstance(channel, str) and user in members.get(channel, ())


def field(data, name):
    """A text in what the client has sent, which may be any JSON; None = there is none."""
    text = data.get(name) if isinstance(data, dict) else None
    return text if isinstance(text, str) else None


def secret_of(headers):
    """The secret of the session: a cookie of the client's request, or what a client without cookies has sent when it connected."""
    cookie = re.search(r"(?:^|; *)sid=([^;]*)", headers.get("Cookie", ""))
    if cookie:
        return cookie[1]
    kind, _, secret = headers.get("Authorization", "").partition(" ")
    return secret if kind == "Bearer" else None


def connect(question, headers):
    user = sessions.get(secret_of(headers))
    if user is None:
        return refuse(401, "log in first")
    rooms = [channel for channel in members if is_member(user, channel)]
    return allow(user=user, expire_at=soon(), info={"name": names[user]}, data={"rooms": rooms}, channels=["news"])


def refresh(question, headers):
    return allow(expire_at=soon()) if secret_of(headers) in sessions else allow(expired=True)


def subscribe(question, headers):
    if not is_member(question["user"], question["channel"]):
        return refuse(403, "you are not a member")
    return allow(expire_at=soon())


def sub_refresh(question, headers):
    return allow(expire_at=soon()) if is_member(question["user"], question["channel"]) else allow(expired=True)


def publish(question, headers):
    # The hook alone decides who may publish: the node checks no other right of the publisher.
    if not is_member(question["user"], question["channel"]):
        return refuse(403, "you are not a member")
    text = field(question["data"], "text")
    if not text:
        return refuse(400, "expected a text")
    if re.search(r"\bspam\b", text, re.IGNORECASE):
        return refuse(422, "mind your words")
    return allow(data={"text": text, "author": names[question["user"]]})


def rpc(question, headers):
    user, method, data = question["user"], question.get("method"), question.get("data")
    if method == "price":
        price = prices.get(field(data, "of"))
        return allow(data={"price": price}) if price else refuse(404, "not sold here")
    if method == "leave":
        channel = field(data, "channel")
        if not is_member(user, channel):
            return refuse(403, "you are not a member")
        members[channel].discard(user)
        return allow()
    if method == "logout":
        sessions.pop(secret_of(headers), None)
        return end(4501, "logged out")  # 4500 to 4999: the client does not come back.
    if method == "reload":
        return end(4100, "something has changed")  # 4000 to 4499: the client comes back.
    return refuse(404, "no such method")


HOOKS = {"/" + hook.__name__: hook for hook in (connect, refresh, subscribe, publish, sub_refresh, rpc)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # The server keeps its connections.
    wbufsize = -1  # Head and body leave together.

    def do_POST(self):
        status, answer = 404, {}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path in HOOKS:
            try:
                status, answer = 200, HOOKS[self.path](json.loads(body), self.headers)
            except Exception:
                traceback.print_exc()
                status = 500  # A fault is not a refusal: the client gets error 100, and may try again.
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words):
        pass


# Only the server may ask: any program that reaches this port can speak for any user.
# The server opens many connections at once: the queue of Python, 5 of them, is too short.
ThreadingHTTPServer.request_queue_size = 1024
server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
print(f"hooks are answered on port {PORT}", flush=True)
server.serve_forever()
