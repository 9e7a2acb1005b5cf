"""Shared by all of red-box: domain types, the seam to workload managers, time, caching, YAML."""
