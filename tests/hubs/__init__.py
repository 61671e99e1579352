"""Data set hubs for tests: what the real clients ask for, over a folder, with faults to order.

ROOT/<owner>/<name>/<revision>/...files         one folder per branch or tag

python -m tests.hubs modelscope|huggingface ROOT [PORT]     serves until interrupted
"""
