"""Programs built from the Go modules beside this package."""
