#include "tests/conformance/packet_io_under_test.h"
#include "transport/sim/sim_packet_io.h"

namespace clustar::transport::conformance {
namespace {

class SimBed final : public PacketIoBed {
 public:
  using Build = std::function<std::unique_ptr<sim::Network>(sim::Simulation&)>;
  SimBed(const Build& build, const sim::SimPacketIoOptions& options, bool refuses, bool marks)
      : network_(build(simulation_)), refuses_(refuses), marks_(marks) {
    for (std::size_t i = 0; i < kEnds; ++i) {
      ends_[i] = std::make_unique<sim::SimPacketIo>(*network_, static_cast<sim::HostId>(i), options);
    }
  }
  io::PacketIo& end(std::size_t index) override { return *ends_[index]; }
  void advance(Duration duration) override { simulation_.run_for(duration); }
  bool refuses_bursts() const override { return refuses_; }
  bool marks_incast() const override { return marks_; }

 private:
  sim::Simulation simulation_;
  std::unique_ptr<sim::Network> network_;
  std::unique_ptr<sim::SimPacketIo> ends_[kEnds];
  bool refuses_;
  bool marks_;
};

PacketIoUnderTest bed(const std::string& name, const SimBed::Build& build, const sim::SimPacketIoOptions& options,
                      bool marks) {
  return {name, [=]() -> Result<std::unique_ptr<PacketIoBed>> {
            auto made = std::make_unique<SimBed>(build, options, true, marks);
            if (auto added = made->add_all_peers(); !added) return tl::unexpected(added.error());
            return made;
          }};
}

}  // namespace

std::vector<PacketIoUnderTest> sim_under_test() {
  const auto star = [](std::uint32_t tx_queue) {
    return [tx_queue](sim::Simulation& simulation) {
      sim::StarOptions options;
      options.hosts = PacketIoBed::kEnds;
      options.host.tx_queue_packets = tx_queue;
      options.switches.buffer_bytes = 16 << 20;
      options.switches.mark_above = sim::every_class<std::uint64_t>(20'000);
      return sim::Network::star(simulation, options);
    };
  };
  const auto fabric = [](sim::Simulation& simulation) {
    sim::LeafSpineOptions options;
    options.leaves = 3;
    options.hosts_per_leaf = 1;
    options.spines = 4;
    options.switches.buffer_bytes = 16 << 20;
    return sim::Network::leaf_spine(simulation, options);
  };
  return {
      bed("sim_star", star(256), {.max_packet = 1472, .paths = 16, .receive_queue_packets = 16384}, true),
      bed("sim_tiny_queue", star(1), {.max_packet = 8972, .paths = 1, .receive_queue_packets = 16384}, false),
      bed("sim_leaf_spine", fabric, {.max_packet = 4096, .paths = 64, .receive_queue_packets = 16384}, false),
  };
}

}  // namespace clustar::transport::conformance
