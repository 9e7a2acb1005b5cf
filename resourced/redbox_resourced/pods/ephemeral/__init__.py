"""Containers that `kubectl debug` adds to pods whose jobs run."""
