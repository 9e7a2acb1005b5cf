"""The companion: in a small container for each job, it submits the job, relays its output, and exits as it did."""
