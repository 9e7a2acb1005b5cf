"""From settings to a process that serves: listeners, certificates, the cluster's identity, systemd."""
