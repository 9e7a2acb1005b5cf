"""From a PUT to exactly one submission, whatever crashes in between."""
