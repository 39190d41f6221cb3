#include "tests/conformance/dpdk_peers.h"

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/own_network.h"
#include "tests/temp_path.h"
#include "transport/base/system_clock.h"
#include "transport/io/dpdk/dpdk_backend.h"
#include "transport/io/dpdk/eal.h"
#include "transport/io/dpdk/settings.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

// net_af_packet numbers its group of sockets by process XOR interface, and the kernel refuses a number that another
// interface has: neighbours among processes must not have neighbours among interfaces.
constexpr const char* kVeth =
    "ip link del f0 2>/dev/null; ip link add f0 index 16 type veth peer name f1 index 16400 && ip link set f0 up && "
    "ip link set f1 up";

std::string memif_socket() { return tests::temp_path("memif", ".sock"); }

}  // namespace

Wire over_veth() { return {"net_af_packet0,iface=f0@10.8.0.1/24", "net_af_packet0,iface=f1@10.8.0.2/24"}; }

// Children of one process draw the same MAC by chance.
Wire over_memif() {
  const std::string shared = ",socket-abstract=no,socket=" + memif_socket();
  return {"net_memif0,role=server,mac=02:00:00:00:08:01" + shared + "@10.8.0.1/24",
          "net_memif0,role=client,mac=02:00:00:00:08:02" + shared + "@10.8.0.2/24"};
}

void DpdkPeers::SetUp() {
  if (const auto own = enter_own_network(); !own) GTEST_SKIP() << own.error().message;
  Peer probe([](Peer& parent) { parent.say(static_cast<bool>(io::dpdk::start_eal({}))); });
  if (!probe.hear<bool>()) GTEST_SKIP() << "DPDK cannot begin here; `clustar doctor dpdk` says what lacks";
  const auto made = shell(kVeth);
  if (!made) GTEST_SKIP() << made.error().message;
}

void DpdkPeers::TearDown() { std::filesystem::remove(memif_socket()); }

std::unique_ptr<Transport> DpdkPeers::create(const std::string& device, const std::string& engine) {
  static const SystemClock clock;
  Config config;
  config.edit<DpdkSettings>()->devices = device;
  config.edit<DpdkSettings>()->huge_pages = "no";
  config.edit<NetworkSettings>()->control_interfaces = "=lo";
  config.edit<MltSettings>()->engine = engine;
  auto backend = io::dpdk::DpdkBackend::create(config, {});
  EXPECT_TRUE(backend) << backend.error().message;
  if (!backend) return nullptr;
  auto made = mlt::driver::MltTransport::create({config, clock, {}}, std::move(*backend));
  EXPECT_TRUE(made) << made.error().message;
  return made ? std::move(*made) : nullptr;
}

bool DpdkPeers::happens(const std::function<bool()>& what) {
  for (int round = 0; round < 4000; ++round) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace clustar::transport::conformance
