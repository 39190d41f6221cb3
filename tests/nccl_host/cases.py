"""Cases of the matrix: one of each value, all pairs of values, or all."""

import collections
import itertools

TRANSPORTS = ("tcp", "mlt", "mlt-key", "mlt-loss", "tcp-gdr", "mlt-gdr")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "sendrecv")
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16")
RANKS = (1, 2, 3, 4, 5, 6, 7, 8)
SIZES = (8, 1 << 10, 512 << 10, 4 << 20, 64 << 20)
OPERATORS = ("sum", "prod", "max", "min", "avg", "premulsum")
PROTOCOLS = ("LL", "Simple")
ELEMENT = {"int8": 1, "uint8": 1, "half": 2, "bfloat16": 2, "int64": 8, "uint64": 8, "double": 8}

FACTORS = (TRANSPORTS, COLLECTIVES, TYPES, RANKS, SIZES)
LARGEST = SIZES[-1]
Case = collections.namedtuple("Case", "ranks protocol transport collective type operator size")


def allowed(values):
    """The largest size is there for one datatype only: nine more would take hours and show nothing new."""
    return values[4] != LARGEST or values[2] == "float"


def case_of(values, number):
    transport, collective, kind, ranks, size = values
    # The other lists turn along; each transport meets both protocols.
    return Case(ranks, PROTOCOLS[(number + number // len(TRANSPORTS)) % 2], transport, collective, kind, OPERATORS[number % 6], size)


def pairs_of(values):
    return set(itertools.combinations(enumerate(values), 2))


def all_values():
    return filter(allowed, itertools.product(*FACTORS))


def all_pairs():
    return covering(list(all_values()))


def covering(candidates):
    """Few of the candidates, with every pair of values: each time the one that has the most pairs not seen yet, and of
    those the one whose values were taken least."""
    left = set().union(*map(pairs_of, candidates))
    taken = collections.Counter()
    while left:
        best = max(candidates, key=lambda values: (len(pairs_of(values) & left), -sum(taken[each] for each in enumerate(values))))
        left -= pairs_of(best)
        taken.update(enumerate(best))
        yield best


def each_value():
    """Every value of each list, at sizes and ranks that take seconds; each transport meets several of the others."""
    for number in range(24):
        turn = number // len(TRANSPORTS)
        yield (TRANSPORTS[number % 6], COLLECTIVES[(number + turn) % 6], TYPES[(number + number // 10) % 10],
               (2, 4, 3, 1, 2, 3, 5, 2, 4, 8)[(number + number // 10) % 10], SIZES[(number + turn) % 4])


def cases(which):
    """`which`: each_value, all_pairs or all_values, of this module."""
    return [case_of(values, number) for number, values in enumerate(which())]


def least_bytes(case, calls):
    """What all ranks together must send at least."""
    element = ELEMENT.get(case.type, 4)
    size = max(case.size // element, 1) * element
    edges = case.ranks if case.collective == "sendrecv" else case.ranks - 1
    return edges * size * calls
