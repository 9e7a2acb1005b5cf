"""The search of a built site, by its own program: the worker that a browser runs, here in Node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

WITHIN_S = 60
DRIVER = """
const fs = require("fs");
const [worker, index, ...asked] = process.argv.slice(1);
const found = {};
globalThis.self = {postMessage(message) {
    if (message.type === 4) throw new Error("the search has failed");
    if (message.type === 3) found[asked[0]] = message.data.items.map(item => item.id), asked.shift();
    if (asked.length) self.onmessage({data: {type: 2, data: {input: asked[0]}}});
    else console.log(JSON.stringify(found));
}};
eval(fs.readFileSync(worker, "utf8"));
self.onmessage({data: {type: 0, data: JSON.parse(fs.readFileSync(index, "utf8"))}});
"""


def found(site: Path, *asked: str) -> dict[str, list[str]]:
    """For each of what is asked the addresses of sections, the first one first."""
    (worker,) = (site / "assets/javascripts/workers").glob("search.*.min.js")
    index = site / "search.json"
    command = ["node", "-e", DRIVER, "--", str(worker), str(index), *asked]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WITHIN_S)
    assert ended.returncode == 0, ended.stderr[-2000:]
    places = [section["location"] for section in json.loads(index.read_text())["items"]]
    return {
        words: [places[number] for number in numbers] for words, numbers in json.loads(ended.stdout).items()
    }
