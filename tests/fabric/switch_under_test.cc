#include "tests/fabric/switch_under_test.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench/fabric/running.h"

namespace clustar::bench::fabric {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kHeaders = 14 + 20 + 8;
constexpr int kChunk = 100;  // far below what the kernel queues between two interfaces

std::uint64_t seen(const PortCounters& counters) {
  const ClassCounters to = counters.to_host();
  return to.packets + to.dropped();
}

}  // namespace

Receiver::Receiver(const Fabric& fabric) {
  on_host(fabric, 0, [&] {
    fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int on = 1, bytes = 32 << 20;
    ASSERT_EQ(setsockopt(fd_, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)), 0);
    ASSERT_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)), 0);
    sockaddr_in address = address_of_host(0, 0);
    socklen_t length = sizeof(address);
    ASSERT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    ASSERT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  });
}

Receiver::~Receiver() {
  if (fd_ >= 0) close(fd_);
}

std::vector<Received> Receiver::take(std::size_t count) const {
  std::vector<Received> all;
  const auto until = Clock::now() + std::chrono::seconds(10);
  std::vector<char> block(10'000);
  char control[64];
  while (true) {
    iovec into{block.data(), block.size()};
    msghdr message{};
    message.msg_iov = &into;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(fd_, &message, MSG_DONTWAIT);
    if (n < 0) {
      if (all.size() >= count || Clock::now() > until) return all;
      pollfd readable{fd_, POLLIN, 0};
      poll(&readable, 1, 100);
      continue;
    }
    Received one;
    one.payload_bytes = static_cast<std::size_t>(n);
    std::memcpy(&one.sequence, block.data(), std::min(sizeof(one.sequence), one.payload_bytes));
    if (const cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr) one.tos = *CMSG_DATA(head);
    all.push_back(one);
  }
}

void SwitchTest::SetUp() {
  FabricTest::SetUp();
  if (IsSkipped()) return;
  static const std::string reason = [this] {
    UpReport report;
    must_up(spec(2, 0), &report);
    const auto removed = Fabric::remove(name_);
    EXPECT_TRUE(removed) << removed.error().message;
    return report.note;
  }();
  if (!reason.empty()) GTEST_SKIP() << reason;
}

Fabric SwitchTest::must_switch(std::uint64_t rate_bps, std::uint64_t buffer_bytes, const PortRules& rules, int hosts) {
  FabricSpec wanted = spec(hosts, rate_bps);
  wanted.buffer_bytes = buffer_bytes;
  wanted.rules.ports["h0"] = rules;
  const Fabric fabric = must_up(wanted);
  for (int from = 0; from < hosts; ++from) {
    for (int to = 0; to < hosts; ++to) {
      if (from == to) continue;
      shell(fmt::format("ip -n {} neigh replace {} lladdr {} dev eth0 nud permanent", fabric.namespace_of(from),
                        fabric.address(to), host_mac(to)));
    }
  }
  return fabric;
}

void SwitchTest::unleash(const Fabric& fabric) const {
  shell(fmt::format("tc -n {} qdisc del dev eth0 root", fabric.namespace_of(1)));
}

void SwitchTest::send(const Fabric& fabric, const Receiver& to, std::uint8_t tos, int count, std::size_t frame_bytes,
                      std::uint32_t first) const {
  int fd = -1;
  on_host(fabric, 1, [&] {
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int value = tos;
    ASSERT_EQ(setsockopt(fd, IPPROTO_IP, IP_TOS, &value, sizeof(value)), 0);
    const sockaddr_in address = address_of_host(0, to.port());
    ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  });
  std::vector<char> payload(frame_bytes - kHeaders);
  const PortCounters before_port = counters(fabric, 1);
  const std::uint64_t before = seen(counters(fabric)) + before_port.from_host.dropped_loss;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t sequence = first + static_cast<std::uint32_t>(i);
    std::memcpy(payload.data(), &sequence, sizeof(sequence));
    EXPECT_EQ(::send(fd, payload.data(), payload.size(), 0), static_cast<ssize_t>(payload.size()));
    if ((i + 1) % kChunk != 0 && i + 1 != count) continue;
    const auto until = Clock::now() + std::chrono::seconds(5);
    while (seen(counters(fabric)) + counters(fabric, 1).from_host.dropped_loss <
           before + static_cast<std::uint64_t>(i) + 1) {
      if (Clock::now() > until) throw std::runtime_error("the switch has not seen what was sent");
      std::this_thread::yield();
    }
  }
  close(fd);
}

PortCounters SwitchTest::counters(const Fabric& fabric, int host) const {
  PortCounters found;
  const auto done = run_inside(switch_namespace(fabric.spec().name), [&]() -> Result<void> {
    const auto ports = read_switch();
    if (!ports) return tl::unexpected(ports.error());
    for (const ProgramPort& port : *ports) {
      if (port.interface == port_name(host)) found = port.counters;
    }
    return {};
  });
  EXPECT_TRUE(done) << done.error().message;
  return found;
}

void SwitchTest::change(const Fabric& fabric, const PortRules& rules) const {
  const auto changed = run_inside(switch_namespace(fabric.spec().name), [&] { return change_port("port0", rules); });
  ASSERT_TRUE(changed) << changed.error().message;
}

}  // namespace clustar::bench::fabric
