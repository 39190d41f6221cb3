#include "transport/io/dpdk/steering/xdp_interface.h"

#include <fmt/format.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>

namespace clustar::transport::io::dpdk {
namespace {

struct Message {
  nlmsghdr head{};
  ifinfomsg link{};
  std::array<std::byte, 64> attributes{};
};
using Answer = std::array<std::byte, 16384>;

// How many bytes of it came; 0: none.
std::size_t ask_kernel(const Message& message, Answer& answer) {
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  const timeval most{1, 0};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  if (::send(socket.fd(), &message, message.head.nlmsg_len, 0) < 0) return 0;
  const ssize_t got = ::recv(socket.fd(), answer.data(), answer.size(), 0);
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

const rtattr* find(const rtattr* one, std::size_t bytes, unsigned type) {
  for (; RTA_OK(one, bytes); one = RTA_NEXT(one, bytes)) {
    if ((one->rta_type & NLA_TYPE_MASK) == type) return one;
  }
  return nullptr;
}

// Of the XDP program that the interface has; 0: none.
std::uint32_t program_of(int interface) {
  Message message;
  message.head = {NLMSG_LENGTH(sizeof(ifinfomsg)), RTM_GETLINK, NLM_F_REQUEST, 0, 0};
  message.link.ifi_index = interface;
  alignas(nlmsghdr) Answer answer{};
  const std::size_t got = ask_kernel(message, answer);
  constexpr std::size_t kBefore = NLMSG_SPACE(sizeof(ifinfomsg));
  if (got < kBefore || reinterpret_cast<const nlmsghdr*>(answer.data())->nlmsg_type != RTM_NEWLINK) return 0;
  const rtattr* const xdp = find(reinterpret_cast<const rtattr*>(answer.data() + kBefore), got - kBefore, IFLA_XDP);
  if (xdp == nullptr) return 0;
  const rtattr* const id = find(static_cast<const rtattr*>(RTA_DATA(xdp)), RTA_PAYLOAD(xdp), IFLA_XDP_PROG_ID);
  std::uint32_t number = 0;
  if (id != nullptr) std::memcpy(&number, RTA_DATA(id), sizeof number);
  return number;
}

// Empty: it cannot be asked for.
std::string name_of_program(std::uint32_t id) {
  bpf_attr ask{};
  ask.prog_id = id;
  const FileDescriptor program(static_cast<int>(::syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &ask, sizeof ask)));
  bpf_prog_info info{};
  bpf_attr about{};
  about.info.bpf_fd = static_cast<std::uint32_t>(program.fd());
  about.info.info_len = sizeof info;
  about.info.info = reinterpret_cast<std::uintptr_t>(&info);
  if (!program || ::syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &about, sizeof about) != 0) return {};
  return std::string(info.name, ::strnlen(info.name, sizeof info.name));
}

bool remove_program(int interface) {
  Message message;
  message.head = {0, RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, 0, 0};
  message.link.ifi_index = interface;
  const int none = -1;
  const rtattr outer{RTA_SPACE(RTA_SPACE(sizeof none)), IFLA_XDP | NLA_F_NESTED};
  const rtattr inner{RTA_LENGTH(sizeof none), IFLA_XDP_FD};
  std::memcpy(message.attributes.data(), &outer, sizeof outer);
  std::memcpy(message.attributes.data() + RTA_LENGTH(0), &inner, sizeof inner);
  std::memcpy(message.attributes.data() + 2 * RTA_LENGTH(0), &none, sizeof none);
  message.head.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof(ifinfomsg)) + outer.rta_len);
  alignas(nlmsghdr) Answer answer{};
  ask_kernel(message, answer);
  return program_of(interface) == 0;
}

// 0: the driver does not say.
std::uint32_t receive_queues(const std::string& interface) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  return ::ioctl(socket.fd(), SIOCETHTOOL, &request) == 0 ? channels.combined_count + channels.rx_count : 0;
}

// A name of this network namespace; the kernel gives it back when the process ends, however it ends.
FileDescriptor take_lock(int interface) {
  FileDescriptor lock(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = fmt::format("clustar-xdp-{}", interface);
  text.copy(name.sun_path + 1, sizeof name.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (::bind(lock.fd(), reinterpret_cast<const sockaddr*>(&name), length) != 0) lock.close();
  return lock;
}

}  // namespace

Result<XdpInterface> XdpInterface::take(const std::string& interface, bool steered, std::uint32_t queues) {
  const int index = static_cast<int>(::if_nametoindex(interface.c_str()));
  if (index == 0) return XdpInterface();  // DPDK says so
  XdpInterface taken;
  taken.lock_ = take_lock(index);
  if (!taken.lock_) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("dpdk: {} has a net_af_xdp port already, another rank's or another device's, and may have "
                            "but one; use net_af_packet where several processes share an interface",
                            interface));
  }
  if (const std::uint32_t there = receive_queues(interface); there > queues) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("dpdk: {0} spreads packets over {1} receive queues, of which this port reads {2}; allowed "
                            "are as many: `ethtool -L {0} combined {2}` (or rx {2})",
                            interface, there, queues));
  }
  // By index: an interface that is made again is another one.
  static std::mutex mutex;
  static std::set<int> had;
  const std::lock_guard lock(mutex);
  if (had.contains(index)) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("dpdk: this process had a net_af_xdp port on {} before, and DPDK 22.11 does not give the "
                            "interface's queue back before the process ends; keep one connection open, or use "
                            "net_af_packet",
                            interface));
  }
  const std::uint32_t program = program_of(index);
  if (program == 0 || name_of_program(program) == kSteeringName) had.insert(index);
  if (program == 0) return taken;
  const std::string name = name_of_program(program);
  // The process that it steered for holds no lock any more.
  if (name == kSteeringName && remove_program(index)) return taken;
  const bool is_of_xdp_sockets = name == "xsk_def_prog" || name == "xdp_dispatcher";
  if (!steered && is_of_xdp_sockets) return taken;
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("dpdk: {0} has an XDP program already ({1}), which DPDK would take away; use net_af_packet, or "
                  "`ip link set {0} xdp off` where nobody needs it",
                  interface, name.empty() ? "of another tool" : name));
}

}  // namespace clustar::transport::io::dpdk
