"""What ranks write of training steps (lossy_replica.h, plugin_ledger.h), made up so that all accounts agree: for tests
of gpu_loss without a GPU."""

STAGES_LOST = (0, 1)  # of a ring of 3; a ring of 2 has the first alone
BLOCK = 4096          # bytes that a rank misses of one stage in one step


def step_record(step, ranks, lossy):
    lost = STAGES_LOST[:ranks - 1] if lossy else ()
    # At stage k a block lacks k + 1 ranks; every rank loses other elements.
    lacking = [sum(BLOCK // 4 for receiver in range(ranks) for stage in lost if (rank - receiver) % ranks <= stage)
               for rank in range(ranks)]
    return {"sums": f"{step + 1:016x}", "parameters": f"{step + 1001:016x}", "lacking": lacking,
            "lacking_elements": BLOCK // 4 * len(lost) * ranks, "empty_elements": 0, "unreadable_elements": 0}


def collective(step, size, ranks, lossy):
    lost = STAGES_LOST[:ranks - 1] if lossy else ()
    missing, charged = BLOCK * len(lost), BLOCK * sum(stage + 1 for stage in lost)
    return {"comm": f"{0xa:016x}", "function": 4, "number": step, "local_number": 0, "total_bytes": size,
            "ranks": ranks, "delivered_bytes": 2 * size * (ranks - 1) // ranks - missing,
            "missing_bytes": missing, "eligible_bytes": size * (ranks - 1) // ranks if lossy else 0,
            "contributions": charged, "ranges": {"count": len(lost), "bytes": missing, "contributions": charged,
                                                 "last_stage": max(lost, default=0)}}


def training(steps, size, ranks, lossy):
    """Of one rank; alike on all of them."""
    entries = [collective(step, size, ranks, lossy) for step in range(steps)]
    totals = {key: sum(entry[key] for entry in entries)
              for key in ("delivered_bytes", "missing_bytes", "eligible_bytes")}
    return {"steps": [step_record(step, ranks, lossy) for step in range(steps)], "distance": [1000.0, 0.5],
            "ledger": {"totals": totals, "reasons": {"gather-phase": steps}, "collectives": entries}}


def row(steps, size, ranks, lossy):
    size = size // 4 // ranks * 4 * ranks
    return {"collective": "all_reduce", "type": "float32", "bytes": size, "correct": True, "wrong_elements": 0,
            "communicator": "world", "ranks": ranks, "iterations": steps - 1, "time_us": 100.0,
            "algbw_gbytes_per_s": 1.0, "busbw_gbytes_per_s": 1.0, "training": training(steps, size, ranks, lossy)}
