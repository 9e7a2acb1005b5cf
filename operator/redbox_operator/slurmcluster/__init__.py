"""SlurmClusters, and the feed of jobs of each one's red-box."""
