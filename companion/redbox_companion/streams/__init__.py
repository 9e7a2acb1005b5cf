"""Connections into the running job, by red-box's WebSockets; imported only where a job has ports."""
