"""The runner of pods: what a pod's job runs on its first node."""
