"""What the tests of packages share: how long they wait, and their ports."""

import random
import socket
import time

#: Seconds: several times as long as a busy machine stands still.
PATIENCE = 120
#: The ports of these tests (CONTRIBUTING.md).
PORTS = range(26_000, 27_000)


def until(condition, what=lambda: "the condition") -> None:
    """Waits until a condition holds. `what` returns the words of the failure."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.05)  # waits: between two looks.


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
