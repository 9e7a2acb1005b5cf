"""What the project publishes: the site of its documentation, and the files of a release."""
