"""What `scripts/bench` is made of; `docs/benchmarks.md` says what it measures."""
