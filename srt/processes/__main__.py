"""Entry of the child processes."""

import sys

from .child import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
