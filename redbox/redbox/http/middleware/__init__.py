"""What every request passes through: authentication, limits, logging."""
