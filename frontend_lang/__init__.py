"""The Python language for programs that generate. Knows nothing of the runtime."""
