"""Pods that run: from their job, and from what the runner on the node reports, to their status and events."""
