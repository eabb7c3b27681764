"""A machine to install packages in: this one's files under a layer of their own, with processes and a network of its own."""

import os
import pathlib
import subprocess
import tempfile

# The layer is in memory; /run is empty, as where no systemd runs.
ENTER = """
    set -eu
    mount --make-rprivate /
    mount -t tmpfs layer "$1"
    mkdir "$1/upper" "$1/work" "$1/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
    mount --rbind /dev "$1/root/dev"
    mount -t proc proc "$1/root/proc"
    mount -t tmpfs run "$1/root/run"
    mount -t tmpfs tmp "$1/root/tmp"
    mkdir -p "$1/root/run/lock"
    ip link set lo up
    echo entered
    exec sleep infinity
"""
# What dpkg and the accounts' tools write beside what a package asks for.
NOISE = ("var/lib/dpkg/", "var/log/", "var/cache/", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/subuid", "etc/subgid", "etc/.pwd.lock",
         "var/lib/systemd/deb-systemd-helper", "root/")


class Machine:
    """Made by `with Machine() as machine`; nothing of it is left behind."""

    def __enter__(self):
        assert os.geteuid() == 0, "the tests of packages install them: run as root"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="touchline-packages-"))
        words = ["unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", str(self.directory)]
        self.holder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self.holder.stdout.readline()
        assert said == "entered\n", said + self.holder.stdout.read()
        [self.pid] = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()
        # A service of this machine that runs already must not be asked for anything.
        self.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
        return self

    def __exit__(self, *_):
        self.holder.kill()
        self.holder.communicate()
        self.directory.rmdir()

    def words(self, *words: str) -> list[str]:
        root = str(self.directory / "root")
        enter = ["nsenter", "--target", self.pid, "--mount", "--pid", "--net", "--ipc"]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return [*enter, "chroot", root, "env", "-i", path, "HOME=/root", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", *words]

    def try_to(self, *words: str, **options) -> subprocess.CompletedProcess:
        return subprocess.run(self.words(*words), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **options)

    def run(self, *words: str) -> str:
        done = self.try_to(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *words: str, log) -> subprocess.Popen:
        return subprocess.Popen(self.words(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        script = 'cat >"$1" && chmod "$2" "$1"'
        subprocess.run(self.words("sh", "-c", script, "sh", path, f"{mode:o}"), input=text, text=True, check=True, timeout=60)

    def read(self, path: str) -> str:
        return self.run("cat", path)

    def is_there(self, path: str) -> bool:
        return self.try_to("test", "-e", path).returncode == 0

    def mode(self, path: str) -> str:
        """Mode and owners, as `640 root:touchline`."""
        return self.run("stat", "--format=%a %U:%G", path).strip()

    def put(self, package: pathlib.Path) -> str:
        """Copies a file to /tmp, and tells where it is."""
        place = f"/tmp/{package.name}"
        with package.open("rb") as source:
            subprocess.run(self.words("sh", "-c", 'cat >"$1"', "sh", place), stdin=source, check=True, timeout=60)
        return place

    def changed(self) -> set[str]:
        """The files that are not this machine's, without what dpkg notes of every package."""
        upper = self.directory / "upper"
        words = ["nsenter", "--target", self.pid, "--mount", "find", str(upper), "(", "-type", "f", "-o", "-type", "l", ")", "-printf", "%P\\n"]
        found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        return {path for path in found.splitlines() if not path.startswith(NOISE)}
