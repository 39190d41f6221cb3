#include "transport/io/dpdk/steering/xdp_interface.h"

#include <fmt/format.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <set>

#include "transport/io/dpdk/kernel_interface.h"

namespace clustar::transport::io::dpdk {
namespace {

// By index: an interface that is made again is another one.
class Kept {
 public:
  static bool has(int index) {
    const std::lock_guard lock(mutex());
    return kept().contains(index);
  }
  static void add(int index) {
    const std::lock_guard lock(mutex());
    kept().insert(index);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::set<int>& kept() {
    static std::set<int> all;
    return all;
  }
};

void remove_program(int index) {
  struct {
    nlmsghdr head{0, RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, 0, 0};
    ifinfomsg link{};
    std::array<std::byte, 64> attributes{};
  } message;
  message.link.ifi_index = index;
  const int none = -1;
  const rtattr outer{RTA_SPACE(RTA_SPACE(sizeof none)), IFLA_XDP | NLA_F_NESTED};
  const rtattr inner{RTA_LENGTH(sizeof none), IFLA_XDP_FD};
  std::memcpy(message.attributes.data(), &outer, sizeof outer);
  std::memcpy(message.attributes.data() + RTA_LENGTH(0), &inner, sizeof inner);
  std::memcpy(message.attributes.data() + 2 * RTA_LENGTH(0), &none, sizeof none);
  message.head.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof(ifinfomsg)) + outer.rta_len);
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  const timeval most{1, 0};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  std::array<std::byte, 1024> answer{};
  // Its answer says that the kernel is done; whether the program is gone is looked up.
  if (::send(socket.fd(), &message, message.head.nlmsg_len, 0) > 0) {
    static_cast<void>(::recv(socket.fd(), answer.data(), answer.size(), 0));
  }
}

FileDescriptor take_lock(int index) {
  FileDescriptor lock(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = xdp_port_lock(index);
  text.copy(name.sun_path + 1, sizeof name.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (::bind(lock.fd(), reinterpret_cast<const sockaddr*>(&name), length) != 0) lock.close();
  return lock;
}

tl::unexpected<Error> refused(const std::string& why) { return fail(ErrorCode::kUnavailable, "dpdk: " + why); }

}  // namespace

Result<XdpInterface> XdpInterface::take(const std::string& interface, bool steered, std::uint32_t queues) {
  XdpInterface taken;
  taken.index_ = static_cast<int>(::if_nametoindex(interface.c_str()));
  if (taken.index_ == 0) return taken;  // DPDK says so
  taken.lock_ = take_lock(taken.index_);
  if (!taken.lock_) {
    return refused(
        fmt::format("{} has a net_af_xdp port already, another rank's or another device's, and may have but one; use "
                    "net_af_packet where several processes share an interface",
                    interface));
  }
  const auto there = kernel_interface(interface);
  if (!there) return taken;
  if (there->receive_queues > queues) {
    return refused(
        fmt::format("{0} spreads packets over {1} receive queues, of which this port reads {2}; allowed are "
                    "as many: `ethtool -L {0} combined {2} || ethtool -L {0} rx {2}`, or CLUSTAR_DPDK_QUEUES={1}",
                    interface, there->receive_queues, queues));
  }
  if (Kept::has(taken.index_)) {
    return refused(
        fmt::format("this process had a net_af_xdp port on {} before, and DPDK 22.11 does not give the "
                    "interface's queue back before the process ends; keep one connection open, or use "
                    "net_af_packet",
                    interface));
  }
  // The process that it steered for holds no lock any more.
  if (there->is_steered()) {
    remove_program(taken.index_);
    const auto after = kernel_interface(interface);
    if (!after || !after->has_xdp) return taken;
  } else if (!there->has_xdp || (!steered && there->has_plain_program())) {
    return taken;
  }
  return refused(
      fmt::format("{0} has an XDP program already ({1}), which DPDK would take away; use net_af_packet, or "
                  "`ip link set {0} xdp off` where nobody needs it",
                  interface, there->program()));
}

void XdpInterface::keep() const {
  if (index_ != 0) Kept::add(index_);
}

}  // namespace clustar::transport::io::dpdk
