"""The formats of Slurm's text: records, states, times, sizes, arrays, messages, options, scripts. Pure."""
