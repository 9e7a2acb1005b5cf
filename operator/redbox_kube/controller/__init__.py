"""Controllers: named steps over one snapshot, the objects that they own, and the process around them."""
