#include "transport/io/dpdk/kernel_interface.h"

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
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

#include "transport/base/file_descriptor.h"
#include "transport/io/dpdk/kernel_side.h"

namespace clustar::transport::io::dpdk {
namespace {

const rtattr* find(const rtattr* one, std::size_t bytes, unsigned type) {
  for (; RTA_OK(one, bytes); one = RTA_NEXT(one, bytes)) {
    if ((one->rta_type & NLA_TYPE_MASK) == type) return one;
  }
  return nullptr;
}

// Of the XDP program that the interface has; 0: none.
std::uint32_t program_of(int index) {
  struct {
    nlmsghdr head{NLMSG_LENGTH(sizeof(ifinfomsg)), RTM_GETLINK, NLM_F_REQUEST, 0, 0};
    ifinfomsg link{};
  } ask;
  ask.link.ifi_index = index;
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  const timeval most{1, 0};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  alignas(nlmsghdr) std::array<std::byte, 16384> answer{};
  if (::send(socket.fd(), &ask, sizeof ask, 0) < 0) return 0;
  const ssize_t got = ::recv(socket.fd(), answer.data(), answer.size(), 0);
  constexpr std::size_t kBefore = NLMSG_SPACE(sizeof(ifinfomsg));
  if (got < static_cast<ssize_t>(kBefore)) return 0;
  if (reinterpret_cast<const nlmsghdr*>(answer.data())->nlmsg_type != RTM_NEWLINK) return 0;
  const rtattr* const xdp =
      find(reinterpret_cast<const rtattr*>(answer.data() + kBefore), static_cast<std::size_t>(got) - kBefore, IFLA_XDP);
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

bool is_bound(const std::string& abstract_name) {
  std::ifstream sockets("/proc/net/unix");
  const std::string wanted = " @" + abstract_name;
  for (std::string line; std::getline(sockets, line);) {
    if (line.ends_with(wanted)) return true;
  }
  return false;
}

}  // namespace

std::optional<KernelInterface> kernel_interface(const std::string& name) {
  KernelInterface found;
  found.index = static_cast<int>(::if_nametoindex(name.c_str()));
  if (found.index == 0) return std::nullopt;
  // Not of /sys, which may show another network namespace's interfaces.
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  found.is_up = ::ioctl(socket.fd(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0;
  if (::ioctl(socket.fd(), SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0) {
    found.mtu = static_cast<std::size_t>(request.ifr_mtu);
  }
  found.has_ipv4 = subnet_of_interface(name).has_value();
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  request.ifr_data = reinterpret_cast<char*>(&channels);
  if (::ioctl(socket.fd(), SIOCETHTOOL, &request) == 0) {
    found.receive_queues = channels.combined_count + channels.rx_count;
  }
  const std::uint32_t program = program_of(found.index);
  found.has_xdp = program != 0;
  if (found.has_xdp) found.xdp_name = name_of_program(program);
  found.has_port = is_bound(xdp_port_lock(found.index));
  return found;
}

std::string xdp_port_lock(int index) { return fmt::format("clustar-xdp-{}", index); }

}  // namespace clustar::transport::io::dpdk
