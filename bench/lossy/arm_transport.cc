#include "bench/lossy/arm_transport.h"

#include <chrono>
#include <utility>

#include "mlt/compare/recoveries.h"
#include "mlt/driver/driver_options.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "transport/api/settings.h"
#include "transport/base/config.h"
#include "transport/io/dpdk/settings.h"
#include "transport/net/settings.h"
#include "transport/tcp/settings.h"

namespace clustar::bench::lossy {
namespace {

using mlt::driver::MltTransport;

constexpr std::uint64_t kCommunicator = 1;

Config config_of(const Terms& terms) {
  Config config;
  config.edit<TransportSettings>()->transport = terms.arm.carrier == Carrier::kMlt ? "mlt" : "tcp";
  config.edit<NetworkSettings>()->interfaces = "=eth0";
  config.edit<NetworkSettings>()->family_name = "ipv4";
  config.edit<TcpSettings>()->congestion = terms.arm.congestion;
  config.edit<MltSettings>()->io = terms.arm.io;
  config.edit<DpdkSettings>()->devices = terms.arm.driver + "0,iface=eth0";
  config.edit<DpdkSettings>()->huge_pages = "no";
  return config;
}

std::shared_ptr<const mlt::Recovery> recovery_of(const Terms& terms) {
  switch (terms.arm.mode) {
    case MltMode::kNormal: break;
    case MltMode::kGoBackN: return std::make_shared<mlt::compare::GoBackN>();
    case MltMode::kStaticDeadline:
      return std::make_shared<mlt::compare::StaticDeadline>(std::chrono::nanoseconds(terms.deadline_ns));
  }
  return nullptr;
}

MltTransport::Adjust adjust_for(const Terms& terms) {
  return [terms, recovery = recovery_of(terms)](mlt::Options& options) {
    // What a NIC would say of its line.
    options.line_rate = terms.rate_bps / 8;
    options.credit_slack = mlt::driver::credit_slack_for(options.line_rate);
    if (terms.arm.paths > 0) options.paths = static_cast<std::uint8_t>(terms.arm.paths);
    options.recovery = recovery.get();
    if (terms.arm.mode == MltMode::kGoBackN) options.paths = 1;
  };
}

// Tells what to wait for.
class WatchedBackend final : public transport::io::PacketBackend {
 public:
  WatchedBackend(std::unique_ptr<PacketBackend> inner, std::shared_ptr<std::vector<int>> readable)
      : inner_(std::move(inner)), readable_(std::move(readable)) {}
  const char* name() const override { return inner_->name(); }
  Result<std::vector<transport::io::DeviceInfo>> devices() override { return inner_->devices(); }
  Result<std::unique_ptr<transport::io::PacketIo>> open(std::size_t device) override {
    auto io = inner_->open(device);
    if (io) readable_->assign((*io)->ready_fds().begin(), (*io)->ready_fds().end());
    return io;
  }

 private:
  const std::unique_ptr<PacketBackend> inner_;
  const std::shared_ptr<std::vector<int>> readable_;
};

}  // namespace

Result<ArmTransport> make_transport(const Terms& terms, const Clock& clock, const Log& log) {
  ArmTransport made;
  made.readable = std::make_shared<std::vector<int>>();
  const Config config = config_of(terms);
  if (terms.arm.carrier == Carrier::kClustarTcp) {
    auto selected = transport::select_transport({config, clock, log});
    if (!selected) return tl::unexpected(selected.error());
    made.selection = std::move(*selected);
    return made;
  }
  auto packets = transport::open_packets(config, log, made.selection.modules);
  if (!packets) return tl::unexpected(packets.error());
  auto watched = std::make_unique<WatchedBackend>(std::move(*packets), made.readable);
  auto created = MltTransport::create({config, clock, log}, std::move(watched), adjust_for(terms));
  if (!created) return tl::unexpected(created.error());
  made.selection.transport = std::move(*created);
  return made;
}

transport::ChannelOptions channel_options(const Terms& terms) {
  transport::ChannelOptions options;
  options.max_tolerance_ppm = terms.arm.tolerance_ppm;
  options.comm_id = kCommunicator;
  return options;
}

transport::FlowTag flow_tag(const Terms& terms, std::uint32_t round) {
  transport::FlowTag flow;
  if (terms.arm.tolerance_ppm == 0) return flow;
  const auto ranks = static_cast<std::uint16_t>(terms.senders + 1);
  flow.loss.communicator = kCommunicator;
  flow.loss.collective = round;
  flow.loss.collective_bytes = terms.round_bytes();
  flow.loss.ranks = ranks;
  flow.loss.edges = ranks;
  flow.loss.stage = 0;
  flow.loss.tolerance_ppm = terms.arm.tolerance_ppm;
  return flow;
}

}  // namespace clustar::bench::lossy
