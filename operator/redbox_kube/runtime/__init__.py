"""What each controller's process needs: a work queue, its log, its health and metrics port, waiting."""
