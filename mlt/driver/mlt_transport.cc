#include "mlt/driver/mlt_transport.h"

#include <fmt/format.h>

#include <utility>

#include "gdr/settings.h"
#include "mlt/driver/connect.h"
#include "mlt/driver/driver_options.h"
#include "mlt/driver/listener.h"
#include "mlt/driver/settings.h"
#include "transport/api/settings.h"
#include "transport/base/copies.h"

namespace clustar::mlt::driver {
namespace {

transport::DeviceProperties describe(const io::DeviceInfo& info, std::size_t index) {
  const io::Reach& reach = info.reach;
  transport::DeviceProperties properties;
  properties.name = info.name;
  properties.pci_path = info.pci_path;
  properties.guid = index;
  properties.speed_mbps = info.speed_mbps;
  properties.max_channels = 65536;
  properties.max_recv_parts = transport::kMaxRecvParts;
  properties.memory_kinds = reach.kinds;
  properties.gdr = reach.why.empty()
                       ? "off: these packets carry host memory; NCCL keeps its buffers in pinned host memory"
                       : reach.why;
  properties.force_flush = reach.force_flush;
  properties.ordered_lines = false;  // packets are placed as they come
  properties.may_lose = true;
  return properties;
}

EngineMode mode_of(const std::string& name) {
  if (name == "inline") return EngineMode::kInline;
  return name == "thread" ? EngineMode::kThread : EngineMode::kAuto;
}

Result<void> check(const transport::ChannelOptions& options) {
  constexpr std::uint32_t kAll = 1'000'000;
  if (options.max_tolerance_ppm <= kAll) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("mlt: max_tolerance_ppm is {}; 0 to {} are allowed", options.max_tolerance_ppm, kAll));
}

}  // namespace

Result<std::unique_ptr<transport::Transport>> MltTransport::create(const transport::TransportContext& context,
                                                                   std::unique_ptr<io::PacketBackend> backend,
                                                                   Adjust adjust) {
  const Config& config = context.config;
  std::unique_ptr<MltTransport> made(new MltTransport(context, std::move(backend), std::move(adjust)));
  made->context_.policies = transport::policies_of(context);
  made->context_.send_ahead = std::chrono::microseconds(config.get<SendOrderSettings>().ahead_us);
  made->context_.mode = mode_of(config.get<MltSettings>().engine);
  made->context_.important_ppm = config.get<MltSettings>().loss_important_ppm;
  made->context_.importance = context.importance;
  made->context_.stall_timeout = config.get<TransportSettings>().stall_timeout;
  auto protection = Protection::create(config);
  if (!protection) return tl::unexpected(protection.error());
  made->context_.protection = std::move(*protection);
  if (made->context_.protection != nullptr) {
    made->context_.log.info(fmt::format("mlt: every packet is sealed ({}, {})", config.get<MltSettings>().psk_mode,
                                        made->context_.protection->library()));
  }
  if (config.get<MltSettings>().parity == "auto") {
    auto codec = fec::Codec::open();
    if (codec) {
      made->context_.codec = std::move(*codec);
    } else {
      made->context_.log.info(fmt::format("mlt: no parity: {}", codec.error().message));
    }
  }
  auto devices = made->backend_->devices();
  if (!devices) return tl::unexpected(devices.error());
  const std::size_t engines = most_engines(config.get<MltSettings>().engines, devices->size(), usable_processors());
  bool emulates = false;
  for (io::DeviceInfo& info : *devices) {
    if (made->context_.protection != nullptr) {
      info.reach = {.why =
                        "off: packets are sealed by the processor (CLUSTAR_PSK_FILE), which must not touch GPU memory"};
    }
    if (config.get<GdrSettings>().emulate && info.reach.kinds != gdr::kHostOnly && !emulates) {
      emulates = true;
      made->context_.log.warn(
          "CLUSTAR_GDR_EMULATE=1: mlt says that it reaches GPU memory, and host memory plays it; for tests without a "
          "GPU, never with real GPU memory");
    }
    made->properties_.push_back(describe(info, made->nics_.size()));
    made->nics_.push_back({std::move(info), EngineGroup(engines, made->context_.mode)});
  }
  return made;
}

Result<MltTransport::Place> MltTransport::place(int device, const transport::ChannelOptions& options) {
  if (const auto checked = check(options); !checked) return tl::unexpected(checked.error());
  if (device < 0 || static_cast<std::size_t>(device) >= nics_.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("mlt: device {} does not exist; 0 to {} do", device, nics_.size() - 1));
  }
  const auto index = static_cast<std::size_t>(device);
  Nic& nic = nics_[index];
  const std::lock_guard lock(mutex_);
  auto engine =
      nic.engines.engine_for(options, [&](transport::TrafficBook& traffic) { return open_engine(index, traffic); });
  if (!engine) return tl::unexpected(engine.error());
  return Place{std::move(*engine), net::Address(nic.info.control)};
}

Result<std::unique_ptr<Engine>> MltTransport::open_engine(std::size_t device, transport::TrafficBook& traffic) {
  const Nic& nic = nics_[device];
  const bool first = nic.engines.engines().empty();
  auto opened = backend_->open(device);
  if (!opened) return tl::unexpected(opened.error());
  const io::LinkProfile link = (*opened)->link();
  auto options = options_for((*opened)->capabilities(), link, context_.protection == nullptr ? 0 : kSealBytes);
  if (!options) return tl::unexpected(options.error());
  const std::uint8_t paths = options->paths;
  if (adjust_) adjust_(*options);
  // Peers compare what a NIC was opened with, by whichever of its engines; the MTU may be another by now.
  if (!first) options->segment = nic.engines.engines().front()->options().segment;
  if (options->paths > paths) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("mlt: {} paths on {}; at most {} are allowed", options->paths, nic.info.name, paths));
  }
  auto engine = Engine::open(std::move(*opened), backend_->name(), *options, nic.info.name, context_, traffic);
  if (!engine || !first) return engine;
  context_.log.info(fmt::format("mlt: times on {} are those of a link as this: {}", nic.info.name, link.to_string()));
  if (context_.codec != nullptr && (*engine)->parity() == nullptr) {
    context_.log.info(fmt::format(
        "mlt: no parity on {}: the processor computes it, and must not touch what the NIC places, or a GPU's memory",
        nic.info.name));
  }
  return engine;
}

Result<std::unique_ptr<transport::Listener>> MltTransport::listen(int device,
                                                                  const transport::ChannelOptions& options) {
  auto chosen = place(device, options);
  if (!chosen) return tl::unexpected(chosen.error());
  return MltListener::open(std::move(chosen->engine), chosen->control, options);
}

Result<std::unique_ptr<transport::PendingConnect>> MltTransport::connect(int device, const transport::Handle& handle,
                                                                         const transport::ChannelOptions& options) {
  auto chosen = place(device, options);
  if (!chosen) return tl::unexpected(chosen.error());
  return MltPendingConnect::start(std::move(chosen->engine), chosen->control, handle, options);
}

transport::Counters MltTransport::counters() const {
  transport::Counters counters{.transport = "mlt", .note = describe_copies()};
  const std::lock_guard lock(mutex_);
  for (const Nic& nic : nics_) {
    if (nic.engines.engines().empty()) continue;
    auto& device = counters.devices.emplace_back(transport::DeviceCounters{.device = nic.info.name});
    nic.engines.traffic().fill(device);
    const EngineCounters count = nic.engines.counters();
    device.packets_sent = count.packets_sent;
    device.packets_received = count.packets_received;
    device.retransmitted = count.retransmissions;
    device.marked = count.marked;
    device.queued_bytes = count.queued_bytes;
    device.own = {{"missing_bytes", "bytes missing", device.total.missing_bytes},
                  {"eligible_bytes", "eligible", count.eligible_bytes},
                  {"charged_contribution_bytes", "contribution-bytes charged", count.charged},
                  {"refused_charges", "charges refused", count.refused},
                  {"missing_packets", "packets missing at peers", count.missing_packets},
                  {"parity_sent", "packets of parity sent", count.parity},
                  {"rebuilt", "packets rebuilt by parity", count.rebuilt},
                  {"strangers_dropped", "strangers dropped", count.strangers}};
    if (context_.protection != nullptr) {
      device.own.push_back({"unauthenticated_dropped", "unauthenticated dropped", count.unauthenticated});
      device.own.push_back({"replayed_dropped", "replayed packets dropped", count.replayed});
    }
    for (const auto& engine : nic.engines.engines()) {
      const std::string note = engine->describe_device();
      if (!note.empty()) device.note += (device.note.empty() ? "" : "; ") + note;
    }
  }
  return counters;
}

}  // namespace clustar::mlt::driver
