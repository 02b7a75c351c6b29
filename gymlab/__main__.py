"""`python -m gymlab` is `gymlab`."""

import sys

from gymlab.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
