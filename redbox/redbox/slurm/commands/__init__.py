"""One module a Slurm command: `…_argv` makes an argument list, `read_…` parses the output of it. Pure."""
