// The transport over libfabric with several interfaces, between two network namespaces; and GPU memory where the
// provider does not carry it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gdr/settings.h"
#include "libfabric_shim/rdm/ofi_transport.h"
#include "tests/conformance/process_peer.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/run_command.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kLong = 8 << 20;

struct Wanted {
  std::string interfaces;
  std::string provider = "tcp;ofi_rxm";
  std::string gdr = "auto";
  std::shared_ptr<GpuDriver> driver{};
};
Result<std::unique_ptr<Transport>> create(const Wanted& wanted) {
  static const SystemClock clock;
  Config config;
  config.edit<NetworkSettings>()->interfaces = wanted.interfaces;
  config.edit<OfiSettings>()->provider = wanted.provider;
  config.edit<GdrSettings>()->gdr = wanted.gdr;
  TransportContext context{config, clock, Log{}};
  if (wanted.driver) context.gpu_driver = [&] { return wanted.driver; };
  return ofi::OfiTransport::create(context);
}

// Of an interface, since it is there.
std::uint64_t sent_bytes(const std::string& interface) {
  std::ifstream table("/proc/self/net/dev");
  for (std::string line; std::getline(table, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).find(interface) == std::string::npos) continue;
    std::istringstream numbers(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int column = 0; column < 9; ++column) numbers >> value;
    return value;
  }
  return 0;
}

// "rail" 0 and 1 of a host, each its own network.
bool set_up(const std::string& name, int host) {
  std::string all = "ip link set lo up";
  for (const char rail : {'0', '1'}) {
    const std::string interface = name + rail;
    all += " && ip addr add 10.77." + std::string(1, rail) + "." + std::to_string(host) + "/24 dev " + interface +
           " && ip link set " + interface + " up";
  }
  return tests::run_command(all).status == 0;
}

// On a fused device: messages that are one of libfabric's each, then one that is several, and small ones.
constexpr std::size_t kPieces = 8;
constexpr std::size_t kFusedSmall = 8;
constexpr std::size_t kFusedBytes = 2 * kLong + kLong * 2 + kPieces * kFusedSmall;
std::vector<std::pair<std::size_t, std::size_t>> fused_messages() {  // offset and length
  std::vector<std::pair<std::size_t, std::size_t>> all;
  std::size_t at = 0;
  const auto add = [&](std::size_t bytes) { all.emplace_back(std::exchange(at, at + bytes), bytes); };
  for (std::size_t i = 0; i < kPieces; ++i) add(2 * kLong / kPieces);
  add(2 * kLong);
  for (std::size_t i = 0; i < kPieces; ++i) add(kFusedSmall);
  return all;
}
std::uint64_t digest(const std::vector<std::byte>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  return hash;
}
constexpr std::array kBothRails{0, 1};

// All on the fused device, then some that are never looked at; at last on a connection of a plain device with it.
void receive_fused(Transport& transport, Peer& peer) {
  const auto device = transport.fuse(kBothRails);
  peer.say(device.value_or(-1));
  if (!device) return;
  auto channel = accept(transport, peer, *device);
  RecvBuffer buffer(*channel, kFusedBytes);
  std::vector<Request*> requests;
  for (const auto& [offset, length] : fused_messages()) {
    requests.push_back(must_recv(*channel, {{buffer.mr.get(), offset, length, 0}}));
  }
  finish(requests);
  peer.say(digest(buffer.bytes));
  const auto mixed = accept(transport, peer, *device);
  RecvBuffer small(*mixed, kLong);
  finish({must_recv(*mixed, {{small.mr.get(), 0, kLong, 0}})});
  peer.say(digest(small.bytes));
  const auto other = accept(transport, peer, *device);
  RecvBuffer last(*other, kFusedSmall);
  for (int i = 0; i < 4; ++i) must_recv(*channel, {{buffer.mr.get(), 0, kLong, 1}});
  peer.say(true);
  peer.hear<bool>();
  channel.reset();  // with messages unread
  peer.say(true);
  finish({must_recv(*other, {{last.mr.get(), 0, kFusedSmall, 0}})});
  peer.say(digest(last.bytes));
}

void send_fused(Transport& transport, Peer& peer) {
  const auto device = transport.fuse(kBothRails);
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ(transport.fuse(kBothRails).value_or(-1), *device);
  EXPECT_EQ(transport.devices()[2].name, "rail0+rail1");
  ASSERT_EQ(peer.hear<int>(), *device);
  const std::array before{sent_bytes("rail0"), sent_bytes("rail1")};
  auto channel = dial(transport, peer, *device);
  SendBuffer buffer(*channel, kFusedBytes, 3);
  std::vector<Request*> requests;
  for (const auto& [offset, length] : fused_messages()) {
    requests.push_back(must_send(*channel, *buffer.mr, offset, length));
  }
  finish(requests);
  EXPECT_EQ(peer.hear<std::uint64_t>(), digest(buffer.bytes));
  // Half of it each.
  EXPECT_GT(sent_bytes("rail0") - before[0], kFusedBytes * 4 / 10);
  EXPECT_GT(sent_bytes("rail1") - before[1], kFusedBytes * 4 / 10);
  EXPECT_EQ(transport.counters().devices[2].total.sent.bytes, kFusedBytes);
  // An end with one rail only: they use that one.
  const auto mixed = dial(transport, peer, 0);
  SendBuffer small(*mixed, kLong, 4);
  finish({must_send(*mixed, *small.mr, 0, kLong)});
  EXPECT_EQ(peer.hear<std::uint64_t>(), digest(small.bytes));
  // The peer closes with messages of both rails unread; the endpoints stay, and so the other connection does.
  const auto other = dial(transport, peer, *device);
  SendBuffer last(*other, kFusedSmall, 5);
  EXPECT_TRUE(peer.hear<bool>());
  std::vector<Request*> unread;
  for (int i = 0; i < 4; ++i) unread.push_back(must_send(*channel, *buffer.mr, 0, kLong, 1));
  for (int i = 0; i < 200; ++i) {
    const auto tested = unread.front()->test();
    if (!tested || tested->done) break;
  }
  peer.say(true);
  EXPECT_TRUE(peer.hear<bool>());
  channel.reset();
  finish({must_send(*other, *last.mr, 0, kFusedSmall)});
  EXPECT_EQ(peer.hear<std::uint64_t>(), digest(last.bytes));
}

// First in the program: what libfabric loads is of the namespace in which it is asked first.
TEST(OfiDevices, EachInterfaceCarriesWhatItsDeviceSends) {
  if (unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "may make no network namespace";
  for (const char rail : {'0', '1'}) {
    const std::string number(1, rail);
    const auto made = tests::run_command("ip link add rail" + number + " type veth peer name far" + number);
    if (made.status != 0) GTEST_SKIP() << "no veth: " << made.text;
  }
  Peer peer([](Peer& parent) {
    parent.say(unshare(CLONE_NEWNET) == 0 ? getpid() : 0);
    if (!parent.hear<bool>() || !set_up("far", 2)) return;
    const auto transport = create({"far"});
    parent.say(transport.has_value() && (*transport)->devices().size() == 2);
    if (!transport) return;
    const auto first = accept(**transport, parent, 0);
    const auto second = accept(**transport, parent, 1);
    RecvBuffer to_first(*first, kLong);
    RecvBuffer to_second(*second, 2 * kLong);
    finish({must_recv(*first, {{to_first.mr.get(), 0, kLong, 0}}),
            must_recv(*second, {{to_second.mr.get(), 0, 2 * kLong, 0}})});
    for (std::size_t i = 0; i < 64; ++i) parent.say(std::pair(to_first.bytes[i], to_second.bytes[2 * kLong - 1 - i]));
    parent.hear<bool>();
    receive_fused(**transport, parent);
  });
  const auto pid = peer.hear<pid_t>();
  bool moved = pid != 0;
  for (const char rail : {'0', '1'}) {
    const std::string command = "ip link set far" + std::string(1, rail) + " netns " + std::to_string(pid);
    moved = moved && tests::run_command(command).status == 0;
  }
  moved = moved && set_up("rail", 1);
  peer.say(moved);
  ASSERT_TRUE(moved);
  const auto transport = create({"rail"});
  if (!transport) {
    EXPECT_FALSE(peer.hear<bool>());
    GTEST_SKIP() << transport.error().message;
  }
  ASSERT_TRUE(peer.hear<bool>());
  const auto devices = (*transport)->devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "rail0");
  EXPECT_EQ(devices[1].name, "rail1");
  const auto first = dial(**transport, peer, 0);
  const auto second = dial(**transport, peer, 1);
  SendBuffer from_first(*first, kLong, 1);
  SendBuffer from_second(*second, 2 * kLong, 2);
  finish({must_send(*first, *from_first.mr, 0, kLong), must_send(*second, *from_second.mr, 0, 2 * kLong)});
  for (std::size_t i = 0; i < 64; ++i) {
    const auto got = peer.hear<std::pair<std::byte, std::byte>>();
    EXPECT_EQ(got, std::pair(from_first.bytes[i], from_second.bytes[2 * kLong - 1 - i]));
  }
  // Headers are a few percent.
  EXPECT_GT(sent_bytes("rail0"), kLong);
  EXPECT_LT(sent_bytes("rail0"), kLong * 3 / 2);
  EXPECT_GT(sent_bytes("rail1"), 2 * kLong);
  EXPECT_LT(sent_bytes("rail1"), 3 * kLong);
  const auto counters = (*transport)->counters();
  EXPECT_EQ(counters.devices[0].total.sent.bytes, kLong);
  EXPECT_EQ(counters.devices[1].total.sent.bytes, 2 * kLong);
  peer.say(true);
  send_fused(**transport, peer);
  EXPECT_EQ(peer.wait(), 0);
}

class NoGpu final : public GpuDriver {
 public:
  Result<int> device_of(const void*) override { return 0; }
  Result<void> flush(int) override { return {}; }
};

// A driver is there, but libfabric has no CUDA here: "shm" would copy with it, "tcp" has no FI_HMEM at all.
TEST(OfiDevices, GpuMemoryIsRefusedWhereTheProviderDoesNotPromiseIt) {
  struct Case {
    Wanted wanted;
    const char* why;
  };
  const auto driver = std::make_shared<NoGpu>();
  for (const Case& each : {Case{{"=lo", "shm", "auto", driver}, "fi_setopt"},
                           Case{{"=lo", "tcp;ofi_rxm", "auto", driver}, "the domain has no FI_HMEM"},
                           Case{{"=lo", "shm", "auto", nullptr}, "nothing here speaks to a GPU's driver"},
                           Case{{"=lo", "shm", "off", driver}, "CLUSTAR_GDR=off"}}) {
    const auto transport = create(each.wanted);
    if (!transport) GTEST_SKIP() << transport.error().message;
    const DeviceProperties& device = (*transport)->devices()[0];
    EXPECT_EQ(device.memory_kinds, gdr::kHostOnly);
    EXPECT_THAT(device.gdr, AllOf(HasSubstr("host memory only"), HasSubstr(each.why)));
    const auto connection = connect(**transport, **transport);
    std::array<std::byte, 64> memory{};
    for (const gdr::MemoryKind kind : {gdr::MemoryKind::kCuda, gdr::MemoryKind::kDmaBuf}) {
      const auto refused = connection.send->reg_mr({kind, memory.data(), memory.size(), 3, 0});
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(refused.error().message, HasSubstr(gdr::to_string(kind)));
    }
  }
}

}  // namespace
}  // namespace clustar::transport::conformance
