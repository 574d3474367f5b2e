"""The federation of processes on NVIDIA FLARE: everything that knows of FLARE is in this folder."""
