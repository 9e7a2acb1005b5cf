"""The log, the audit, request ids, and how strangers' text is made printable."""
