"""Rows as the logging shim writes them of a collective over a Simple ring, walked loop by loop as NCCL's kernels do
(v2.28.9 src/device/all_reduce.h, reduce_scatter.h, all_gather.h): for tests of gpu_trace without a GPU."""

FIELDS = ("time_ns,thread,call,object,request,tag,bytes,result,op,algo,proto,func,number,local_number,channel,transfer,"
          "transfers,loop,stage,slice,reducing,total_bytes,comm,ranks,coll_algo,coll_proto").split(",")
ELEMENT = 4
CHUNK = (2 << 20) // ELEMENT  # elements: 4 steps of an eighth of a buffer of 4 MiB
CHANNELS = 2


def up(value, unit):
    return -(-value // unit) * unit


def slices(elements, chunk):
    """Elements of the two transfers of a chunk."""
    size = max(up(-(-elements // 2), 16), chunk // 32)
    first = min(size, elements)
    return first, elements - first


def all_reduce(rank, ranks, elements):
    """(loop, stage, reducing, elements of the two transfers) of each step of one channel."""
    for loop, start in enumerate(range(0, elements, ranks * CHUNK)):
        left = elements - start
        chunk = CHUNK if left >= ranks * CHUNK else up(-(-left // ranks), 16 // ELEMENT)
        own = [max(min(chunk, left - index * chunk), 0) for index in range(ranks)]
        for stage in range(ranks - 1):
            yield loop, stage, 1, slices(own[(rank - 1 - stage) % ranks], CHUNK)
        for stage in range(ranks - 1):
            yield loop, stage, 0, slices(own[(rank - stage) % ranks], CHUNK)


def one_phase(ranks, elements, reducing):
    for loop, start in enumerate(range(0, elements, CHUNK)):
        for stage in range(ranks - 1):
            yield loop, stage, reducing, slices(min(CHUNK, elements - start), CHUNK)


def sends(function, total, rank, ranks, number, comm, local=False):
    """What `rank` sends of a collective whose input is `total` bytes on each rank."""
    count = total // ELEMENT // (ranks if function == "ReduceScatter" else 1)
    # The first channel takes whole cells, the last one the rest.
    first = count if count < 4096 else up(count // 2, 1024)
    out = []
    for channel, elements in enumerate((first, count - first)):
        steps = list(all_reduce(rank, ranks, elements) if function == "AllReduce" else
                     one_phase(ranks, elements, int(function == "ReduceScatter")))
        transfer = 0
        for loop, stage, reducing, parts in steps:
            for part, size in enumerate(parts):
                values = (0, 7, "isend", f"0x{channel + 1}", "0x2", rank, size * ELEMENT, 0, function, "Ring", "Simple",
                          function, number, int(local), channel, transfer, 2 * len(steps), loop, stage, part, reducing,
                          total, comm, ranks, "Ring", "Simple")
                out.append({name: str(value) for name, value in zip(FIELDS, values)})
                transfer += 1
    return out


def write(path, rows):
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(",".join(FIELDS) + "\n")
        for row in rows:
            stream.write(",".join(row[name] for name in FIELDS) + "\n")
            stream.write(",".join(["0", "7", "test", "(nil)", "0x2", "-", row["bytes"],
                                   *(row[name] for name in FIELDS[7:11]), *["-"] * 15]) + "\n")
        stream.write("9,7,isend,0x1,0x2,0,5")  # cut, as a killed process leaves it
