"""Records as squeue prints them."""

from __future__ import annotations

PLAIN = {
    "JobID": "7",
    "ArrayJobID": "7",
    "ArrayTaskID": "N/A",
    "HetJobID": "N/A",
    "HetJobOffset": "N/A",
    "UserID": "2001",
    "State": "PENDING",
    "exit_code": "0:0",
    "RestartCnt": "0",
    "Requeue": "1",
    "SubmitTime": "1795254165",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "Reason": "Priority",
    "Partition": "debug",
    "Account": "physics",
    "QOS": "normal",
    "NodeList": "",
    "UserName": "alice",
    "Name": "job",
    "Comment": "(null)",
    "STDOUT": "/home/alice/slurm-%j.out",
    "STDERR": "(null)",
    "WorkDir": "/home/alice",
    "SchedNodes": "(null)",
}


def job(job_id: str, **fields: str) -> dict[str, str]:
    return PLAIN | {"JobID": job_id, "ArrayJobID": job_id, "Comment": "rb1.mark"} | fields
