"""A device in MicroPython (or Python): one socket, one JSON object a line. It hears commands in its channel and publishes readings.

A connection that is lost is made again. What the server refuses for good ends the program.

Usage: device.py HOST PORT CHANNEL [TOKEN]
"""

import json
import socket
import sys
import time

# Seconds between two readings; first and longest pause between two tries to connect, seconds.
READING = 10
PAUSE_MIN, PAUSE_MAX = 1, 60


class Refused(Exception):
    """The server refuses this device for good: reconnecting would not help."""


class Device:
    """One connection. When it is lost, its methods raise OSError."""

    def __init__(self, host, port, token=""):
        address = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)[0]
        self.socket = socket.socket(address[0])
        self.socket.connect(address[-1])
        # The caller gets its turn at least this often.
        self.socket.settimeout(1)
        self.number = 0
        self.input = b""
        self.send(connect={"token": token})

    def send(self, **command):
        """Sends a command and returns its number, which the reply repeats."""
        self.number += 1
        command["id"] = self.number
        self.socket.sendall(json.dumps(command).encode() + b"\n")
        return self.number

    def message(self):
        """The next reply or push; None if nothing arrived for a while. Pings are answered here."""
        while b"\n" not in self.input:
            try:
                received = self.socket.recv(1024)
            except OSError as error:
                # A timeout, whatever this Python calls it.
                if isinstance(error, getattr(socket, "timeout", ())) or error.args[:1] in ((11,), (110,)):
                    return None
                raise
            if not received:
                raise OSError("the server has gone")
            self.input += received
        line, self.input = self.input.split(b"\n", 1)
        if line.strip() == b"{}":
            self.socket.sendall(b"{}\n")
            return None
        return json.loads(line) if line.strip() else None

    def close(self):
        self.socket.close()


def serve(device, channel):
    """Prints the publications of the channel and publishes readings, until the connection is lost."""
    subscribed = device.send(subscribe={"channel": channel})
    is_subscribed, due = False, 0
    while True:
        message = device.message() or {}
        push = message.get("push", {})
        if "error" in message and not message["error"].get("temporary"):
            raise Refused(message["error"]["message"])
        if "error" in message:
            raise OSError(message["error"]["message"])
        if "disconnect" in push:
            code, reason = push["disconnect"]["code"], push["disconnect"]["reason"]
            # 3500 to 3999 and 4500 to 4999 are final.
            raise (Refused if 3500 <= code < 4000 or 4500 <= code < 5000 else OSError)(reason)
        if message.get("id") == subscribed:
            is_subscribed = True
            print("subscribed", flush=True)
        elif "pub" in push:
            print(json.dumps(push["pub"]["data"]), flush=True)
        if is_subscribed and time.time() >= due:
            due = time.time() + READING
            device.send(publish={"channel": channel, "data": {"temperature": 21.5}})


def main(host="127.0.0.1", port="8001", channel="news", token=""):
    pause = PAUSE_MIN
    while True:
        began = time.time()
        device = None
        try:
            device = Device(host, int(port), token)
            serve(device, channel)
        except Refused as refused:
            raise SystemExit("refused: {}".format(refused))
        except OSError as error:
            if time.time() - began > PAUSE_MAX:
                pause = PAUSE_MIN
            print("lost: {}; again in {} s".format(error, pause), file=sys.stderr, flush=True)
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)
        finally:
            if device:
                device.close()


main(*sys.argv[1:])
