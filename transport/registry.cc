#include "transport/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "mlt/driver/faulty_device.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/udp_device.h"
#include "transport/base/own_folder.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport {
namespace {

using Create = Result<std::unique_ptr<Transport>> (*)(const Config&, const Clock&, const Log&);
struct Backend {
  const char* name;
  Create create;           // null: a module
  const char* not_chosen;  // why it is not taken unless it is asked for; null: it is
  bool protects;           // every packet, by CLUSTAR_PSK_FILE: which asks for the best of these
};

Result<std::unique_ptr<Transport>> create_tcp(const Config& config, const Clock& clock, const Log& log) {
  return tcp::TcpTransport::create(config, clock, log);
}

Result<std::unique_ptr<Transport>> create_mlt(const Config& config, const Clock& clock, const Log& log) {
  mlt::driver::OpenDevice open = mlt::driver::open_udp_device;
  if (!config.inject_faults.empty()) {
    const auto spec = io::FaultSpec::parse(config.inject_faults);
    if (!spec) return tl::unexpected(spec.error());
    log.warn(
        fmt::format("CLUSTAR_INJECT_FAULTS={}: this process disturbs the packets that it sends, on purpose; unset "
                    "it for anything but experiments",
                    config.inject_faults));
    open = mlt::driver::with_faults(std::move(open), *spec);
  }
  mlt::driver::MltTransport::Adjust adjust;
  if (config.static_deadline > Duration::zero()) {
    log.warn(
        "CLUSTAR_STATIC_DEADLINE: messages end at a fixed time, whatever is missing, and ranks get different bytes; "
        "unset it for anything but comparisons");
    adjust = [deadline = config.static_deadline](mlt::Options& options) {
      options.mode = mlt::Mode::kStaticDeadline;
      options.static_deadline = deadline;
    };
  }
  return mlt::driver::MltTransport::create(config, clock, log, open, std::move(adjust));
}

// Best first.
constexpr std::array<Backend, 4> kBackends{{
    {"verbs", nullptr, nullptr, false},
    {"ofi", nullptr, nullptr, false},
    {"mlt", create_mlt, "only by CLUSTAR_TRANSPORT=mlt, CLUSTAR_REQUIRE=mlt or CLUSTAR_PSK_FILE in this version", true},
    {"tcp", create_tcp, nullptr, false},
}};

Result<Selection> make(const Backend& backend, const Config& config, const Clock& clock, const Log& log) {
  Selection selection;
  Create create = backend.create;
  if (create == nullptr) {
    auto module = Module::open(own_folder(), backend.name);
    if (!module) return tl::unexpected(module.error());
    create = module->entry().create;
    selection.module = std::move(*module);
  }
  auto transport = create(config, clock, log);
  if (!transport) return tl::unexpected(transport.error());
  selection.transport = std::move(*transport);
  return selection;
}

bool wanted(const Config& config, const std::string& name) {
  const bool named = config.transport == "auto" || config.transport == name;
  const bool allowed =
      config.require.empty() || std::find(config.require.begin(), config.require.end(), name) != config.require.end();
  return named && allowed;
}

// Before any transport is tried: else the faults that were asked for could be left out in silence.
Result<void> check_faults(const Config& config) {
  if (const auto sound = config.check(); !sound) return sound;
  if (const auto spec = io::FaultSpec::parse(config.inject_faults); !spec) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("CLUSTAR_INJECT_FAULTS = '{}': {}", config.inject_faults, spec.error().message));
  }
  return {};
}

}  // namespace

Result<Selection> select_transport(const Config& config, const Clock& clock, const Log& log) {
  if (const auto faults = check_faults(config); !faults) return tl::unexpected(faults.error());
  std::vector<std::string> refused;
  for (const Backend& backend : kBackends) {
    if (!wanted(config, backend.name)) continue;
    const bool protect = !config.psk_file.empty();
    if (protect && !backend.protects) {
      refused.push_back(
          fmt::format("{}: CLUSTAR_PSK_FILE is set, and {} protects nothing; use CLUSTAR_TRANSPORT=mlt or "
                      "auto, or do without CLUSTAR_PSK_FILE",
                      backend.name, backend.name));
      continue;
    }
    const bool asked_for =
        protect || config.transport == backend.name ||
        std::find(config.require.begin(), config.require.end(), backend.name) != config.require.end();
    if (backend.not_chosen != nullptr && !asked_for) {
      refused.push_back(fmt::format("{}: {}", backend.name, backend.not_chosen));
      continue;
    }
    auto selection = make(backend, config, clock, log);
    if (selection) {
      selection->refused = std::move(refused);
      return selection;
    }
    refused.push_back(fmt::format("{}: {}", backend.name, selection.error().message));
  }
  if (refused.empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("CLUSTAR_TRANSPORT={} contradicts CLUSTAR_REQUIRE={}",
                                                         config.transport, fmt::join(config.require, "|")));
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("no transport that was asked for works here ({})", fmt::join(refused, "; ")));
}

}  // namespace clustar::transport
