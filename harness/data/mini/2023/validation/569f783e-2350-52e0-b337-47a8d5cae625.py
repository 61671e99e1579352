"""Income of a car park on one day.

Up to 30 minutes are free, a stay of exactly 30 minutes included. A longer stay costs
40 cents for every quarter of an hour that was started, from the first minute on. No
stay costs more than 12 euros.
"""

STAYS = """
08:05-08:35 08:10-11:02 08:31-09:01 08:44-17:59 09:00-09:46 09:15-09:31
09:40-10:10 10:02-12:17 10:20-10:51 11:11-11:41 11:30-15:30 12:00-12:29
12:45-13:16 13:05-20:40 13:30-14:00 14:12-15:12 15:55-16:25 16:10-18:41
"""


def minutes(clock: str) -> int:
    hours, rest = clock.split(":")
    return int(hours) * 60 + int(rest)


def fee(stay: int) -> int:
    """What a stay of so many minutes costs, in cents."""
    if stay < 30:
        return 0
    return min(-(-stay // 15) * 40, 1200)


total = 0
for stay in STAYS.split():
    start, end = stay.split("-")
    total += fee(minutes(end) - minutes(start))
print(total)
