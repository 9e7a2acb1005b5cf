"""Virtual nodes and gateways: what is wanted, what there is, and making the one the other."""
