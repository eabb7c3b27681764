"""Runs the steps of a page in a sandbox, in their order."""

import os
import re
import signal
import subprocess
import tempfile
import time

from page import INTERPRETERS, Step
from sandbox import REPOSITORY, Sandbox

BLOCK_SECONDS = 280
PAGE_SECONDS = 290
# Keys without which `touchline check` warns; blocks of a page show the keys that the page is about.
SECRETS = "TOUCHLINE_HTTP_API_KEY=key-of-the-test-of-pages TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY=secret-of-the-test-of-pages-0123456789"


class Failure(Exception):
    """A step that did not do what the page says."""


class Process:
    """A command in the sandbox, and what it has printed."""

    def __init__(self, sandbox: Sandbox, command: str, text: str):
        self.output = tempfile.TemporaryFile()
        # The text is in a file, so that commands of the block cannot read the rest of the block from their standard input.
        script = f'set -e; text=$(mktemp); cat >"$text"; exec </dev/null; {command}'
        # A file takes the output, so that a process which the block leaves behind keeps nobody waiting.
        self.process = subprocess.Popen(
            sandbox.words("bash", "-c", script), stdin=subprocess.PIPE, stdout=self.output, stderr=self.output, start_new_session=True
        )
        self.process.stdin.write(text.encode())
        self.process.stdin.close()

    def said(self) -> str:
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, seconds: float) -> int:
        """Waits for the end, and returns the status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"it did not end in {seconds:.0f} s") from None


class Run:
    """The run of one page."""

    def __init__(self, sandbox: Sandbox):
        self.sandbox = sandbox
        self.until = time.monotonic() + PAGE_SECONDS
        self.background: "list[tuple[Step, Process]]" = []
        self.last = None

    def seconds(self) -> float:
        """How long the next block may take."""
        return max(1, min(BLOCK_SECONDS, self.until - time.monotonic()))

    def do(self, step: Step) -> None:
        """Does a step; raises Failure if the step does not do what the page says."""
        self.last = None
        if step.action == "":
            return
        if step.action in ("file", "append", "merge"):
            self.write(step)
        elif step.action == "check":
            self.foreground(step, f'cp "$text" /tmp/checked.toml; {SECRETS} touchline check /tmp/checked.toml')
        elif step.action == "background":
            self.wait(step)
        elif step.action == "setup":
            self.foreground(step, INTERPRETERS["sh"], "set -a\n" + step.text + "\nset +a\nexport -p >/tmp/exported\n")
        else:
            self.foreground(step, INTERPRETERS[step.language])

    def start(self, command: str, text: str) -> Process:
        self.last = Process(self.sandbox, command, text)
        return self.last

    def foreground(self, step: Step, command: str, text: str = "") -> None:
        process = self.start(command, text or step.text)
        status = process.end(self.seconds())
        if (status == 0) == (step.action == "fails"):
            raise Failure(f"it ended with status {status}")
        if step.action in ("output", "fails") and not re.search(step.argument, process.said(), re.MULTILINE):
            raise Failure("its output does not match the pattern")

    def wait(self, step: Step) -> None:
        """Starts a block that runs on, and waits for its output."""
        process = self.start(INTERPRETERS[step.language], step.text)
        self.background.append((step, process))
        until = time.monotonic() + self.seconds()
        while not re.search(step.argument, process.said(), re.MULTILINE):
            status = process.process.poll()
            if status is not None and not re.search(step.argument, process.said(), re.MULTILINE):
                raise Failure(f"it ended with status {status} before its output matched the pattern")
            if time.monotonic() > until:
                raise Failure("its output did not match the pattern in time")
            time.sleep(0.05)  # waits: between two looks.

    def write(self, step: Step) -> None:
        how = {"file": 'cat "$text" >"$path"', "append": 'cat "$text" >>"$path"', "merge": f'{REPOSITORY}/tests/docs/merge.py "$path" <"$text"'}
        self.foreground(step, f'path={step.argument}; mkdir -p "$(dirname "$path")"; {how[step.action]}')

    def report(self) -> str:
        """What the last step and the blocks in the background have printed."""
        parts = [self.last.said()] if self.last else []
        parts += [f"-- in the background, {step}:\n{process.said()}" for step, process in self.background if process is not self.last]
        return "\n".join(part.rstrip()[-8_000:] for part in parts)

    def stop(self) -> None:
        for _, process in self.background:
            if process.process.poll() is None:
                process.kill()
