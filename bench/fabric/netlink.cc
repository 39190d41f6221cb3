#include "bench/fabric/netlink.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/gen_stats.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>

namespace clustar::bench::fabric {
namespace {

constexpr std::size_t kBlock = 64 * 1024;  // the kernel fills at most 32 KiB at a time
using Visit = std::function<void(int type, const char* data, std::size_t size)>;

std::size_t aligned(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// The attributes in [data, data + size), whatever their lengths claim.
void for_each_attribute(const char* data, std::size_t size, const Visit& visit) {
  while (size >= sizeof(rtattr)) {
    rtattr head;
    std::memcpy(&head, data, sizeof(head));
    if (head.rta_len < sizeof(head) || head.rta_len > size) return;
    visit(head.rta_type & ~NLA_F_NESTED, data + sizeof(head), head.rta_len - sizeof(head));
    const std::size_t step = std::min(aligned(head.rta_len), size);
    data += step;
    size -= step;
  }
}

template <class T>
T load(const char* data, std::size_t size) {
  T value{};
  std::memcpy(&value, data, std::min(size, sizeof(T)));  // an older kernel's struct is shorter
  return value;
}

class Socket {
 public:
  Socket() : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {
    const timeval bound{5, 0};
    if (fd_ >= 0) setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Asks for a dump and calls `visit` with type and body of each message.
template <class Body>
Result<void> dump(std::uint16_t type, const Body& body, const Visit& visit) {
  const auto failed = [](const char* what) {
    return fail(ErrorCode::kSystem, fmt::format("netlink: cannot {}: {}", what, std::strerror(errno)));
  };
  const Socket socket;
  struct {
    nlmsghdr head;
    Body body;
  } request{};
  request.head = {sizeof(request), type, NLM_F_REQUEST | NLM_F_DUMP, 1, 0};
  request.body = body;
  if (send(socket.fd(), &request, sizeof(request), 0) < 0) return failed("ask");
  std::vector<char> block(kBlock);
  while (true) {
    const ssize_t n = recv(socket.fd(), block.data(), block.size(), 0);
    if (n <= 0) return failed("read");
    const char* at = block.data();
    std::size_t left = static_cast<std::size_t>(n);
    while (left >= sizeof(nlmsghdr)) {
      nlmsghdr head;
      std::memcpy(&head, at, sizeof(head));
      if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > left) break;
      if (head.nlmsg_type == NLMSG_DONE) return {};
      if (head.nlmsg_type == NLMSG_ERROR) {
        errno = -load<int>(at + sizeof(head), head.nlmsg_len - sizeof(head));
        return failed("dump");
      }
      visit(head.nlmsg_type, at + sizeof(head), head.nlmsg_len - sizeof(head));
      const std::size_t step = std::min(aligned(head.nlmsg_len), left);
      at += step;
      left -= step;
    }
  }
}

void read_statistics(const char* data, std::size_t size, Queue& queue) {
  for_each_attribute(data, size, [&](int type, const char* value, std::size_t length) {
    if (type == TCA_STATS_BASIC) {
      const auto basic = load<gnet_stats_basic>(value, length);
      queue.bytes = basic.bytes;
      queue.packets = basic.packets;
    } else if (type == TCA_STATS_PKT64) {
      queue.packets = load<std::uint64_t>(value, length);
    } else if (type == TCA_STATS_QUEUE) {
      const auto counts = load<gnet_stats_queue>(value, length);
      queue.drops = counts.drops;
      queue.backlog_bytes = counts.backlog;
    }
  });
}

void read_options(const char* data, std::size_t size, Queue& queue) {
  if (queue.kind == "bfifo") queue.limit_bytes = load<tc_fifo_qopt>(data, size).limit;
  if (queue.kind == "tbf") {
    for_each_attribute(data, size, [&](int type, const char* value, std::size_t length) {
      if (type == TCA_TBF_PARMS) {
        queue.rate_bps = std::max(queue.rate_bps, std::uint64_t{load<tc_tbf_qopt>(value, length).rate.rate} * 8);
      } else if (type == TCA_TBF_RATE64) {
        queue.rate_bps = load<std::uint64_t>(value, length) * 8;
      }
    });
  }
  if (queue.kind != "htb") return;
  for_each_attribute(data, size, [&](int type, const char* value, std::size_t length) {
    if (type == TCA_HTB_PARMS) {
      queue.rate_bps = std::max(queue.rate_bps, std::uint64_t{load<tc_htb_opt>(value, length).rate.rate} * 8);
    } else if (type == TCA_HTB_RATE64) {
      queue.rate_bps = load<std::uint64_t>(value, length) * 8;
    }
  });
}

Result<std::vector<Queue>> read_queues_or_classes(std::uint16_t ask, std::uint16_t answer, int link) {
  std::vector<Queue> queues;
  tcmsg body{};
  body.tcm_family = AF_UNSPEC;
  body.tcm_ifindex = link;
  const auto done = dump(ask, body, [&](int type, const char* data, std::size_t size) {
    if (type != answer || size < sizeof(tcmsg)) return;
    const auto head = load<tcmsg>(data, size);
    Queue queue;
    queue.link = head.tcm_ifindex;
    queue.handle = head.tcm_handle;
    queue.parent = head.tcm_parent;
    const char* const attributes = data + aligned(sizeof(tcmsg));
    const std::size_t length = size - aligned(sizeof(tcmsg));
    // The kind first: it says how to read the options.
    for_each_attribute(attributes, length, [&](int kind, const char* value, std::size_t bytes) {
      if (kind == TCA_KIND) queue.kind.assign(value, strnlen(value, bytes));
    });
    for_each_attribute(attributes, length, [&](int kind, const char* value, std::size_t bytes) {
      if (kind == TCA_OPTIONS) read_options(value, bytes, queue);
      if (kind == TCA_STATS2) read_statistics(value, bytes, queue);
    });
    queues.push_back(queue);
  });
  if (!done) return tl::unexpected(done.error());
  return queues;
}

}  // namespace

Result<std::vector<Link>> read_links() {
  std::vector<Link> links;
  ifinfomsg body{};
  body.ifi_family = AF_UNSPEC;
  const auto done = dump(RTM_GETLINK, body, [&](int type, const char* data, std::size_t size) {
    if (type != RTM_NEWLINK || size < sizeof(ifinfomsg)) return;
    const auto head = load<ifinfomsg>(data, size);
    Link link;
    link.index = head.ifi_index;
    link.up = (head.ifi_flags & IFF_UP) != 0;
    link.running = (head.ifi_flags & IFF_RUNNING) != 0;
    for_each_attribute(data + aligned(sizeof(ifinfomsg)), size - aligned(sizeof(ifinfomsg)),
                       [&](int kind, const char* value, std::size_t length) {
                         if (kind == IFLA_IFNAME) link.name.assign(value, strnlen(value, length));
                         if (kind == IFLA_IFALIAS) link.alias.assign(value, strnlen(value, length));
                         if (kind == IFLA_MTU) link.mtu = load<int>(value, length);
                         // Not IFF_RUNNING, which follows up to a second later.
                         if (kind == IFLA_CARRIER) link.carrier = load<std::uint8_t>(value, length) != 0;
                         if (kind == IFLA_MASTER) link.master = load<int>(value, length);
                         if (kind != IFLA_STATS64) return;
                         const auto counts = load<rtnl_link_stats64>(value, length);
                         link.rx_packets = counts.rx_packets;
                         link.rx_bytes = counts.rx_bytes;
                         link.rx_drops = counts.rx_dropped;
                         link.tx_packets = counts.tx_packets;
                         link.tx_bytes = counts.tx_bytes;
                         link.tx_drops = counts.tx_dropped;
                       });
    links.push_back(link);
  });
  if (!done) return tl::unexpected(done.error());
  return links;
}

Result<std::vector<Queue>> read_queues() { return read_queues_or_classes(RTM_GETQDISC, RTM_NEWQDISC, 0); }

Result<std::vector<Queue>> read_classes(int link) { return read_queues_or_classes(RTM_GETTCLASS, RTM_NEWTCLASS, link); }

namespace {

constexpr unsigned kUnusable = RTNH_F_DEAD | RTNH_F_LINKDOWN;

void read_next_hops(const char* data, std::size_t size, Route& route) {
  while (size >= sizeof(rtnexthop)) {
    const auto hop = load<rtnexthop>(data, size);
    if (hop.rtnh_len < sizeof(hop) || hop.rtnh_len > size) return;
    if ((hop.rtnh_flags & kUnusable) == 0) route.links.push_back(hop.rtnh_ifindex);
    const std::size_t step = std::min(aligned(hop.rtnh_len), size);
    data += step;
    size -= step;
  }
}

}  // namespace

Result<std::vector<Route>> read_routes() {
  std::vector<Route> routes;
  rtmsg body{};
  body.rtm_family = AF_INET;
  const auto done = dump(RTM_GETROUTE, body, [&](int type, const char* data, std::size_t size) {
    if (type != RTM_NEWROUTE || size < sizeof(rtmsg)) return;
    const auto head = load<rtmsg>(data, size);
    if (head.rtm_table != RT_TABLE_MAIN || head.rtm_type != RTN_UNICAST) return;
    if (head.rtm_dst_len != 0 && head.rtm_dst_len != 32) return;
    Route route;
    for_each_attribute(data + aligned(sizeof(rtmsg)), size - aligned(sizeof(rtmsg)),
                       [&](int kind, const char* value, std::size_t length) {
                         if (kind == RTA_DST) {
                           std::array<char, INET_ADDRSTRLEN> text{};
                           const auto address = load<in_addr>(value, length);
                           if (inet_ntop(AF_INET, &address, text.data(), text.size()) != nullptr) {
                             route.destination = text.data();
                           }
                         }
                         if (kind == RTA_OIF && (head.rtm_flags & kUnusable) == 0) {
                           route.links.push_back(load<int>(value, length));
                         }
                         if (kind == RTA_MULTIPATH) read_next_hops(value, length, route);
                       });
    routes.push_back(route);
  });
  if (!done) return tl::unexpected(done.error());
  return routes;
}

}  // namespace clustar::bench::fabric
