"""So that ``python -m fmtc.bench`` is ``fmtc bench``."""

import sys

from ..cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench"]
    main()
