"""clustar's C API (nccl_plugin/clustar.h) for Python, by ctypes: what of a program's sends was lost, and where.

    api = clustar_api.loaded()        # of the plugin that NCCL has loaded into this process; None: it has not
    api.totals().missing_bytes
    api.missing_from(comm_id, sender=1, number=0)    # [(first byte, bytes)] of that send that read as zero here

Nothing here calls CUDA or PyTorch."""
import ctypes
import pathlib
import re

OK, EINVAL, ENOTFOUND, ENOMEM, EFORGOTTEN = range(5)
MIB, KIB = 1 << 20, 1 << 10


class Totals(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("delivered_bytes", ctypes.c_uint64), ("missing_bytes", ctypes.c_uint64),
                ("eligible_bytes", ctypes.c_uint64), ("sent_messages", ctypes.c_uint64),
                ("identified_messages", ctypes.c_uint64), ("tolerant_messages", ctypes.c_uint64)]


class Collective(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("comm_id", ctypes.c_uint64), ("number", ctypes.c_uint64),
                ("function", ctypes.c_uint8), ("datatype", ctypes.c_uint8), ("algorithm", ctypes.c_uint8),
                ("protocol", ctypes.c_uint8), ("local_number", ctypes.c_uint8), ("total_bytes", ctypes.c_uint64),
                ("messages", ctypes.c_uint64), ("delivered_bytes", ctypes.c_uint64), ("missing_bytes", ctypes.c_uint64),
                ("eligible_bytes", ctypes.c_uint64), ("contributions", ctypes.c_uint64),
                ("missing_ranges", ctypes.c_uint32), ("ranks", ctypes.c_uint32), ("comm_name", ctypes.c_char * 64),
                ("sender", ctypes.c_int32)]


class Missing(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("channel", ctypes.c_uint32), ("loop", ctypes.c_uint32),
                ("stage", ctypes.c_uint32), ("slice", ctypes.c_uint32), ("offset", ctypes.c_uint64),
                ("bytes", ctypes.c_uint64)]


U64, U32, U8, SIZE = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint8, ctypes.c_size_t
COUNT, RANGES = ctypes.POINTER(SIZE), ctypes.POINTER(Missing)
BY_PEER = ctypes.CFUNCTYPE(ctypes.c_int, U64, U32, U64, RANGES, SIZE, COUNT)


class Table(ctypes.Structure):
    """clustarApi_v1_t, as far as this file calls it; what it does not call is a plain pointer."""
    _fields_ = [("size", SIZE), ("version", ctypes.c_char_p),
                ("getTotals", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Totals))),
                ("getReason", ctypes.c_void_p), ("getCollective", ctypes.c_void_p),
                ("listCollectives", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Collective), SIZE, COUNT)),
                ("listMissing", ctypes.c_void_p), ("listMissingFrom", BY_PEER), ("listLostTo", BY_PEER)]


class Forgotten(Exception):
    """It was lost, but newer losses have replaced the record: ask sooner."""


def chunk_bytes(send_bytes):
    """Of a send with one channel per peer (NCCL_NCHANNELS_PER_NET_PEER=1, NCCL_MAX_P2P_NCHANNELS=1): how many bytes each
    network transfer carries (docs/loss.md). None: such sends never lose."""
    if send_bytes >= MIB:
        return 128 * KIB
    return 64 * KIB if send_bytes >= 128 * KIB else None


class Api:
    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))  # again: no second copy
        self._table = Table.in_dll(self._library, "clustarApi_v1")
        if self._table.size < ctypes.sizeof(Table):
            raise OSError(f"{path} is of another version: its table has {self._table.size} bytes")

    @property
    def version(self):
        return self._table.version.decode()

    def totals(self):
        totals = Totals(size=ctypes.sizeof(Totals))
        self._check(self._table.getTotals(ctypes.byref(totals)))
        return totals

    def collectives(self, most=4096):
        """The newest of which this process received something, newest first."""
        all_of_them = (Collective * most)()
        for one in all_of_them:
            one.size = ctypes.sizeof(Collective)
        count = SIZE()
        self._check(self._table.listCollectives(all_of_them, most, ctypes.byref(count)))
        return list(all_of_them[:count.value])

    def comm_id(self, name):
        """NCCL's number of the communicator of that name (ncclConfig_t.commName); None: nothing came over it yet."""
        return next((one.comm_id for one in self.collectives() if one.comm_name.decode() == name), None)

    def missing_from(self, comm_id, sender, number, send_bytes):
        """Of the `number`-th send (from 0) of `sender` to this process, [(first byte, bytes)] that read as zero."""
        return self._ranges(self._table.listMissingFrom, comm_id, sender, number, send_bytes)

    def lost_to(self, comm_id, receiver, number, send_bytes):
        """Of this process's `number`-th send to `receiver`, what that one did not get."""
        return self._ranges(self._table.listLostTo, comm_id, receiver, number, send_bytes)

    def _ranges(self, function, comm_id, peer, number, send_bytes):
        chunk = chunk_bytes(send_bytes)
        if chunk is None:
            return []
        most, count = 64, SIZE()
        while True:
            found = (Missing * most)()
            for one in found:
                one.size = ctypes.sizeof(Missing)
            result = function(comm_id, peer, number, found, most, ctypes.byref(count))
            if result == ENOTFOUND:  # it was never allowed to lose
                return []
            self._check(result)
            if count.value <= most:
                return [(one.slice * chunk + one.offset, one.bytes) for one in found[:count.value]]
            most = count.value

    @staticmethod
    def _check(result):
        if result == EFORGOTTEN:
            raise Forgotten
        if result != OK:
            raise OSError(f"clustar's API answered {result} (CLUSTAR_E... of clustar.h)")


def loaded(name="libnccl-net-clustar.so"):
    """The API of the plugin in this process; None: NCCL has not loaded it (see docs/using.md, "Is it on?")."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        found = re.search(r"\s(/\S.*)$", line)
        if found and pathlib.Path(found[1]).name == name:
            return Api(found[1])
    return None
