"""What is shown: tables, colours, times, questions of width. Pure but for the terminal itself."""
