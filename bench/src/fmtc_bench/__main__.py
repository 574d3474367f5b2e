"""So that `python -m fmtc_bench` is `fmtc-bench`."""

from .cli import main

if __name__ == "__main__":
    main()
