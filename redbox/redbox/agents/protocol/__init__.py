"""The server's side of the frames that it exchanges with an agent."""
