"""So that `python -m fmtc.cli` is `fmtc`."""

from . import main

if __name__ == "__main__":
    main()
