"""The companion's pod: what it contains, where it runs, when it is created and deleted."""
