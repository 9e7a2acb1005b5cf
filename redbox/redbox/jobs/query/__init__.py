"""What is read of jobs and partitions: lists, watches, facts about the cluster."""
