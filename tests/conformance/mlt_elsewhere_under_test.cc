// MLT where packets fare worse, or travel otherwise, than on loopback: over a simulated fabric that keeps pace with the
// clock, and over kernel UDP with faults.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/test_backends.h"
#include "tests/conformance/toy_io.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/io/decorators/faulty_io.h"
#include "transport/io/decorators/forwarding_io.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/net/settings.h"
#include "transport/sim/sim_packet_io.h"

namespace clustar::transport::conformance {
namespace {

namespace driver = mlt::driver;

using MakeBackend = std::function<Result<std::unique_ptr<io::PacketBackend>>(const Config&)>;

TransportUnderTest mlt(const std::string& name, const std::string& engine, const MakeBackend& make) {
  return {name,
          [engine, make](Log log) -> Result<std::unique_ptr<Transport>> {
            static const SystemClock clock;
            Config config;
            config.edit<NetworkSettings>()->interfaces = "=lo";
            config.edit<NetworkSettings>()->family_name = "ipv4";
            config.edit<MltSettings>()->engine = engine;
            auto backend = make(config);
            if (!backend) return tl::unexpected(backend.error());
            return driver::MltTransport::create({config, clock, std::move(log)}, std::move(*backend));
          },
          engine == "inline"};
}

// One fabric for all devices of a test. The simulation is single-threaded and its time only moves when somebody calls:
// every call of every device, from any engine's thread, first lets it catch up with the real clock. The control
// connections stay on TCP, as they do on every backend.
class World {
 public:
  static constexpr std::uint32_t kHosts = 8;
  using Build = std::unique_ptr<sim::Network> (*)(sim::Simulation&);

  explicit World(Build build) : network(build(simulation_)), free_(kHosts) {
    for (std::uint32_t i = 0; i < kHosts; ++i) free_[i] = kHosts - 1 - i;
  }
  // The one that is in use, otherwise a fresh one: no packet of an earlier test is left in it.
  static std::shared_ptr<World> join(Build build) {
    static std::mutex mutex;
    static std::map<Build, std::weak_ptr<World>> worlds;
    const std::lock_guard lock(mutex);
    auto world = worlds[build].lock();
    if (!world) worlds[build] = world = std::make_shared<World>(build);
    return world;
  }
  // With the mutex held.
  void catch_up() { simulation_.run_until(TimePoint{} + (clock_.now() - began_)); }
  sim::HostId take_host() {
    const sim::HostId host = free_.back();
    free_.pop_back();
    return host;
  }
  void give_back(sim::HostId host) { free_.push_back(host); }

  std::mutex mutex;

 private:
  SystemClock clock_;
  const TimePoint began_ = clock_.now();
  sim::Simulation simulation_;

 public:
  std::unique_ptr<sim::Network> network;

 private:
  std::vector<sim::HostId> free_;
};

class SimDeviceIo final : public io::PacketIo {
 public:
  SimDeviceIo(std::shared_ptr<World> world, const sim::SimPacketIoOptions& options) : world_(std::move(world)) {
    const std::lock_guard lock(world_->mutex);
    host_ = world_->take_host();
    io_ = std::make_unique<sim::SimPacketIo>(*world_->network, host_, options);
  }
  ~SimDeviceIo() override {
    const std::lock_guard lock(world_->mutex);
    io_.reset();
    world_->give_back(host_);
  }
  const io::Capabilities& capabilities() const override { return io_->capabilities(); }
  // Its time is the real one, and who looks at it a thread of this machine.
  const io::LinkProfile& link() const override { return link_; }
  io::AddressBlob local_address() const override { return io_->local_address(); }
  Result<io::PeerId> add_peer(const io::AddressBlob& address, const net::Endpoint& control) override {
    const std::lock_guard lock(world_->mutex);
    return io_->add_peer(address, control);
  }
  Result<void> remove_peer(io::PeerId peer) override {
    const std::lock_guard lock(world_->mutex);
    return io_->remove_peer(peer);
  }
  Result<std::unique_ptr<io::Mr>> reg_mr(const gdr::MemoryRef& memory) override { return io_->reg_mr(memory); }
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    const auto lock = now();
    return io_->send(packets);
  }
  Result<std::size_t> receive(std::span<io::RxPacket> packets) override {
    const auto lock = now();
    return io_->receive(packets);
  }
  void release(std::span<const io::RxPacket> packets) override {
    const std::lock_guard lock(world_->mutex);
    io_->release(packets);
  }
  io::PlacementHint expect(io::PeerId, std::uint64_t, const io::MemorySlice&, std::size_t) override { return {}; }
  void cancel(io::PlacementHint) override {}
  void wait(Duration) override { const auto lock = now(); }  // only the clock lets time pass

 private:
  std::unique_lock<std::mutex> now() {
    std::unique_lock lock(world_->mutex);
    world_->catch_up();
    return lock;
  }

  std::shared_ptr<World> world_;
  const io::LinkProfile link_ = io::LinkProfile::usual(io::LinkKind::kKernel);
  sim::HostId host_ = 0;
  std::unique_ptr<sim::SimPacketIo> io_;
};

MakeBackend simulated(World::Build build, const sim::SimPacketIoOptions& options) {
  return [=](const Config&) -> Result<std::unique_ptr<io::PacketBackend>> {
    return std::make_unique<OneDeviceBackend>(
        "sim", [=]() -> OpenedIo { return std::make_unique<SimDeviceIo>(World::join(build), options); });
  };
}

std::unique_ptr<sim::Network> fabric(sim::Simulation& simulation) {
  sim::LeafSpineOptions options;
  options.leaves = World::kHosts;
  options.hosts_per_leaf = 1;
  options.spines = 4;
  options.switches.buffer_bytes = 4 << 20;
  options.switches.mark_above = sim::every_class<std::uint64_t>(100'000);
  return sim::Network::leaf_spine(simulation, options);
}

// 10 Gbit/s, shallow buffers, loss on every way in: drops and marks are the rule.
std::unique_ptr<sim::Network> poor_star(sim::Simulation& simulation) {
  sim::StarOptions options;
  options.hosts = World::kHosts;
  options.link.rate_bps = 10'000'000'000;
  options.host.tx_queue_packets = 32;
  options.switches.buffer_bytes = 100'000;
  options.switches.mark_above = sim::every_class<std::uint64_t>(30'000);
  auto network = sim::Network::star(simulation, options);
  for (sim::HostId host = 0; host < World::kHosts; ++host) network->down(host).faults().add(sim::RandomLoss{0.01});
  return network;
}

// Stands for the checksum of UDP, which faults of a PacketIo come after: what was sent by nobody is thrown away.
class ChecksumIo final : public io::ForwardingIo {
 public:
  using ForwardingIo::ForwardingIo;
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    {
      const std::lock_guard lock(sent().mutex);
      if (sent().digests.size() > kMost) sent().digests.clear();  // what is under way is lost then
      for (const io::TxPacket& packet : packets) {
        sent().digests.insert(digest(packet.header.bytes(), io::host_bytes(packet.payload)));
      }
    }
    return ForwardingIo::send(packets);
  }
  Result<std::size_t> receive(std::span<io::RxPacket> packets) override {
    const auto got = ForwardingIo::receive(packets);
    if (!got) return got;
    const std::lock_guard lock(sent().mutex);
    const auto whole = std::stable_partition(
        packets.begin(), packets.begin() + static_cast<std::ptrdiff_t>(*got),
        [](const io::RxPacket& packet) { return sent().digests.contains(digest(packet.header, packet.payload)); });
    const auto kept = static_cast<std::size_t>(whole - packets.begin());
    release(packets.subspan(kept, *got - kept));
    return kept;
  }

 private:
  static constexpr std::size_t kMost = 1 << 20;
  struct Sent {
    std::mutex mutex;
    std::unordered_set<std::size_t> digests;
  };
  static Sent& sent() {
    static Sent sent;
    return sent;
  }
  static std::size_t digest(std::span<const std::byte> header, std::span<const std::byte> payload) {
    const auto hash = [](std::span<const std::byte> bytes) {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    };
    return hash(header) * 31 + hash(payload);
  }
};

MakeBackend faulty(io::FaultSpec spec) {
  return [spec](const Config& config) -> Result<std::unique_ptr<io::PacketBackend>> {
    auto udp = io::udp::UdpBackend::create(config);
    if (!udp) return udp;
    return std::make_unique<WrappedBackend>(std::move(*udp), [spec](std::unique_ptr<io::PacketIo> inner) -> OpenedIo {
      static std::atomic<std::uint64_t> seed{1};
      io::FaultSpec own = spec;
      own.seed = seed++;  // the two ends of a test lose different packets
      auto io = io::FaultyIo::create(std::move(inner), own);
      if (!io) return tl::unexpected(io.error());
      return std::make_unique<ChecksumIo>(std::move(*io));
    });
  };
}

io::FaultSpec bad_weather() {
  io::FaultSpec spec;
  spec.loss = 0.05;
  spec.duplicate = 0.02;
  spec.reorder = 0.02;
  spec.reorder_packets = 5;
  spec.corrupt = 0.02;
  return spec;
}

}  // namespace

std::vector<TransportUnderTest> mlt_elsewhere_under_test() {
  const sim::SimPacketIoOptions wide{.max_packet = 8972, .paths = 8, .receive_queue_packets = 16384};
  const sim::SimPacketIoOptions narrow{.max_packet = 1472, .paths = 1, .receive_queue_packets = 512};
  return {
      mlt("mlt_sim_fabric", "auto", simulated(fabric, wide)),
      mlt("mlt_sim_poor", "inline", simulated(poor_star, narrow)),
      mlt("mlt_udp_faulty", "auto", faulty(bad_weather())),
      mlt("mlt_toy", "auto",
          [](const Config&) {
            return std::make_unique<OneDeviceBackend>("toy", []() -> OpenedIo { return std::make_unique<ToyIo>(); });
          }),
      mlt("mlt_udp_faulty_thread", "thread", faulty(bad_weather())),
  };
}

}  // namespace clustar::transport::conformance
