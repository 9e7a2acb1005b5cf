"""What all of red-box speaks in: domain types, the seam to workload managers, time, YAML."""
