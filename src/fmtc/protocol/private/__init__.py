"""Private runs: noisy sums over records, what the server makes of them, and a choice at home."""
