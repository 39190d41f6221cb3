#include "bench/proxy/tuner_plugin.h"

#include <fmt/format.h>

#include <utility>

#include "bench/proxy/nccl_names.h"

namespace clustar::bench::proxy {
namespace {

using namespace nccl_abi;  // NOLINT: this file speaks the ABI

constexpr int kNewest = 6;
constexpr int kOldest = 4;
// ncclTunerConstants_v5_t: 144 doubles that a tuner may change; nobody reads them here.
using Constants = std::array<double, 144>;

template <int V>
struct Abi;
template <>
struct Abi<4> {
  using Table = TunerV4;
};
template <>
struct Abi<5> {
  using Table = TunerV5;
};
template <>
struct Abi<6> {
  using Table = TunerV6;
};

template <int V>
class Adaptor final : public TunerPlugin {
  using Table = typename Abi<V>::Table;

 public:
  Adaptor(Library library, const void* table)
      : TunerPlugin(std::move(library)), table_(static_cast<const Table*>(table)) {}

  int version() const override { return V; }
  const char* name() const override { return table_->name != nullptr ? table_->name : ""; }

  int init(const TunedComm& comm, DebugLogger logger, void** context) override {
    if (table_->init == nullptr || table_->getCollInfo == nullptr || end() == nullptr) return kInternalError;
    if constexpr (V == 4) {
      return table_->init(comm.ranks, comm.nodes, logger, context);
    } else {
      // One rank per node, and no NVLink between nodes.
      NvlDomainInfo domains{static_cast<int>(comm.nodes), 1, 1};
      return table_->init(context, comm.comm_id, comm.ranks, comm.nodes, logger, &domains, constants_.data());
    }
  }

  int get_coll_info(void* context, int function, std::size_t bytes, CostTable& costs, int* channels) override {
    // A single operation on buffers that are not registered.
    return table_->getCollInfo(context, function, bytes, 1, reinterpret_cast<float**>(costs.data()), kTunerAlgos,
                               kTunerProtos, 0, channels);
  }

  int finalize(void* context) override { return end()(context); }

 private:
  int (*end() const)(void*) {
    if constexpr (V == 4)
      return table_->destroy;
    else
      return table_->finalize;
  }

  const Table* table_;
  Constants constants_{};  // as long as the context: a tuner may keep the pointer
};

std::unique_ptr<TunerPlugin> adapt(Library library, const void* table, int version) {
  switch (version) {
    case 4: return std::make_unique<Adaptor<4>>(std::move(library), table);
    case 5: return std::make_unique<Adaptor<5>>(std::move(library), table);
    default: return std::make_unique<Adaptor<6>>(std::move(library), table);
  }
}

}  // namespace

clustar::Result<std::unique_ptr<TunerPlugin>> TunerPlugin::open(const std::string& path, int newest) {
  if (newest < kOldest || newest > kNewest) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tuner version {} is not known; allowed are {} to {}", newest, kOldest, kNewest));
  }
  auto opened = open_library(path);
  if (!opened) return tl::unexpected(opened.error());
  for (int v = newest; v >= kOldest; --v) {
    const void* table = find_symbol(opened->library.get(), fmt::format("ncclTunerPlugin_v{}", v));
    if (table != nullptr) return adapt(std::move(opened->library), table, v);
  }
  return nullptr;
}

CostTable offered_costs(Protocol wanted) {
  CostTable costs;
  for (auto& row : costs) row.fill(kCostIgnored);
  auto& ring = costs[kRing];
  ring[kSimple] = 2.0f;
  ring[static_cast<std::size_t>(protocol_of(wanted))] = 1.0f;
  return costs;
}

clustar::Result<Protocol> cheapest_ring(const CostTable& costs, const char* function) {
  const auto& ring = costs[kRing];
  Protocol best = Protocol::kSimple;
  float best_cost = kCostIgnored;
  for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128}) {
    const float cost = ring[static_cast<std::size_t>(protocol_of(protocol))];
    if (cost == kCostIgnored || (best_cost != kCostIgnored && cost >= best_cost)) continue;
    best = protocol;
    best_cost = cost;
  }
  if (best_cost != kCostIgnored) return best;
  return fail(
      ErrorCode::kInvalidUsage,
      fmt::format("the tuner left no protocol for {} over a ring; NCCL fails here, too (ncclInvalidUsage)", function));
}

}  // namespace clustar::bench::proxy
