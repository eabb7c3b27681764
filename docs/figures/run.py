"""Runs every part of the plan below with `touchline-lab`, and writes the figures to docs/figures/run.json.

Usage: python3 docs/figures/run.py TOUCHLINE [--resume]     (`./x bench --write` builds the program and calls this)

One run has one name, one machine and one commit. It is kept in target/figures.json until all parts are measured.
`--resume` continues a run that was interrupted: it measures only the parts that are missing, and refuses if the commit
or the machine is another one.
The run takes about an hour. Nothing else may run on the machine meanwhile.
"""
import datetime
import json
import pathlib
import platform
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILE = HERE / "run.json"
PARTIAL = ROOT / "target" / "figures.json"
# What the measured programs are built from.
SOURCES = [":(glob)crates/*/src/**", "crates/lab/rivals"]
RIVALS = ROOT / "crates" / "lab" / "rivals"
UWS = ROOT / "target" / "uws"
WAYS = ["protobuf", "deflate", "http-stream", "sse", "tcp"]
PORT = 9_100


def rival(name):
    """The parts that measure a rival: the same scenarios, of a server that the lab has not started."""
    return [
        (f"{name} steady", "fanout --runs 3", name),
        (f"{name} burst", "fanout --preset burst --runs 3", name),
        (f"{name} connect", "connect --runs 3", name),
        (f"{name} storm", "storm --runs 3", name),
    ]


# The parts: a name, the arguments of `touchline-lab`, and the rival that is measured instead of Touchline.
PLAN = [
    ("steady", "fanout --runs 3", None),
    ("burst", "fanout --preset burst --runs 3", None),
    ("sparse", "fanout --preset sparse --runs 3", None),
    ("connect", "connect --runs 3", None),
    ("storm", "storm --runs 3", None),
    ("publish", "publish --runs 3", None),
    ("recovery", "recovery --runs 3", None),
    ("idle", "idle --runs 3", None),
    *rival("ws"),
    ("ws sparse", "fanout --preset sparse --runs 3", "ws"),
    ("ws publish", "publish --runs 3", "ws"),
    *rival("uws"),
    ("way websocket", "fanout --connections 5000 --runs 3", None),
    *((f"way {way}", f"fanout --way {way} --connections 5000 --runs 3", None) for way in WAYS),
    ("way tls", "fanout --way tls --connections 1000 --rate 4 --messages 24 --runs 3", None),
    ("way websocket, few", "fanout --connections 1000 --rate 4 --messages 24 --runs 3", None),
    ("idle websocket", "idle --connections 8000 --seconds 1 --runs 3", None),
    *((f"idle {way}", f"idle --way {way} --connections 8000 --seconds 1 --runs 3", None)
      for way in ["http-stream", "sse", "tcp", "tls"]),
    ("1 KB", "fanout --size 1024 --connections 5000 --runs 3", None),
    ("1 KB deflate", "fanout --way deflate --size 1024 --connections 5000 --runs 3", None),
    ("bytes", "bytes --runs 1", None),
    ("noisy", "noisy --runs 3", None),
    ("registry", "registry --runs 3", None),
    ("across", "across --runs 3", None),
    ("deploy", "deploy --runs 1", None),
    ("durable", "durable --runs 3", None),
    ("cold", "cold --runs 3", None),
    ("reopen", "reopen --runs 1", None),
    ("slow", "slow --runs 1", None),
    ("reactions", "reactions --runs 2", None),
]


def output(*words):
    """What a command prints."""
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def machine():
    """The machine, as the kernel describes it."""
    cpus = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    return {"processor": cpus[0], "processors": len(cpus), "memory_gib": round(memory / 2**20), "linux": platform.release()}


def rival_words(name):
    """The command that runs a rival."""
    if name == "ws":
        return ["node", str(RIVALS / "ws.mjs"), str(PORT)]
    if not (UWS / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(UWS)], check=True)
        subprocess.run([str(UWS / "bin" / "pip"), "install", "--quiet", "socketify==0.0.31"], check=True)
    return [str(UWS / "bin" / "python"), str(RIVALS / "uws.py"), str(PORT)]


def short(value, unit):
    """Four significant digits: more than a figure of a shared machine deserves. Counts, which have no unit, are exact."""
    return float(f"{value:.4g}") if isinstance(value, float) and unit else value


def figure(line):
    """A figure of the lab's JSON, with its runs as the lowest and the highest."""
    values, unit = line.pop("values"), line["unit"]
    kept = {key: short(value, unit) for key, value in line.items() if value is not None and key not in ("is_rate", "aim")}
    return kept | {"low": short(min(values), unit), "high": short(max(values), unit), "runs": len(values)}


def wait_for(process):
    """Waits until a rival listens."""
    for _ in range(100):
        if process.poll() is not None:
            sys.exit(f"the rival ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                return
        time.sleep(0.1)
    sys.exit("the rival does not listen")


def save(run):
    """Writes the parts so far. An interruption leaves the file as it was before."""
    fresh = PARTIAL.with_suffix(".tmp")
    fresh.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    fresh.replace(PARTIAL)


def measure(program, part):
    """Measures one part."""
    name, words, rival_name = part
    shown, arguments, process = f"touchline-lab {words}", words.split(), None
    if rival_name:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                sys.exit(f"the port {PORT} is in use")
        process = subprocess.Popen(rival_words(rival_name), cwd=ROOT / "tests" / "e2e", stdout=subprocess.DEVNULL)
        wait_for(process)
        arguments += ["--server", f"127.0.0.1:{PORT}", "--pid", str(process.pid), "--dialect", "raw"]
        shown += f" --server 127.0.0.1:{PORT} --pid PID --dialect raw"
    try:
        done = subprocess.run([program, *arguments, "--json", "--quiet"], capture_output=True, text=True, cwd=ROOT)
    finally:
        if process:
            process.kill()
            process.wait()
    # The lab ends with 1 if a figure is outside its bound: it is a figure all the same.
    if done.returncode not in (0, 1) or not done.stdout.strip():
        sys.exit(f"{shown} failed:\n{done.stderr}")
    figures = [figure(line) for line in json.loads(done.stdout)]
    return {"name": name, "command": shown, "date": f"{datetime.date.today():%-d %B %Y}", "figures": figures}


def main():
    program, is_resumed = str(pathlib.Path(sys.argv[1]).resolve()), "--resume" in sys.argv
    if output("git", "status", "--porcelain", "--", *SOURCES):
        sys.exit("commit the changes of the program first: a run names what it has measured")
    commit = output("git", "log", "-1", "--format=%h", "--abbrev=8", "--", *SOURCES)
    run = {"commit": commit, "profile": pathlib.Path(program).parent.name, "machine": machine(), "parts": []}
    if is_resumed:
        if not PARTIAL.exists():
            sys.exit("no run was interrupted: measure all parts, without --resume")
        begun = json.loads(PARTIAL.read_text())
        if any(begun[key] != run[key] for key in ("commit", "profile", "machine")):
            sys.exit("the interrupted run is of another program or machine: measure all parts, without --resume")
        planned = [name for name, *_ in PLAN]
        run["parts"] = [part for part in begun["parts"] if part["name"] in planned]
    done = {part["name"] for part in run["parts"]}
    for part in PLAN:
        if part[0] in done:
            continue
        start = time.monotonic()
        run["parts"].append(measure(program, part))
        run["parts"].sort(key=lambda measured: [name for name, *_ in PLAN].index(measured["name"]))
        save(run)
        print(f"{part[0]}: {time.monotonic() - start:.0f} s", flush=True)
    PARTIAL.replace(FILE)


if __name__ == "__main__":
    main()
