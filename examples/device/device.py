"""A device in MicroPython (or Python): one socket, one JSON object a line. It hears commands in its channel and publishes readings.

Usage: device.py HOST PORT CHANNEL [TOKEN]
"""

import json
import socket
import sys


class Device:
    """A connection that is made again whenever it is lost."""

    def __init__(self, host, port, token=""):
        self.socket = socket.socket()
        self.socket.connect(socket.getaddrinfo(host, port)[0][-1])
        self.file = self.socket.makefile("rb")
        self.number = 0
        self.send(connect={"token": token})

    def send(self, **command):
        """Sends a command; its number comes back with the reply."""
        self.number += 1
        command["id"] = self.number
        self.socket.send(json.dumps(command).encode() + b"\n")
        return self.number

    def messages(self):
        """Replies and pushes, as they come. Pings are answered here."""
        while True:
            line = self.file.readline()
            if not line:
                raise OSError("the server has gone")
            message = json.loads(line)
            if message:
                yield message
            else:
                self.socket.send(b"{}\n")


def main(host="127.0.0.1", port="8001", channel="news", token=""):
    device = Device(host, int(port), token)
    subscribed = device.send(subscribe={"channel": channel})
    for message in device.messages():
        if "error" in message:
            raise SystemExit(message["error"]["message"])
        if message.get("id") == subscribed:
            print("subscribed", flush=True)
            device.send(publish={"channel": channel, "data": {"temperature": 21.5}})
        elif "pub" in message.get("push", {}):
            print(json.dumps(message["push"]["pub"]["data"]), flush=True)


main(*sys.argv[1:])
