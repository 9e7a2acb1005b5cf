"""What a response is made of: problems, validation messages, streams."""
