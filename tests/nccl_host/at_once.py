"""Checks that run side by side, told in their order."""

import concurrent.futures


def run(checks, workers):
    """`checks`: name to a function that returns nothing, or what is wrong, and its arguments. The exit status: 1 where one
    is wrong, or none ran."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = {name: pool.submit(*what) for name, what in checks.items()}
        for name, future in running.items():
            if wrong := future.result():
                failed += 1
                print(f"FAILED {name}: {wrong}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed or not checks else 0
