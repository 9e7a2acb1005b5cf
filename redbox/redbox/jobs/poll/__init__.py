"""Keeps the records up to date with the queue: when to poll, what a missing job means."""
