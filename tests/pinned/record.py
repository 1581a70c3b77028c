"""Write `recorded.json`: ``python -m tests.pinned.record [NAME ...]``, all names or those that are given (the others are kept).

The file names the commit of the package on which all was recorded; a call that is recorded again later names its own.
Seconds are of the machine that recorded, and nothing compares them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

from tests.campaign import table
from tests.pinned import answers

PATH = Path(__file__).with_name("recorded.json")


def package_commit() -> str:
    """The last commit that changed the package."""
    words = ["git", "log", "-1", "--format=%h", "--", "mechdesign"]
    return subprocess.run(
        words, cwd=PATH.parents[2], capture_output=True, text=True, check=True
    ).stdout.strip()


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    document = json.loads(PATH.read_text()) if PATH.exists() else {}
    commit = package_commit()
    first = document.get("commit", commit) if names else commit
    calls, facts = document.get("calls", {}), document.get("facts", {})
    for name in names or [*answers.NAMES, *answers.FACTS]:
        started = time.process_time()
        try:
            if name in answers.FACTS:
                facts[name] = answers.FACTS[name]()
            else:
                calls[name] = answers.record(name) | ({} if commit == first else {"commit": commit})
        except Exception:
            print(name, traceback.format_exc(limit=-2), file=sys.stderr)
        print(f"{time.process_time() - started:7.2f} s  {name}", flush=True)
    document = {"commit": first, "versions": table.versions()}
    document["calls"] = {name: calls[name] for name in answers.NAMES if name in calls}
    document["facts"] = {name: facts[name] for name in answers.FACTS if name in facts}
    text = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in document.pop("calls").items())
    more = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in document.pop("facts").items())
    head = json.dumps(document, indent=1)[:-2]
    PATH.write_text(f'{head},\n "calls": {{\n{text}\n }},\n "facts": {{\n{more}\n }}\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
