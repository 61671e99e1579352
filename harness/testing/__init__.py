"""Recorded runs as tests: what the pytest plugin loads once it is asked for something."""
