"""Files in volumes: what they have at the submit, and which of it may change later."""
