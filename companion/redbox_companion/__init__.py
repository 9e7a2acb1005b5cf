"""The companion: in a small container for each job, it submits, relays its output, and exits as it did."""
