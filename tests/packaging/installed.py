"""A machine for installing packages: the files of this machine under a separate layer, with separate processes and a separate network."""

import os
import pathlib
import subprocess
import tempfile
import time

from waiting import PATIENCE, until

# The layer is in memory. /run is empty, as on a machine without systemd. systemd needs shared mounts, devices and a separate tree of
# cgroups.
ENTER = """
    set -eu
    layer=$1
    shift
    mount --make-rprivate /
    mount -t tmpfs layer "$layer"
    mkdir "$layer/upper" "$layer/work" "$layer/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
    cd "$layer/root"
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 dev dev
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
    while read -r name major minor; do mknod -m 666 "dev/$name" c "$major" "$minor"; done <<TXT
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
TXT
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    mount -t tmpfs -o mode=755 run run
    mount -t tmpfs -o mode=1777 tmp tmp
    mkdir run/lock
    # Removes the units that this machine starts, and its mounts.
    rm -f etc/fstab etc/systemd/system/*.wants/* etc/rc?.d/S*
    ip link set lo up
    echo entered
    exec env -i container=touchline PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . sh -c 'mount --make-rshared / && exec "$@"' sh "$@"
"""
SYSTEMD = ["/lib/systemd/systemd", "--system", "--unit=multi-user.target"]
# Files that dpkg and the tools for accounts write in addition to the files of a package.
NOISE = ("var/lib/dpkg/", "var/log/", "var/cache/", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/subuid", "etc/subgid", "etc/.pwd.lock",
         "var/lib/systemd/deb-systemd-helper", "root/", "etc/fstab", "etc/systemd/system/")


def cgroups() -> pathlib.Path:
    """The place where the tree of cgroups of version 2 is mounted."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(place)
    raise AssertionError("the tests of packages need cgroups of version 2")


class Machine:
    """A machine for `with Machine() as machine`. It leaves no files behind. With `systemd`, systemd runs as its first process."""

    def __init__(self, systemd: bool = False):
        self.first = SYSTEMD if systemd else ["sleep", "infinity"]

    def __enter__(self):
        assert os.geteuid() == 0, "the tests of packages install them: run as root"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="touchline-packages-"))
        self.cgroup = cgroups() / self.directory.name
        self.cgroup.mkdir()
        spaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup"]
        enter = 'echo $$ >"$1/cgroup.procs"; shift; exec unshare "$@"'
        words = ["sh", "-c", enter, "sh", str(self.cgroup), *spaces, "--fork", "--kill-child", "sh", "-c", ENTER, "sh", str(self.directory), *self.first]
        self.holder = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            self.enter()
        except BaseException:
            self.__exit__()
            raise
        return self

    def enter(self) -> None:
        said = self.holder.stdout.readline()
        assert said == "entered\n", said + self.holder.stdout.read()
        [self.pid] = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()
        # Units of this machine may fail here, so the state "degraded" counts as a complete start too.
        started = "systemctl is-system-running | grep -qE '^(running|degraded)$'"
        self.wait(started if self.first is SYSTEMD else "test -e /dev/fd")
        # With this file, packages would start no services.
        self.run("rm", "-f", "/usr/sbin/policy-rc.d")

    def __exit__(self, *_):
        (self.cgroup / "cgroup.kill").write_text("1")
        self.holder.communicate()
        while "populated 1" in (self.cgroup / "cgroup.events").read_text():
            time.sleep(0.01)  # waits: for the end of the processes.
        for directory, _, _ in os.walk(self.cgroup, topdown=False):
            os.rmdir(directory)
        self.directory.rmdir()

    def wait(self, script: str) -> None:
        """Waits until a script succeeds."""
        last = None

        def succeeds() -> bool:
            nonlocal last
            last = self.try_to("sh", "-c", script)
            return last.returncode == 0

        until(succeeds, lambda: f"{script}: {last.stdout}{last.stderr}")

    def words(self, *words: str) -> list[str]:
        root = str(self.directory / "root")
        enter = ["nsenter", "--target", self.pid, "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup"]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return [*enter, "chroot", root, "env", "-i", path, "HOME=/root", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", *words]

    def try_to(self, *words: str, **options) -> subprocess.CompletedProcess:
        return subprocess.run(self.words(*words), capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, **options)

    def run(self, *words: str) -> str:
        done = self.try_to(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *words: str, log) -> subprocess.Popen:
        return subprocess.Popen(self.words(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"'
        subprocess.run(self.words("sh", "-c", script, "sh", path, f"{mode:o}"), input=text, text=True, check=True, timeout=PATIENCE)

    def read(self, path: str) -> str:
        return self.run("cat", path)

    def is_there(self, path: str) -> bool:
        return self.try_to("test", "-e", path).returncode == 0

    def mode(self, path: str) -> str:
        """The mode and the owners, such as `640 root:touchline`."""
        return self.run("stat", "--format=%a %U:%G", path).strip()

    def put(self, package: pathlib.Path) -> str:
        """Copies a file to /tmp, and returns its path."""
        place = f"/tmp/{package.name}"
        with package.open("rb") as source:
            subprocess.run(self.words("sh", "-c", 'cat >"$1"', "sh", place), stdin=source, check=True, timeout=PATIENCE)
        return place

    def changed(self) -> set[str]:
        """The files that the layer has in addition to this machine's files, without the files that dpkg writes for every package."""
        upper = self.directory / "upper"
        words = ["nsenter", "--target", self.pid, "--mount", "find", str(upper), "(", "-type", "f", "-o", "-type", "l", ")", "-printf", "%P\\n"]
        found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
        return {path for path in found.splitlines() if not path.startswith(NOISE)}
