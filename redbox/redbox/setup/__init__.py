"""Setting up a login node.

What `redbox init` writes is in `initialize`, `example` and `manifest`; what `redbox check` finds, in `checks`
and its probes, by way of `machine`. The commands themselves are in `cli`.
"""
