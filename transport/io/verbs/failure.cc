#include "transport/io/verbs/failure.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>

#include "transport/base/file_descriptor.h"

namespace clustar::transport::io::verbs {
namespace {

std::string locked_memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return fmt::format("{} KiB", limit.rlim_cur / 1024);
}

std::string memory_cause(Call call, int error) {
  switch (error) {
    case ENOMEM: {
      std::string text = fmt::format(
          "the limit of locked memory, now {}, is the usual reason: `ulimit -l unlimited`, LimitMEMLOCK=infinity in a "
          "systemd unit, --ulimit memlock=-1 for a container",
          locked_memory_limit());
      // After ibv_fork_init the library asks madvise first, whose errno this is.
      if (call == Call::kRegMr) text += "; or the range is not mapped in this process";
      return text;
    }
    case EFAULT:
      return "the range is not mapped in this process, or is GPU memory: that needs the module nvidia_peermem, or a "
             "dma-buf";
    case EINVAL:
      if (call == Call::kRegDmaBuf) {
        return "a range that is empty or ends behind the dma-buf, or access flags that exclude each other (remote "
               "writing "
               "needs local writing) or that a dma-buf cannot have (windows, on demand)";
      }
      return "access flags that exclude each other (remote writing needs local writing), or an empty range";
    case EOPNOTSUPP:
    case EPROTONOSUPPORT: return "this device's driver cannot register such memory (rdma_rxe: no dma-buf, no ODP)";
    case EBADF: return "the dma-buf descriptor is closed or is none";
    default: return {};
  }
}

// Errors of an address: of a queue pair on its way to RTR, and of an address handle.
std::string address_cause(int error, const Place& place) {
  switch (error) {
    case ENODATA:  // what rdma_rxe says of an empty index
    case EINVAL: {
      std::string text =
          "a GID index that is empty, an MTU above the port's active one, or a peer's GID of another type than ours";
      if (place.gid_index == 3) text += "; index 3 is an mlx5 habit: leave the choice to us, or see `show_gids`";
      return text;
    }
    case ETIMEDOUT:
    case EHOSTUNREACH:
      return "the peer's address was not resolved (no answer to ARP or neighbour discovery): another rail or VLAN, a "
             "wrong GID index at either end, or the peer's port is down; try `ping -I` between these two addresses";
    case ENETUNREACH: return "no route from this GID's interface to the peer's address: see `ip route get`";
    case ENODEV:
    case EADDRNOTAVAIL: return "the GID's network interface is gone, or its address was removed";
    default: return {};
  }
}

std::string open_cause(int error) {
  switch (error) {
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return "the device's node in /dev/infiniband is missing: give a container --device=/dev/infiniband, load the "
             "module ib_uverbs";
    case EACCES:
    case EPERM: return "no right to open its node in /dev/infiniband (in a container: --device and the device cgroup)";
    case ENOSYS: return "this kernel has no RDMA: load ib_uverbs and the NIC's driver";
    case EMFILE: return "too many open files: `ulimit -n`";
    default: return {};
  }
}

std::string queue_cause(Call call, int error) {
  switch (error) {
    case EINVAL:
      return call == Call::kCreateQp ? "more requests, SGEs or inline bytes than the device has: see `ibv_devinfo -v`"
                                     : "more entries than the device has (max_cqe, max_srq_wr of `ibv_devinfo -v`)";
    case ENOMEM: return memory_cause(call, ENOMEM);
    case EAGAIN:
    case ENOSPC: return "the device, or the rdma cgroup, has no more of them (`rdma resource show`, rdma.max)";
    case EOPNOTSUPP: return "this device has no such kind of queue pair";
    default: return {};
  }
}

}  // namespace

std::string Place::to_string() const {
  std::string text = device;
  if (port > 0) text += fmt::format(" port {}", port);
  if (gid_index >= 0) text += fmt::format(" GID index {}", gid_index);
  if (!peer.empty()) text += " to " + peer;
  return text;
}

const char* to_string(Call call) {
  switch (call) {
    case Call::kForkInit: return "ibv_fork_init";
    case Call::kListDevices: return "ibv_get_device_list";
    case Call::kOpenDevice: return "ibv_open_device";
    case Call::kQueryDevice: return "ibv_query_device";
    case Call::kQueryPort: return "ibv_query_port";
    case Call::kQueryGids: return "ibv_query_gid_table";
    case Call::kAllocPd: return "ibv_alloc_pd";
    case Call::kRegMr: return "ibv_reg_mr";
    case Call::kRegDmaBuf: return "ibv_reg_dmabuf_mr";
    case Call::kAllocMw: return "ibv_alloc_mw";
    case Call::kCreateChannel: return "ibv_create_comp_channel";
    case Call::kCreateCq: return "ibv_create_cq";
    case Call::kPollCq: return "ibv_poll_cq";
    case Call::kArmCq: return "ibv_req_notify_cq";
    case Call::kCqEvent: return "ibv_get_cq_event";
    case Call::kCreateSrq: return "ibv_create_srq";
    case Call::kCreateAh: return "ibv_create_ah";
    case Call::kCreateQp: return "ibv_create_qp";
    case Call::kQueryQp: return "ibv_query_qp";
    case Call::kToInit: return "ibv_modify_qp to INIT";
    case Call::kToRtr: return "ibv_modify_qp to RTR";
    case Call::kToRts: return "ibv_modify_qp to RTS";
    case Call::kToError: return "ibv_modify_qp to ERR";
    case Call::kToReset: return "ibv_modify_qp to RESET";
    case Call::kPostSend: return "ibv_post_send";
    case Call::kPostRecv: return "ibv_post_recv";
    case Call::kAsyncEvent: return "ibv_get_async_event";
  }
  return "?";
}

std::string likely_cause(Call call, int error, const Place& place) {
  switch (call) {
    case Call::kForkInit:
      return error == EINVAL ? "another library of this process registered memory before: set RDMAV_FORK_SAFE=1 in its "
                               "environment"
                             : "";
    case Call::kListDevices:
    case Call::kOpenDevice: return open_cause(error);
    case Call::kRegMr:
    case Call::kRegDmaBuf: return memory_cause(call, error);
    case Call::kToRtr:
    case Call::kCreateAh: return address_cause(error, place);
    case Call::kAllocPd:
    case Call::kAllocMw:
    case Call::kCreateChannel:
    case Call::kCreateCq:
    case Call::kCreateSrq:
    case Call::kCreateQp: return queue_cause(call, error);
    case Call::kPostSend:
    case Call::kPostRecv:
      if (error == ENOMEM) return "its queue is full: more was posted than completions were taken";
      if (error == EINVAL) return "not in a state that takes it, or more SGEs or inline bytes than it was made for";
      return {};
    case Call::kToInit:
    case Call::kToRts:
    case Call::kToError:
    case Call::kToReset:
      if (error == EINVAL) return "an attribute out of range, or a queue pair that is in another state";
      return {};
    default: return {};
  }
}

Error call_failed(Call call, int error, const Place& place, const std::string& detail) {
  std::string text = fmt::format("verbs: {}", to_string(call));
  if (const std::string where = place.to_string(); !where.empty()) text += " on " + where;
  if (!detail.empty()) text += ", " + detail;
  text += ": " + describe_errno(error);
  std::string cause = likely_cause(call, error, place);
  if (cause.empty() && error == EPERM) {
    cause = "no right to do so: in a container --cap-add=IPC_LOCK and the device's node";
  } else if (cause.empty() && (error == EIO || error == ENODEV)) {
    cause = "the device failed or was removed: see `dmesg`";
  }
  if (!cause.empty()) text += "; " + cause;
  return Error{ErrorCode::kSystem, std::move(text)};
}

}  // namespace clustar::transport::io::verbs
