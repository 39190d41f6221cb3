// An opened RDMA device: its limits, ports, GID tables and asynchronous events.
//
// Thread rule of this folder: libibverbs is thread-safe, our objects are not: one thread at a time per object.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/verbs/failure.h"
#include "transport/io/verbs/gid.h"
#include "transport/io/verbs/handle.h"

namespace clustar::transport::io::verbs {

// Something happened beside the work requests.
struct DeviceEvent {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  int port = 0;                  // of a port's event, otherwise 0
  std::uint32_t queue_pair = 0;  // of a queue pair's event, otherwise 0
  bool fatal = false;            // the named queue pair, port or device cannot go on (a port: until it is active again)
  std::string text{};            // for a person
};

// What ibv_get_device_list finds, for as long as this lives.
class DeviceArray {
 public:
  // Error kUnavailable: a kernel without RDMA.
  static Result<DeviceArray> get();
  std::span<ibv_device* const> devices() const { return {list_.get(), static_cast<std::size_t>(count_)}; }

 private:
  struct Free {
    void operator()(ibv_device** list) const { ibv_free_device_list(list); }
  };
  std::unique_ptr<ibv_device*, Free> list_;
  int count_ = 0;
};

class Device {
 public:
  Device(Device&&) = default;
  Device& operator=(Device&&) = delete;
  // Error kUnavailable: a kernel without RDMA, or no such device, with the names of those there are.
  static Result<Device> open(const std::string& name);

  const std::string& name() const { return name_; }
  ibv_context* context() const { return context_.get(); }
  const ibv_device_attr& limits() const { return limits_; }
  Result<ibv_port_attr> port(int number) const;
  // Without the holes; GidEntry::interface is found by this thread's network namespace.
  Result<std::vector<GidEntry>> gids(int port) const;

  // The next event; nothing if none waits. Readable when one waits: event_fd().
  Result<std::optional<DeviceEvent>> poll_event() const;
  int event_fd() const { return context_->async_fd; }

  Place place(int port = 0, int gid_index = -1) const {
    return {.device = name_, .port = port, .gid_index = gid_index};
  }

 private:
  Device() = default;

  std::string name_;
  Handle<ibv_context> context_;
  ibv_device_attr limits_{};
};

}  // namespace clustar::transport::io::verbs
