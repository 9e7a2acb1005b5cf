"""What the plugin asks red-box itself, as a service account of the job, where it is reached from here."""
