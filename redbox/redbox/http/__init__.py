"""HTTP: routes, problems, streams. What is decided about jobs is decided in `jobs`, and so on."""
