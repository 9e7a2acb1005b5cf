"""The Unix users of a cluster, read from what its administrator writes."""
