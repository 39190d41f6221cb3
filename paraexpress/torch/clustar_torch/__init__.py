"""The backend "clustar" of torch.distributed, for CPU tensors: to import it registers it.

    import clustar_torch
    torch.distributed.init_process_group("clustar")

Which transport it takes, and how, the environment's CLUSTAR_* settings say, as for any program of clustar.
"""

import atexit
import multiprocessing.util
import os

import torch.distributed

from . import _clustar_torch, hooks

__version__ = _clustar_torch.__version__
__all__ = ["abort", "close", "hooks", "monitored_barrier"]

_prepared_for = None  # the process that will close its groups when it ends


def _close_at_exit():
    # Before Python takes itself down: groups have threads that may need its lock. A child of multiprocessing runs its
    # own list and not atexit's.
    global _prepared_for
    if _prepared_for == os.getpid():
        return
    _prepared_for = os.getpid()
    atexit.register(_clustar_torch.close_all)
    multiprocessing.util.Finalize(None, _clustar_torch.close_all, exitpriority=100)


def _create(store, rank, size, timeout):
    _close_at_exit()
    return _clustar_torch.create(store, rank, size, timeout)


def _backend_of(group):
    group = group or torch.distributed.distributed_c10d._get_default_group()
    # From PyTorch 2.0 on a process group has backends by device.
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def abort(why="a rank gave up", group=None):
    """Ends all operations of the group under way with an exception that says why, on all ranks. It is of no further
    use."""
    _clustar_torch.abort(_backend_of(group), why)


def close(group=None):
    """Leaves the group: waits a few seconds for the other ranks to be done too, so that they lose nothing. What
    destroy_process_group() drops is closed as well, as is all when the process ends."""
    _clustar_torch.close(_backend_of(group))


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which PyTorch lets its own gloo do alone: where ranks do not come in time, rank
    0 raises which one (all of them with wait_all_ranks), and the others that rank 0 did not let them go on. The group
    is as it was, but for this: ranks call it equally often."""
    late = {} if timeout is None else {"timeout": timeout}
    (group or torch.distributed.distributed_c10d._get_default_group()).monitored_barrier(wait_all_ranks=wait_all_ranks, **late)


def _register():
    backend = torch.distributed.Backend
    if hasattr(backend, "CLUSTAR"):
        return
    if int(torch.__version__.split(".")[0]) >= 2:
        backend.register_backend("clustar", _create, devices=["cpu"])
    else:
        backend.register_backend("clustar", _create)


_register()
