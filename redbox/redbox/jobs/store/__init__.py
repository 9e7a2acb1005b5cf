"""Where the records are kept: the journal on disk, the index in memory, tombstones, retention."""
