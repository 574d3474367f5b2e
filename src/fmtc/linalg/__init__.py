"""Numerical plumbing: arrays and devices, neighbour search, eigenvectors, sparse products, linear solvers."""
