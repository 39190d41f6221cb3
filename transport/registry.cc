#include "transport/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "gdr/cuda/module_api.h"
#include "gdr/emulated_copy.h"
#include "mlt/driver/faulty_device.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/module_device.h"
#include "mlt/driver/udp_device.h"
#include "transport/base/own_folder.h"
#include "transport/staged/staged_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport {
namespace {

using Create = Result<Selection> (*)(const TransportContext&);
struct Backend {
  const char* name;
  Create create;           // null: a module
  const char* not_chosen;  // why it is not taken unless it is asked for; null: it is
  bool protects;           // every packet, by CLUSTAR_PSK_FILE: which asks for the best of these
};

Result<Selection> selected(Module module, Result<std::unique_ptr<Transport>> transport) {
  if (!transport) return tl::unexpected(transport.error());
  Selection selection;
  selection.module = std::move(module);
  selection.transport = std::move(*transport);
  return selection;
}

Result<Selection> create_tcp(const TransportContext& context) {
  return selected({}, tcp::TcpTransport::create(context));
}

// What opens mlt's devices; `module` holds the library that does, if one does.
Result<mlt::driver::OpenDevice> device_opener(const Config& config, Module& module) {
  if (config.io == "udp") return mlt::driver::OpenDevice(mlt::driver::open_udp_device);
  const auto refuse = [&](const std::string& reason) {
    return fail(ErrorCode::kUnavailable, fmt::format("CLUSTAR_IO={}: {}", config.io, reason));
  };
  auto opened = Module::open(own_folder(), "verbs");
  if (!opened) return refuse(opened.error().message);
  if (const auto check = opened->find(mlt::driver::kCheckDevices)) {
    const auto usable = reinterpret_cast<mlt::driver::CheckModuleDevices>(check)(config);
    if (!usable) return refuse(usable.error().message);
  }
  const auto found = opened->find(mlt::driver::module_device_name(config.io).c_str());
  if (found == nullptr) return refuse("libclustar-verbs.so has no such datapath");
  module = std::move(*opened);
  const auto open = reinterpret_cast<mlt::driver::OpenModuleDevice>(found);
  return mlt::driver::OpenDevice([open, config](const net::Interface& interface, const net::Address& local) {
    return open(config, interface, local);
  });
}

// Which memory they reach, which `module` knows once device_opener() has opened it.
mlt::driver::FindReach reach_finder(const Config& config, const Module& module) {
  if (config.io == "udp") return {};
  const auto found = module.find(mlt::driver::kFindReach);
  if (found == nullptr) return {};
  const auto find = reinterpret_cast<mlt::driver::FindModuleReach>(found);
  return [find, config](const net::Interface& interface, const net::Address& local) {
    auto reach = find(config, interface, local);
    return reach ? std::move(*reach) : mlt::driver::Reach{gdr::kHostOnly, reach.error().message};
  };
}

Result<Selection> create_mlt(const TransportContext& context) {
  const Config& config = context.config;
  const Log& log = context.log;
  Module module;
  auto open = device_opener(config, module);
  if (!open) return tl::unexpected(open.error());
  if (!config.inject_faults.empty()) {
    const auto spec = io::FaultSpec::parse(config.inject_faults);
    if (!spec) return tl::unexpected(spec.error());
    log.warn(
        fmt::format("CLUSTAR_INJECT_FAULTS={}: this process disturbs the packets that it sends, on purpose; unset "
                    "it for anything but experiments",
                    config.inject_faults));
    *open = mlt::driver::with_faults(std::move(*open), *spec);
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
  // `open` and what it opens belong to the transport, which goes before the module.
  auto transport =
      mlt::driver::MltTransport::create(context, std::move(*open), std::move(adjust), reach_finder(config, module));
  return selected(std::move(module), std::move(transport));
}

// Best first.
constexpr std::array<Backend, 4> kBackends{{
    {"verbs", nullptr, nullptr, false},
    {"ofi", nullptr, nullptr, false},
    {"mlt", create_mlt, "only by CLUSTAR_TRANSPORT=mlt, CLUSTAR_REQUIRE=mlt or CLUSTAR_PSK_FILE in this version", true},
    {"tcp", create_tcp, nullptr, false},
}};

// Copies by a GPU's copy engines, from libclustar-cuda.so, which `module` keeps loaded. Not run on hardware.
Result<staged::MakeCopy> device_copies(Module& module) {
  auto opened = Module::open(own_folder(), "cuda");
  if (!opened) return tl::unexpected(opened.error());
  const auto api = gdr::cuda::api_of([&](const char* name) { return opened->find(name); });
  if (!api) return fail(ErrorCode::kUnavailable, "libclustar-cuda.so offers no copies between GPU and host memory");
  module = std::move(*opened);
  return [api = *api](const gdr::MemoryRef& memory) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
    const auto what = api.describe(memory.address);
    if (!what) return tl::unexpected(what.error());
    if (what->place == gdr::cuda::Place::kHost) {
      return fail(ErrorCode::kInvalidArgument, "memory that is said to be a GPU's is the host's");
    }
    return api.open_copy(what->device, {});
  };
}

// GPU memory for a transport that does not reach it, where that was asked for. Error: it cannot be given.
Result<void> stage_gpu_memory(Selection& selection, const TransportContext& context) {
  const Config& config = context.config;
  const bool wanted = config.gdr == "staged" || (config.gdr == "auto" && config.gdr_emulate);
  if (!wanted || staged::reaches_gpus(*selection.transport)) return {};
  staged::Options options;
  options.emulated = config.gdr_emulate;
  if (config.gdr_emulate) {
    options.kinds = gdr::kAnyKind & ~gdr::kHostOnly;
    options.gdr = "emulated: host memory plays GPU memory";
    options.make_copy = [](const gdr::MemoryRef&) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
      return std::make_unique<gdr::EmulatedCopy>(gdr::EmulatedCopy::Options{});
    };
    context.log.warn(
        fmt::format("CLUSTAR_GDR_EMULATE=1: {} says that it reaches GPU memory, and host memory plays it; for tests "
                    "without a GPU, never with real GPU memory",
                    selection.transport->name()));
  } else {
    auto copies = device_copies(selection.copies);
    if (!copies) {
      return fail(copies.error().code,
                  fmt::format("CLUSTAR_GDR=staged: {}; CLUSTAR_GDR=auto does without", copies.error().message));
    }
    options.make_copy = std::move(*copies);
    options.gdr = fmt::format(
        "staged: {} moves host memory, so GPU memory is copied to and from pinned host memory; NCCL uses it with "
        "NCCL_NET_GDR_LEVEL=SYS (GDRDMA in its log)",
        selection.transport->name());
  }
  selection.transport = std::make_unique<staged::StagedTransport>(std::move(selection.transport), std::move(options),
                                                                  context.clock, context.log);
  return {};
}

Result<Selection> make_own(const Backend& backend, const TransportContext& context) {
  if (backend.create != nullptr) return backend.create(context);
  if (std::string_view(backend.name) == "verbs" && context.config.ib_disable) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} = 1 forbids RDMA NICs; CLUSTAR_IB_DISABLE=0 allows them to clustar",
                            context.config.disabled_by()));
  }
  auto module = Module::open(own_folder(), backend.name);
  if (!module) return tl::unexpected(module.error());
  auto transport = module->entry().create(context);
  return selected(std::move(*module), std::move(transport));
}

Result<Selection> make(const Backend& backend, const TransportContext& context) {
  auto selection = make_own(backend, context);
  if (!selection) return selection;
  if (const auto staged = stage_gpu_memory(*selection, context); !staged) {
    return tl::unexpected(staged.error());
  }
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

Result<Selection> select_transport(const TransportContext& context) {
  const Config& config = context.config;
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
    auto selection = make(backend, context);
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
