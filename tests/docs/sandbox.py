"""The machine that a page runs on: this one's files under a layer of its own, with processes and a network of its own.

Only loopback is there. Nothing that a page installs, creates or starts is left behind.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/packaging"))
from installed import PATIENCE, Machine  # noqa: E402

HOME = "/home/reader"
REPOSITORY = "/opt/repository"
PROGRAM = "/opt/bin/touchline"
MODULES = "/opt/node_modules"
PATH = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", f"{REPOSITORY}/tests/docs/commands", f"{REPOSITORY}/target/bin"]

# The source is under a layer of its own, because it may be in another file system; a page may write into it.
MOUNT = """
    set -eu
    layer=$1 root=$1/root source=$2 program=$3 modules=$4
    mkdir -p "$layer/source" "$layer/work-of-source" "$root/opt/repository" "$root/opt/bin" "$root/home/reader"
    mount -t overlay overlay -o "lowerdir=$source,upperdir=$layer/source,workdir=$layer/work-of-source" "$root/opt/repository"
    touch "$root/opt/bin/touchline"
    mount --bind "$program" "$root/opt/bin/touchline"
    ln -sf /opt/bin/touchline "$root/usr/local/bin/touchline"
    touch "$root/opt/bin/touchline-lab"
    mount --bind "$program-lab" "$root/opt/bin/touchline-lab"
    ln -sf /opt/bin/touchline-lab "$root/usr/local/bin/touchline-lab"
    if [ -n "$modules" ]; then mkdir "$root/opt/node_modules" && mount --bind "$modules" "$root/opt/node_modules"; fi
"""


def environment() -> "dict[str, str]":
    """The variables of each block, and of the commands in `tests/docs/commands`."""
    go = [os.path.dirname(path) for path in [shutil.which("go"), shutil.which("node")] if path]
    return {
        "PATH": ":".join([*PATH, *(directory for directory in go if directory not in PATH)]),
        "HOME": HOME, "USER": "root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
        "REPOSITORY": REPOSITORY, "E2E_MODULES": MODULES,
        # What the Go suite has compiled; a page has no network.
        "GOCACHE": os.path.expanduser("~/.cache/go-build"), "GOPROXY": "off", "GOTOOLCHAIN": "local",
        # What a `setup` sets is there in the later blocks.
        "BASH_ENV": "/tmp/exported", "PGUSER": "postgres", "PGHOST": "127.0.0.1",
    }


class Sandbox(Machine):
    """Made by `with Sandbox(program) as sandbox`; with `systemd` it is one that systemd runs."""

    def __init__(self, program: pathlib.Path, systemd: bool = False):
        super().__init__(systemd)
        self.program = program
        if not systemd:
            # The kernel then removes processes that end without a parent; `tail --pid` would wait for them.
            self.first = ["env", "--ignore-signal=CHLD", *self.first]

    def enter(self) -> None:
        super().enter()
        modules = pathlib.Path(os.environ.get("E2E_MODULES", ROOT / "tests/e2e/node_modules"))
        words = [str(self.directory), str(ROOT), str(self.program), str(modules.resolve()) if modules.is_dir() else ""]
        enter = ["nsenter", "--target", self.pid, "--mount", "sh", "-c", MOUNT, "sh", *words]
        done = subprocess.run(enter, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        self.run("touch", "/tmp/exported")

    def words(self, *words: str) -> "list[str]":
        """The command that runs `words` in the sandbox, in the directory of the page."""
        variables = [f"{name}={value}" for name, value in environment().items()]
        entered = super().words()
        chroot = entered.index("chroot")
        return [*entered[:chroot + 2], "env", "-i", "--chdir=/", *variables, "sh", "-c", f'cd {HOME} 2>/dev/null; exec "$@"', "sh", *words]
