"""The block for pytest in the guide to tests of programs runs as it is."""

import os
import re
import subprocess
import sys

from conftest import BINARY, PATIENCE, ROOT


def test_the_block_for_pytest_is_a_whole_test(tmp_path):
    page = (ROOT / "docs/guides/testing.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page.split("\n## pytest\n")[1].split("\n## ")[0], re.S | re.M)
    (tmp_path / "test_live.py").write_text(block)
    (tmp_path / "touchline").symlink_to(os.path.abspath(BINARY))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_live.py"]
    run = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0 and "1 passed" in run.stdout, run.stdout + run.stderr
