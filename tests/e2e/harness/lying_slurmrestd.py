"""A proxy between the operator and slurmrestd, in the control pod, that lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.e2e.harness.hosted_slurm import CLUSTER, NAMESPACE, HostedSlurm
from tests.e2e.harness.waiting import eventually

REQUESTS = 6
"""As many as the operator sends in a few reconciliations."""

# Standard library only: it runs with the front's Python, in place of the socket that the front connects to.
PROXY = """
import asyncio, os, re, sys
how, node = sys.argv[1:]
at, real, end, log = "slurmrestd.sock", "real", "end", "asked"
first = {}

def made(body, status=b"200 OK"):
    head = b"HTTP/1.1 %s\\r\\nContent-Length: %d\\r\\nConnection: Close\\r\\n\\r\\n" % (status, len(body))
    return head + body

def forged(path, answer):
    body = answer.partition(b"\\r\\n\\r\\n")[2]
    if how == "errors":
        return made(b'{"nodes": [], "jobs": [], "errors": [{"error": "x", "error_number": 1}]}')
    if how == "half":
        return answer[: len(answer) // 2]
    if how == "another node":
        return made(body.replace(b'"%s"' % node, b'"other-1"'))
    if how == "idle and drained":
        return made(re.sub(rb'"(ALLOCATED|MIXED)"', b'"IDLE", "DRAIN"', body))
    if how == "no jobs":
        return made(re.sub(rb'"jobs":.*', b'"jobs": [], "last_update": {"set": false}}', body, flags=re.S)
                    if path == b"jobs" else body)
    if how == "the first answer again":
        return first.setdefault(path, answer)
    return answer

async def handle(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    length = re.search(rb"content-length: (\\d+)", head, re.I)
    request = head + await reader.readexactly(int(length[1]) if length else 0)
    with open(log, "ab") as file:
        file.write(head.split(b"\\r\\n")[0] + b"\\n")
    if how == "hangs":
        await asyncio.sleep(600)
    if how == "502 after 20 s":
        await asyncio.sleep(20)
        writer.write(made(b"", b"502 Bad Gateway"))
    else:
        from_real, to_real = await asyncio.open_unix_connection(real)
        to_real.write(request)
        answer = await from_real.read()
        path = head.split(b"/")[3].split(b" ")[0]
        writer.write(forged(path, answer) if head.startswith(b"GET") else answer)
        to_real.close()
    await writer.drain()
    writer.close()

async def main():
    os.rename(at, real)
    server = await asyncio.start_unix_server(handle, at)
    for _ in range(1200):
        if os.path.exists(end):
            break
        await asyncio.sleep(0.1)
    os.rename(real, at)
    os.remove(end)

node = node.encode()
asyncio.run(main())
"""


@dataclass(frozen=True)
class LyingSlurmrestd:
    """As long as it lies."""

    slurm: HostedSlurm
    pod: str

    def is_asked(self) -> None:
        """Often enough for all that the operator would do."""
        before = self._asked()
        eventually(lambda: self._asked() >= before + REQUESTS, what="some requests of the operator")

    def _asked(self) -> int:
        return int(self.run("cat asked 2>/dev/null | wc -l"))

    def run(self, script: str, *arguments: str) -> str:
        exec_ = ("exec", f"--namespace={NAMESPACE}", self.pod, "--container=front", "--")
        return self.slurm.kubernetes(*exec_, "sh", "-c", f"cd /run/slurmrestd; {script}", *arguments).strip()


@contextmanager
def lying(slurm: HostedSlurm, how: str, node: str) -> Iterator[LyingSlurmrestd]:
    """In one of the ways of PROXY, about this node."""
    pods = slurm.kubernetes.list("pod", NAMESPACE, labels=f"app.kubernetes.io/instance={CLUSTER}")
    (pod,) = (
        pod["metadata"]["name"]
        for pod in pods
        if pod["metadata"]["name"].startswith(f"{CLUSTER}-control-")
        and "deletionTimestamp" not in pod["metadata"]
    )
    liar = LyingSlurmrestd(slurm, pod)
    start = 'rm -f end asked; setsid python3 -c "$0" "$@" </dev/null >lies 2>&1 &'
    liar.run(f"{start} until [ -e real ]; do sleep 0.1; done", PROXY, how, node)
    try:
        yield liar
    finally:
        liar.run("touch end; while [ -e end ]; do sleep 0.1; done")
