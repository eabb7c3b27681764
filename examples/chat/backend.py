"""The backend of the chat: log-in, tokens, page and hooks. Python 3.9 or newer, no packages."""

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

SECRET = os.environ["TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY"]

names = {}  # user id -> name
sessions = {}  # cookie -> user id
members = {"room:lobby": "everybody", "room:team": ["ada", "bob"]}


def is_member(user, channel):
    """The members of `room:x` are also the members of `typing:x`."""
    users = members.get(channel.replace("typing:", "room:", 1), [])
    return users == "everybody" or user in users


def token_for(user):
    """A token that says for ten minutes who the user is. The page asks for the next one by itself."""
    part = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")
    claims = {"sub": user, "info": {"name": names[user]}, "exp": int(time.time()) + 600}
    signed = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps(claims).encode())
    return signed + b"." + part(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest())


def refusal(code, message):
    return {"error": {"code": code, "message": message}}


# Touchline calls the hooks. `user` is the user of the client's token.
def subscribe(asked):
    return {"result": {}} if is_member(asked["user"], asked["channel"]) else refusal(403, "you are not a member of this room")


def publish(asked):
    user, channel, data = asked["user"], asked["channel"], asked.get("data")
    text = data.get("text") if isinstance(data, dict) else None
    text = text.strip() if isinstance(text, str) else ""
    name = names.get(user, user)
    if not is_member(user, channel):
        return refusal(403, "you are not a member of this room")
    if channel.startswith("typing:"):
        return {"result": {"data": {"name": name}}}
    if text == "":
        return refusal(400, "the text is empty")
    if len(text) > 200:
        return refusal(400, "the text is longer than 200 characters")
    return {"result": {"data": {"name": name, "text": text}}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # Touchline keeps its connections to the hooks.
    wbufsize = -1  # Head and body leave together.

    def answer(self, status, kind, body=b"", **fields):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **fields}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()

    def log_message(self, *words):
        pass


class Hooks(Handler):
    def do_POST(self):
        hook = {"/subscribe": subscribe, "/publish": publish}.get(self.path)
        body = self.body()
        if hook is None:
            return self.answer(404, "text/plain")
        self.answer(200, "application/json", json.dumps(hook(json.loads(body))).encode())


class Pages(Handler):
    """Browsers call these addresses."""

    def do_GET(self):
        path = self.path.split("?")[0]
        files = {"/": ("index.html", "text/html; charset=utf-8"), "/centrifuge.js": ("centrifuge.js", "text/javascript; charset=utf-8")}
        if path == "/token":
            cookie = re.search(r"(?:^|; *)session=([^;]*)", self.headers.get("Cookie", ""))
            user = sessions.get(cookie[1]) if cookie else None
            if user is None:
                return self.answer(401, "text/plain", b"log in first")
            return self.answer(200, "text/plain", token_for(user), Cache_Control="no-store")
        if path not in files:
            return self.answer(404, "text/plain")
        name, kind = files[path]
        self.answer(200, kind, Path(name).read_bytes())

    def do_POST(self):
        body = self.body()
        if self.path != "/login":
            return self.answer(404, "text/plain")
        # A toy: a person is the user whose name the person types. Your application checks a password here.
        name = parse_qs(body).get("name", [""])[0].strip()[:30]
        if name == "":
            return self.answer(400, "text/plain", b"a name is needed")
        user, cookie = name.lower(), secrets.token_urlsafe()
        names[user], sessions[cookie] = name, user
        self.answer(303, "text/plain", Location="/", Set_Cookie=f"session={cookie}; HttpOnly; SameSite=Lax")


ThreadingHTTPServer.request_queue_size = 1024  # Touchline opens many connections at once.
hooks = ThreadingHTTPServer(("127.0.0.1", 3001), Hooks)  # A port of its own: Touchline calls the hooks, and no browser may.
pages = ThreadingHTTPServer(("127.0.0.1", 3000), Pages)
threading.Thread(target=hooks.serve_forever, daemon=True).start()
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the program without a traceback.
print("the chat is at http://localhost:3000", flush=True)
pages.serve_forever()
