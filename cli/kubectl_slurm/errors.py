"""What ends a command: each is one sentence for the terminal, with the cure.

PluginError                what was asked for cannot be done
├── BadUsage               the command line is wrong
│   └── BadManifest        what `convert` was given cannot be read
├── Refusal                the API server, or kubectl, refused or did not answer
│   ├── KindsMissing       the cluster has no SlurmJobs
│   ├── NotAnswered        it did not answer, or cannot now: asked again it may
│   ├── ObjectNotFound     there is no such object
│   └── NotPermitted       the user lacks a right
└── JobTrouble             of a job that was followed: it cannot be followed any further
"""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class PluginError(Exception):
    """What was asked for cannot be done; the message says why, and what to do."""

    exit_code = EXIT_FAILED


class BadUsage(PluginError):
    """The command line is wrong."""

    exit_code = EXIT_USAGE


class Refusal(PluginError):
    """kubectl, or the API server behind it, refused or did not answer."""


class KindsMissing(Refusal):
    """The cluster does not have the kinds of Red Box."""


class NotAnswered(Refusal):
    """The API server did not answer, or cannot now: what was asked for may have been done."""


class ObjectNotFound(Refusal):
    """There is no such object."""


class NotPermitted(Refusal):
    """The user lacks a right in Kubernetes."""


class JobTrouble(PluginError):
    """A job that was followed cannot be followed any further."""
