"""Shared by all of red-box: domain types, the interface to workload managers, time, caching, YAML."""
