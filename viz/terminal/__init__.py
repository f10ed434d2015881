"""What stands at a terminal: questions that wait for an answer."""
