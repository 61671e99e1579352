"""Plan of a small laundry: which machine runs which load."""


def weigh(load: list[int]) -> int:
    return sum(load)


def rinse(load: list[int]) -> list[int]:
    return [piece + 1 for piece in load]


def fold(load: list[int]) -> list[int]:
    return sorted(load)


def starch(load: list[int]) -> list[int]:
    return [piece * 2 for piece in press(load)]


def press(load: list[int]) -> list[int]:
    return fold(load)


def hang(load: list[int]) -> list[int]:
    return airing(load) if load else []


def airing(load: list[int]) -> list[int]:
    return hang(load[1:])


def spin(load: list[int]) -> list[int]:
    return rinse(load) if weigh(load) > 90 else load


STEPS = {"gentle": spin, "hot": rinse}


def main() -> None:
    load = [12, 30, 7]
    for name in ("hot", "gentle"):
        load = STEPS[name](load)
    print("press", weigh(fold(load)))


main()
