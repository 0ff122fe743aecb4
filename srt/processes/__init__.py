"""A server's child processes: how they start, tell how they are, and end with their parent."""
