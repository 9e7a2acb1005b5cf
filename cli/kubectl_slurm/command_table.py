"""The commands: for the help, for completion, and to find the module of each."""

from __future__ import annotations

COMMANDS = {
    "submit": ("submission", "submit a batch script, as sbatch does"),
    "queue": ("queue", "what waits and runs, as squeue shows it"),
    "info": ("info", "partitions, limits and free resources, as sinfo shows them"),
    "history": ("history", "what has ended, as sacct shows it"),
    "top": ("top", "used CPUs and memory against what was asked for; of an ended job as seff shows it"),
    "logs": ("logs", "print or follow a job's output"),
    "cancel": ("actions", "cancel jobs, as scancel does"),
    "hold": ("actions", "keep waiting jobs from starting"),
    "release": ("actions", "let held jobs start"),
    "requeue": ("actions", "end running jobs and queue them again"),
    "suspend": ("actions", "cancel jobs now, and run them again later"),
    "resume": ("actions", "run suspended jobs again"),
    "shell": ("into_jobs.sessions", "open a shell in a running job"),
    "exec": ("into_jobs.sessions", "run a command in a running job"),
    "cp": ("into_jobs.copies", "copy files from and to a running job"),
    "forward": ("into_jobs.forwards", "forward local ports to a running job"),
    "explain": ("explain", "why a job is where it is, and what to do"),
    "doctor": ("doctor", "check the whole way from here to Slurm"),
    "convert": ("convert", "make hosted Slurm's manifests of those of Slinky's operator"),
    "completion": ("completion", "print the completion script of a shell"),
}
"""Each command's module, and what it does."""
