"""Pods bound to virtual nodes: submitting their jobs, and reporting their status."""
