#include "transport/io/verbs/device.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace clustar::transport::io::verbs {
namespace {

std::vector<AddressOwner> address_owners() {
  std::vector<AddressOwner> owners;
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) return owners;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(head, &freeifaddrs);
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    std::array<std::uint8_t, 16> gid{};
    if (entry->ifa_addr->sa_family == AF_INET) {
      gid[10] = gid[11] = 0xff;
      std::memcpy(gid.data() + 12, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, 4);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr, 16);
    } else {
      continue;
    }
    owners.push_back({{gid}, entry->ifa_name, if_nametoindex(entry->ifa_name)});
  }
  return owners;
}

GidType gid_type(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V1: return GidType::kRoceV1;
    case IBV_GID_TYPE_ROCE_V2: return GidType::kRoceV2;
    default: return GidType::kInfiniBand;
  }
}

DeviceEvent describe(const std::string& device, const ibv_async_event& event) {
  DeviceEvent out{.type = event.event_type};
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR: out.fatal = true; [[fallthrough]];
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_QP_LAST_WQE_REACHED: out.queue_pair = event.element.qp->qp_num; break;
    case IBV_EVENT_PORT_ERR: out.fatal = true; [[fallthrough]];
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE: out.port = event.element.port_num; break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_WQ_FATAL: out.fatal = true; break;
    default: break;
  }
  std::string where = Place{.device = device, .port = out.port}.to_string();
  if (out.queue_pair != 0) where += fmt::format(" queue pair {}", out.queue_pair);
  out.text = fmt::format("verbs: {}: {}", where, ibv_event_type_str(event.event_type));
  if (event.event_type == IBV_EVENT_PORT_ERR) out.text += "; the link is down: cable, switch port, `ip link`";
  return out;
}

}  // namespace

Result<DeviceArray> DeviceArray::get() {
  // Once and before everything else of the library: a child of fork() must not take pages away that the NIC writes to.
  static const int fork_error = ibv_fork_init();
  if (fork_error != 0) return tl::unexpected(call_failed(Call::kForkInit, fork_error, {}));
  DeviceArray array;
  array.list_.reset(ibv_get_device_list(&array.count_));
  if (array.list_) return array;
  const int error = errno;
  Error failure = call_failed(Call::kListDevices, error, {});
  if (error == ENOSYS) failure.code = ErrorCode::kUnavailable;
  return tl::unexpected(std::move(failure));
}

Result<Device> Device::open(const std::string& name) {
  const Place place{.device = name};
  const auto list = DeviceArray::get();
  if (!list) return tl::unexpected(list.error());
  std::string names;
  for (ibv_device* const candidate : list->devices()) {
    names += (names.empty() ? "" : ", ") + std::string(ibv_get_device_name(candidate));
    if (name != ibv_get_device_name(candidate)) continue;
    Device device;
    device.name_ = name;
    device.context_.reset(ibv_open_device(candidate));
    if (!device.context_) {
      const int error = errno;
      return tl::unexpected(call_failed(Call::kOpenDevice, error, place));
    }
    // So that poll_event() returns when there is none.
    const int fd = device.context_->async_fd;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
      const int error = errno;
      return tl::unexpected(call_failed(Call::kAsyncEvent, error, place));
    }
    if (const int error = ibv_query_device(device.context(), &device.limits_); error != 0) {
      return tl::unexpected(call_failed(Call::kQueryDevice, error, place));
    }
    return device;
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("verbs: no RDMA device '{}'; there {}", name,
                          names.empty() ? "is none: load the NIC's driver and ib_uverbs, and install ibverbs-providers"
                                        : "are: " + names));
}

Result<ibv_port_attr> Device::port(int number) const {
  ibv_port_attr attributes{};
  const int error = ibv_query_port(context(), static_cast<std::uint8_t>(number), &attributes);
  if (error != 0) return tl::unexpected(call_failed(Call::kQueryPort, error, place(number)));
  return attributes;
}

Result<std::vector<GidEntry>> Device::gids(int port) const {
  // The call has no argument for the port, and fails if the entries of all of them do not fit.
  std::size_t most = 0;
  for (int i = 1; i <= limits_.phys_port_cnt; ++i) {
    const auto attributes = this->port(i);
    if (!attributes) return tl::unexpected(attributes.error());
    most += static_cast<std::size_t>(attributes->gid_tbl_len);
  }
  std::vector<ibv_gid_entry> raw(most);
  const auto found = most == 0 ? 0 : ibv_query_gid_table(context(), raw.data(), raw.size(), 0);
  if (found < 0) return tl::unexpected(call_failed(Call::kQueryGids, static_cast<int>(-found), place(port)));
  raw.resize(static_cast<std::size_t>(found));

  const std::vector<AddressOwner> owners = address_owners();
  std::vector<GidEntry> entries;
  for (const ibv_gid_entry& from : raw) {
    if (from.port_num != static_cast<std::uint32_t>(port)) continue;
    GidEntry entry{.index = from.gid_index, .type = gid_type(from.gid_type), .ifindex = from.ndev_ifindex};
    std::memcpy(entry.gid.bytes.data(), from.gid.raw, entry.gid.bytes.size());
    entry.interface = owner_of(owners, entry.gid, entry.ifindex);
    entries.push_back(entry);
  }
  return entries;
}

Result<std::optional<DeviceEvent>> Device::poll_event() const {
  ibv_async_event event{};
  if (ibv_get_async_event(context(), &event) != 0) {
    const int error = errno;
    if (error == EAGAIN || error == EINTR) return std::optional<DeviceEvent>{};
    return tl::unexpected(call_failed(Call::kAsyncEvent, error, place()));
  }
  const DeviceEvent described = describe(name_, event);
  // Destroying a queue pair waits for its events to be acknowledged.
  ibv_ack_async_event(&event);
  return described;
}

}  // namespace clustar::transport::io::verbs
