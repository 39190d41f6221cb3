// Layers that are spread over the ranks, as far as their all-to-alls go: what --traffic says, and the blocks of each.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/trainer/collective.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::parallel {

// A mixture-of-experts layer: rank r has experts / ranks of the experts, from its number on, and each of its tokens
// goes to top_k of all. As GShard (Lepikhin et al., 2020) has it, each rank gives each expert room for an equal part of
// its tokens (capacity factor 1), so that all blocks are equal.
struct MoeLayer {
  std::size_t experts = 0;
  std::size_t tokens = 0;  // of each rank
  std::size_t hidden = 0;  // float32
  std::size_t top_k = 2;
};

// Embedding tables as DLRM (Naumov et al., 2019) divides them: table t is rank t modulo ranks', which looks up one
// pooled vector for each example of each rank.
struct DlrmTables {
  std::size_t tables = 0;
  std::size_t dim = 0;    // float32
  std::size_t batch = 0;  // of each rank
};

struct LayerOptions {
  std::optional<MoeLayer> moe;
  std::optional<DlrmTables> dlrm;
};

// "moe=experts:8,tokens:512,hidden:512,top-k:2" or "dlrm=tables:8,dim:64,batch:128": each key once, in any order; only
// top-k may be left out. Each kind once. Errors say what is allowed.
Result<void> parse_layer(std::string_view text, LayerOptions& options);
// All of them, in the same form, separated by blanks; empty: none.
std::string to_text(const LayerOptions& options);
// Empty: they fit so many ranks. Otherwise what is allowed.
std::string layer_contradiction(const LayerOptions& options, int ranks);

// What one layer exchanges in a step, each after the other.
struct LayerExchanges {
  std::string name;       // "moe", "dlrm"
  std::string comm_name;  // ncclConfig_t.commName: "train-moe", "train-dlrm"
  std::vector<Collective::BlockSizes> forward{}, backward{};
};
std::vector<LayerExchanges> layer_exchanges(const LayerOptions& options, int rank, int ranks);

}  // namespace clustar::bench::trainer::parallel
