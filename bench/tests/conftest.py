"""What fmtc's own tests share, and stand-ins for data."""

from tests.conftest import _small_files, full_disk, make_federation, play, rng, small_files  # noqa: F401
