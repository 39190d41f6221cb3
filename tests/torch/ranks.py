"""Runs a test's body in several ranks, each a process, that meet by a file."""

import datetime
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
import warnings

import torch
import torch.distributed as dist

import clustar_torch

FORK = multiprocessing.get_context("fork")  # a rank need not import PyTorch


def _serve(body, rank, ranks, store, timeout, backend, results):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # c10d renames what is still called by its old names
    try:
        if backend:
            dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks,
                                    timeout=datetime.timedelta(seconds=timeout))
        results.put((rank, body(rank, ranks), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
    results.close()
    results.join_thread()


def run(ranks, body, timeout=30, backend="clustar", killed=(), limit=60):
    """body(rank, ranks) in each; gives what they return, by rank. Raises what one raised; those of `killed` may die."""
    with tempfile.TemporaryDirectory() as folder:
        results = FORK.Queue()
        processes = [FORK.Process(target=_serve, args=(body, rank, ranks, f"{folder}/store", timeout, backend, results))
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        given = {}
        until = time.monotonic() + limit
        try:
            while len(given) < ranks - len(killed):
                rank, value, error = results.get(timeout=max(0.1, until - time.monotonic()))
                if error:
                    raise AssertionError(f"rank {rank} of {ranks}: {error}")
                given[rank] = value
            for process in processes:
                process.join(max(0.1, until - time.monotonic()))
                assert process.exitcode is not None, "a rank does not end"
                assert process.exitcode == 0 or killed, f"a rank ended with {process.exitcode}"
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()
        return [given.get(rank) for rank in range(ranks)]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def message_of(call):
    """What the exception of call() says."""
    try:
        call()
    except Exception as error:  # c10d raises several kinds
        return str(error)
    raise AssertionError("nothing was raised")


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape, (a, b)
    if a.dtype in (torch.float16, torch.bfloat16):
        assert torch.allclose(a.float(), b.float(), rtol=0.02, atol=0.02), (a, b)
    elif a.is_floating_point() or a.is_complex():
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6), (a, b)
    else:
        assert torch.equal(a, b), (a, b)
