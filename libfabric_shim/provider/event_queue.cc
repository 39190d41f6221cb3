#include "libfabric_shim/provider/event_queue.h"

#include <chrono>
#include <thread>

namespace clustar::libfabric_shim::provider {
namespace {

int close_queue(fid* id) {
  delete &object_of<EventQueue, fid_eq>(id);
  return 0;
}

ssize_t read(fid_eq*, std::uint32_t*, void*, std::size_t, std::uint64_t) { return -FI_EAGAIN; }
ssize_t read_error(fid_eq*, fi_eq_err_entry*, std::uint64_t) { return -FI_EAGAIN; }
ssize_t write(fid_eq*, std::uint32_t, const void*, std::size_t, std::uint64_t) { return -FI_ENOSYS; }

ssize_t wait(fid_eq*, std::uint32_t*, void*, std::size_t, int timeout_ms, std::uint64_t) {
  // Without a limit it would never return.
  if (timeout_ms < 0) return -FI_EINVAL;
  std::this_thread::sleep_for(std::chrono::milliseconds(timeout_ms));
  return -FI_EAGAIN;
}

const char* text(fid_eq*, int error, const void*, char*, std::size_t) { return fi_strerror(error); }

}  // namespace

EventQueue::EventQueue(Fabric& fabric, void* context) : fid_eq(), fabric_(fabric) {
  static fi_ops table = fid_table(close_queue);
  static fi_ops_eq calls = [] {
    fi_ops_eq made{};
    made.size = sizeof(made);
    made.read = read;
    made.readerr = read_error;
    made.write = write;
    made.sread = wait;
    made.strerror = text;
    return made;
  }();
  set_id(fid, FI_CLASS_EQ, context, table);
  ops = &calls;
  ++fabric_.children;
}

int EventQueue::open(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** made, void* context) {
  return guarded([&]() -> int {
    if (attr != nullptr && attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC) return -FI_ENOSYS;
    *made = new EventQueue(*static_cast<Fabric*>(fabric), context);
    return 0;
  });
}

}  // namespace clustar::libfabric_shim::provider
