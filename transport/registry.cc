#include "transport/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transport/tcp/tcp_transport.h"

namespace clustar::transport {
namespace {

enum class Kind : std::uint8_t { kBuiltIn, kModule, kAbsent };
struct Backend {
  const char* name;
  Kind kind;
};
// Best first.
constexpr std::array<Backend, 4> kBackends{{
    {"verbs", Kind::kModule},
    {"ofi", Kind::kModule},
    {"mlt", Kind::kAbsent},
    {"tcp", Kind::kBuiltIn},
}};

Result<Selection> make(const Backend& backend, const Config& config, const Clock& clock, const Log& log) {
  Selection selection;
  switch (backend.kind) {
    case Kind::kAbsent: return fail(ErrorCode::kUnavailable, "not in this build");
    case Kind::kBuiltIn: {
      auto transport = tcp::TcpTransport::create(config, clock, log);
      if (!transport) return tl::unexpected(transport.error());
      selection.transport = std::move(*transport);
      return selection;
    }
    case Kind::kModule: {
      auto module = Module::open(Module::own_folder(), backend.name);
      if (!module) return tl::unexpected(module.error());
      auto transport = module->entry().create(config, clock, log);
      if (!transport) return tl::unexpected(transport.error());
      selection.module = std::move(*module);
      selection.transport = std::move(*transport);
      return selection;
    }
  }
  return fail(ErrorCode::kInternal, "unknown kind of backend");
}

bool wanted(const Config& config, const std::string& name) {
  const bool named = config.transport == "auto" || config.transport == name;
  const bool allowed =
      config.require.empty() || std::find(config.require.begin(), config.require.end(), name) != config.require.end();
  return named && allowed;
}

}  // namespace

Result<Selection> select_transport(const Config& config, const Clock& clock, const Log& log) {
  std::vector<std::string> refused;
  for (const Backend& backend : kBackends) {
    if (!wanted(config, backend.name)) continue;
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
