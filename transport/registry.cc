#include "transport/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "gdr/cuda/module_api.h"
#include "gdr/emulated_copy.h"
#include "gdr/settings.h"
#include "mlt/compare/settings.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/recovery_module.h"
#include "mlt/driver/settings.h"
#include "transport/api/settings.h"
#include "transport/base/own_folder.h"
#include "transport/io/decorators/settings.h"
#include "transport/io/packet_backend.h"
#include "transport/io/packet_ios.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/io/verbs/settings.h"
#include "transport/staged/staged_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport_tables.h"

namespace clustar::transport {
namespace {

using Create = Result<Selection> (*)(const TransportContext&);
struct Backend {
  const char* name;
  Create create;           // null: a module
  const char* not_chosen;  // why it is not taken unless it is asked for; null: it is
  bool protects;           // every packet, by CLUSTAR_PSK_FILE: which asks for the best of these
};

Result<Selection> create_tcp(const TransportContext& context) {
  auto transport = tcp::TcpTransport::create(context);
  if (!transport) return tl::unexpected(transport.error());
  Selection selection;
  selection.transport = std::move(*transport);
  return selection;
}

// Beside the plugin, where a program of ours finds them, too.
Result<Module> open_module(const std::string& name) {
  const std::string file = "libclustar-" + name + ".so";
  for (const std::string& folder : module_folders()) {
    std::error_code ignored;
    if (std::filesystem::exists(std::filesystem::path(folder) / file, ignored)) return Module::open(folder, name);
  }
  return Module::open(own_folder(), name);  // says that it is not there
}

}  // namespace

Result<std::unique_ptr<io::PacketBackend>> open_packets(const Config& config, const Log& log,
                                                        std::vector<Module>& modules) {
  const std::string named = config.get<MltSettings>().io;
  const PacketIoKind* kind = packet_io_kind(named);
  const auto refuse = [&](const std::string& reason) {
    return fail(ErrorCode::kUnavailable, fmt::format("CLUSTAR_IO={}: {}", named, reason));
  };
  if (kind == nullptr) {
    std::vector<std::string_view> names;
    for (const PacketIoKind& each : kPacketIos) names.push_back(each.name);
    return refuse(fmt::format("no such packets; allowed is {}", fmt::join(names, ", ")));
  }
  if (kind->module.empty()) return io::udp::UdpBackend::create(config);
  auto module = open_module(std::string(kind->module));
  if (!module) return refuse(module.error().message);
  const auto open = reinterpret_cast<io::OpenPacketBackend>(module->find(io::kOpenPacketBackend));
  if (open == nullptr) return refuse(fmt::format("libclustar-{}.so carries no packets", kind->module));
  auto backend = open(named, config, log);
  if (!backend) return refuse(backend.error().message);
  modules.push_back(std::move(*module));
  return backend;
}

namespace {

Result<std::unique_ptr<io::PacketBackend>> with_faults(std::unique_ptr<io::PacketBackend> backend, const Config& config,
                                                       const Log& log, std::vector<Module>& modules) {
  const std::string faults = config.get<FaultSettings>().inject;
  auto module = open_module("faults");
  const auto wrap = module ? reinterpret_cast<io::WrapPacketBackend>(module->find(io::kWrapPacketBackend)) : nullptr;
  if (wrap == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("CLUSTAR_INJECT_FAULTS={}: {}; install it beside the plugin, or unset the variable", faults,
                            module ? "libclustar-faults.so injects none" : module.error().message));
  }
  auto wrapped = wrap(std::move(backend), config);
  if (!wrapped) return wrapped;
  log.warn(
      fmt::format("CLUSTAR_INJECT_FAULTS={}: this process disturbs the packets that it sends, on purpose; unset "
                  "it for anything but experiments",
                  faults));
  modules.push_back(std::move(*module));
  return wrapped;
}

// Another recovery than MLT's own, where a setting asks for it.
Result<mlt::driver::MltTransport::Adjust> other_recovery(const Config& config, const Log& log,
                                                         std::vector<Module>& modules) {
  if (config.get<CompareSettings>().static_deadline == Duration::zero()) return {};
  auto module = open_module("compare");
  const auto open =
      module ? reinterpret_cast<mlt::driver::OpenRecovery>(module->find(mlt::driver::kOpenRecovery)) : nullptr;
  if (open == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("CLUSTAR_STATIC_DEADLINE: {}; install it beside the plugin, or unset the variable",
                            module ? "libclustar-compare.so has no recovery" : module.error().message));
  }
  auto opened = open(config);
  if (!opened) return tl::unexpected(opened.error());
  log.warn(
      "CLUSTAR_STATIC_DEADLINE: messages end at a fixed time, whatever is missing, and ranks get different bytes; "
      "unset it for anything but comparisons");
  modules.push_back(std::move(*module));
  return [recovery = std::shared_ptr<const mlt::Recovery>(std::move(*opened))](mlt::Options& options) {
    options.recovery = recovery.get();
  };
}

Result<Selection> create_mlt(const TransportContext& context) {
  const Config& config = context.config;
  const Log& log = context.log;
  Selection selection;
  auto backend = open_packets(config, log, selection.modules);
  if (backend && !config.get<FaultSettings>().inject.empty()) {
    backend = with_faults(std::move(*backend), config, log, selection.modules);
  }
  if (!backend) return tl::unexpected(backend.error());
  auto adjust = other_recovery(config, log, selection.modules);
  if (!adjust) return tl::unexpected(adjust.error());
  auto transport = mlt::driver::MltTransport::create(context, std::move(*backend), std::move(*adjust));
  if (!transport) return tl::unexpected(transport.error());
  selection.transport = std::move(*transport);
  return selection;
}

// Best first.
constexpr std::array<Backend, 4> kBackends{{
    {"verbs", nullptr, nullptr, false},
    {"ofi", nullptr, "only by CLUSTAR_TRANSPORT=ofi or CLUSTAR_REQUIRE=ofi in this version", false},
    {"mlt", create_mlt, "only by CLUSTAR_TRANSPORT=mlt, CLUSTAR_REQUIRE=mlt or CLUSTAR_PSK_FILE in this version", true},
    {"tcp", create_tcp, nullptr, false},
}};

// Copies by a GPU's copy engines, from libclustar-cuda.so, which stays loaded as long as what it makes them with.
Result<gdr::MakeCopy> cuda_copies() {
  auto opened = Module::open(own_folder(), "cuda");
  if (!opened) return tl::unexpected(opened.error());
  const auto api = gdr::cuda::api_of([&](const char* name) { return opened->find(name); });
  if (!api) return fail(ErrorCode::kUnavailable, "libclustar-cuda.so offers no copies between GPU and host memory");
  const auto module = std::make_shared<Module>(std::move(*opened));
  return [api = *api, module](const gdr::MemoryRef& memory) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
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
  const auto settings = context.config.get<GdrSettings>();
  const bool wanted = settings.gdr == "staged" || (settings.gdr == "auto" && settings.emulate);
  if (!wanted || staged::reaches_gpus(*selection.transport)) return {};
  staged::Options options;
  options.emulated = settings.emulate;
  options.importance = context.importance;
  auto copies = gpu_copies(context.config);
  if (!copies) {
    return fail(copies.error().code,
                fmt::format("CLUSTAR_GDR=staged: {}; CLUSTAR_GDR=auto does without", copies.error().message));
  }
  options.make_copy = std::move(*copies);
  if (settings.emulate) {
    options.kinds = gdr::kAnyKind & ~gdr::kHostOnly;
    options.gdr = "emulated: host memory plays GPU memory";
    context.log.warn(
        fmt::format("CLUSTAR_GDR_EMULATE=1: {} says that it reaches GPU memory, and host memory plays it; for tests "
                    "without a GPU, never with real GPU memory",
                    selection.transport->name()));
  } else {
    options.gdr = fmt::format(
        "staged: {} moves host memory, so GPU memory is copied to and from pinned host memory; NCCL uses it with "
        "NCCL_NET_GDR_LEVEL=SYS (GDRDMA in its log)",
        selection.transport->name());
  }
  selection.transport = std::make_unique<staged::StagedTransport>(std::move(selection.transport), std::move(options),
                                                                  context.clock, context.log);
  return {};
}

// The driver's word on GPU memory, by libclustar-cuda.so, which it keeps loaded.
class CudaDriver final : public GpuDriver {
 public:
  CudaDriver(Module module, const gdr::cuda::Api& api) : module_(std::move(module)), api_(api) {}
  Result<int> device_of(const void* address) override {
    const auto what = api_.describe(address);
    if (!what) return tl::unexpected(what.error());
    if (what->place == gdr::cuda::Place::kHost || what->device < 0) {
      return fail(ErrorCode::kInvalidArgument, "memory that is said to be a GPU's is the host's");
    }
    return what->device;
  }
  Result<void> flush(int device) override { return api_.flush(device); }

 private:
  const Module module_;
  const gdr::cuda::Api api_;
};

Result<std::shared_ptr<GpuDriver>> open_gpu_driver() {
  auto opened = Module::open(own_folder(), "cuda");
  if (!opened) return tl::unexpected(opened.error());
  const auto api = gdr::cuda::api_of([&](const char* name) { return opened->find(name); });
  if (!api) return fail(ErrorCode::kUnavailable, "libclustar-cuda.so says nothing of GPU memory");
  return std::make_shared<CudaDriver>(std::move(*opened), *api);
}

Result<Selection> make_own(const Backend& backend, const TransportContext& context) {
  if (backend.create != nullptr) return backend.create(context);
  if (std::string_view(backend.name) == "verbs" && context.config.get<IbSettings>().disable) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} = 1 forbids RDMA NICs; CLUSTAR_IB_DISABLE=0 allows them to clustar",
                            ib_disabled_by(context.config)));
  }
  auto module = Module::open(own_folder(), backend.name);
  if (!module) return tl::unexpected(module.error());
  TransportContext with = context;
  if (!with.gpu_driver) with.gpu_driver = open_gpu_driver;
  auto transport = module->entry().create(with);
  if (!transport) return tl::unexpected(transport.error());
  Selection selection;
  selection.modules.push_back(std::move(*module));
  selection.transport = std::move(*transport);
  return selection;
}

Result<Selection> make(const Backend& backend, const TransportContext& context) {
  auto selection = make_own(backend, context);
  if (!selection) return selection;
  if (const auto staged = stage_gpu_memory(*selection, context); !staged) {
    return tl::unexpected(staged.error());
  }
  return selection;
}

bool wanted(const TransportSettings& settings, const std::string& name) {
  const bool named = settings.transport == "auto" || settings.transport == name;
  return named && (settings.require.empty() || setting::one_of(name, settings.require));
}

}  // namespace

Result<gdr::MakeCopy> gpu_copies(const Config& config) {
  if (!config.get<GdrSettings>().emulate) return cuda_copies();
  return [](const gdr::MemoryRef&) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
    return std::make_unique<gdr::EmulatedCopy>(gdr::EmulatedCopy::Options{});
  };
}

Result<Selection> select_transport(const TransportContext& context) {
  const auto settings = context.config.get<TransportSettings>();
  const bool protect = !context.config.get<MltSettings>().psk_file.empty();
  // Before any transport is tried: otherwise the faults that were asked for could be left out in silence.
  if (const auto sound = check(context.config); !sound) return tl::unexpected(sound.error());
  std::vector<std::string> refused;
  for (const Backend& backend : kBackends) {
    if (!wanted(settings, backend.name)) continue;
    if (protect && !backend.protects) {
      refused.push_back(
          fmt::format("{}: CLUSTAR_PSK_FILE is set, and {} protects nothing; use CLUSTAR_TRANSPORT=mlt or "
                      "auto, or do without CLUSTAR_PSK_FILE",
                      backend.name, backend.name));
      continue;
    }
    const bool asked_for =
        protect || settings.transport == backend.name || setting::one_of(backend.name, settings.require);
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
                                                         settings.transport, fmt::join(settings.require, "|")));
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("no transport that was asked for works here ({})", fmt::join(refused, "; ")));
}

}  // namespace clustar::transport
