"""Hosts as namespaces: their Debian roots, cgroups, network, users and commands."""
