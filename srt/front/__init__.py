"""The HTTP side: requests in, answers out, and the truth about every request in flight."""
