"""Reads an image archive, and runs a program from its unpacked root as a container does."""

import hashlib
import io
import json
import os
import pathlib
import struct
import subprocess
import tarfile

PROGRAM_INTERPRETER = 3


class Image:
    """An OCI layout in a tar archive. Each blob is compared with its digest and its size when it is read."""

    def __init__(self, archive: pathlib.Path):
        self.archive = archive
        with tarfile.open(archive) as tar:
            self.names = tar.getnames()
            self.files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
        self.index = json.loads(self.files["index.json"])
        [self.entry] = self.index["manifests"]
        self.manifest = json.loads(self.blob(self.entry))
        self.configuration = json.loads(self.blob(self.manifest["config"]))
        self.config = self.configuration["config"]

    def blob(self, descriptor: dict) -> bytes:
        algorithm, name = descriptor["digest"].split(":")
        content = self.files[f"blobs/{algorithm}/{name}"]
        assert hashlib.new(algorithm, content).hexdigest() == name, descriptor
        assert len(content) == descriptor["size"], descriptor
        return content

    def layers(self) -> list[bytes]:
        return [self.blob(layer) for layer in self.manifest["layers"]]


def interpreter(binary: bytes) -> bool:
    """Whether an executable needs a loader of shared libraries. An image without libraries has no loader."""
    headers, size, count = struct.unpack_from("<Q", binary, 32)[0], *struct.unpack_from("<HH", binary, 54)
    return any(struct.unpack_from("<I", binary, headers + size * at)[0] == PROGRAM_INTERPRETER for at in range(count))


def unpack(image: Image, root: pathlib.Path) -> None:
    """Unpacks all layers with their owners. The caller must be root."""
    root.mkdir()
    for layer in image.layers():
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            tar.extractall(root, numeric_owner=True, filter="fully_trusted")


# The root is read-only, the data directory in it is a volume, and the program has no privileges. The program has the pid of the started
# process.
ENTER = """
    set -eu
    mount --make-rprivate /
    mount --bind "$1" "$1"
    mount --bind "$2" "$1$3"
    mount -o remount,bind,ro "$1"
    root=$1 directory=$3 user=$4
    shift 4
    exec setpriv --no-new-privs unshare --root="$root" --wd="$directory" --setgid="$user" --setuid="$user" "$@"
"""


def start(image: Image, root: pathlib.Path, data: pathlib.Path, arguments: list[str], environment: dict, log) -> subprocess.Popen:
    """Starts the image's entry point with the user, directory and variables of its configuration. `data` is its volume.

    The mounts are in a namespace of the process and end with it. The caller must be root.
    """
    config = image.config
    user, _ = config["User"].split(":")
    [volume] = config["Volumes"]
    assert config["WorkingDir"] == volume
    variables = dict(variable.split("=", 1) for variable in config["Env"])
    enter = ["unshare", "--mount", "sh", "-c", ENTER, "sh", str(root), str(data), volume, user]
    # This path is for the tools that start the program. They end when the program begins.
    path = {"PATH": os.environ["PATH"]}
    return subprocess.Popen([*enter, *config["Entrypoint"], *arguments], env={**variables, **path, **environment}, stdout=log, stderr=log)
