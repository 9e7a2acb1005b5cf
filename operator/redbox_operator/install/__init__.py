"""What the chart's hooks run: upgrading the CRDs, uninstalling."""
