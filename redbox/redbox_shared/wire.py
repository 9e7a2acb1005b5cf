"""Names in red-box's HTTP API that its clients in different parts need, the companion among them."""

from __future__ import annotations

PROBLEMS = "https://redbox.dev/problems/"
"""Before the name of each type of problem: an error without it did not come from red-box."""
GENERATION_HEADER = "Redbox-Generation"
"""Which file a log is read from: a requeue begins a new one. Empty: there is no file."""
OFFSET_HEADER = "Redbox-Offset"
"""At which byte of that file the response begins."""
RESTART_HEADER = "Redbox-Restart"
"""Of a pod: which start of the container the bytes are of, from 0; the next request names it."""
EXEC_PROTOCOL = "v1.exec.redbox.dev"
STREAM_HEADER = "Redbox-Stream"
"""Of the upgrade of a session or forward: its id, by which a request renews it."""
PORTS_PROTOCOL = "v1.ports.redbox.dev"
"""The subprotocol of a WebSocket that carries TCP connections to ports of a job."""
PORTS_WINDOW = 256 * 1024
"""Credit of each direction of a forwarded connection: a stalled one holds back no other."""
PORTS_MORE_TO_JOB = 256 * 1024
"""Of the direction to the job: red-box grants it as soon as the connection is carried."""
MESSAGE_COST = 64
"""Of a message of data in credit, beside its bytes."""
CONNECTION_RESET = "ConnectionReset"
"""Reason of a forwarded connection that the job's server has reset: it may have sent half of an answer."""
HELD_BY_USER = "JobHeldUser"
HELD_REASONS = frozenset({HELD_BY_USER, "JobHeldAdmin"})
"""Slurm's reasons of a pending job that starts only after a release."""
HELD_BY_SLURM = frozenset({
    "JobHoldMaxRequeue",
    "launch failed requeued held",
    "launch_failed_requeued_held",
    "user env retrieval failed requeued held",
    "user_env_retrieval_failed_requeued_held",
})  # fmt: skip
"""Reasons of a job that Slurm holds since it could not launch it; squeue has blanks, scontrol underscores."""
LAUNCH_FAILED = "LaunchFailed"
"""Red-box's reason of a job that Slurm cancelled since its node could not launch it."""
