#include "bench/trainer/parallel/layer_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <system_error>
#include <utility>

namespace clustar::bench::trainer::parallel {
namespace {

constexpr const char* kAllowed =
    "allowed: moe=experts:N,tokens:N,hidden:N,top-k:N (top-k may be left out) and dlrm=tables:N,dim:N,batch:N, N from "
    "1 "
    "to 1048576, each key once";
constexpr std::size_t kMost = 1u << 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // that a rank sends in one all-to-all

tl::unexpected<Error> unreadable(std::string_view text) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not such a layer; {}", text, kAllowed));
}

// Fills what `places` names. False: something else, something twice, or no number.
bool read(std::string_view text, std::map<std::string_view, std::size_t*> places) {
  while (!text.empty()) {
    const std::string_view term = text.substr(0, text.find(','));
    if (term.size() + 1 == text.size()) return false;  // ends in a comma
    text.remove_prefix(std::min(text.size(), term.size() + 1));
    const std::size_t colon = std::min(term.find(':'), term.size());
    const auto place = places.find(term.substr(0, colon));
    if (place == places.end() || colon == term.size()) return false;
    const char* const end = term.data() + term.size();
    const auto [stop, error] = std::from_chars(term.data() + colon + 1, end, *place->second);
    if (error != std::errc() || stop != end || *place->second < 1 || *place->second > kMost) return false;
    places.erase(place);
  }
  return true;
}

std::size_t capacity(const MoeLayer& layer) { return (layer.tokens * layer.top_k + layer.experts - 1) / layer.experts; }

std::size_t tables_of(const DlrmTables& layer, std::size_t rank, std::size_t ranks) {
  return rank < layer.tables ? (layer.tables - rank - 1) / ranks + 1 : 0;
}

// What comes back.
Collective::BlockSizes reversed(const Collective::BlockSizes& bytes) { return {bytes.recv, bytes.send}; }

}  // namespace

Result<void> parse_layer(std::string_view text, LayerOptions& options) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string_view kind = text.substr(0, equals);
  const std::string_view terms = text.substr(std::min(text.size(), equals + 1));
  if (kind == "moe" && !options.moe) {
    MoeLayer layer;
    const bool good = read(
        terms,
        {{"experts", &layer.experts}, {"tokens", &layer.tokens}, {"hidden", &layer.hidden}, {"top-k", &layer.top_k}});
    if (!good || layer.experts == 0 || layer.tokens == 0 || layer.hidden == 0) return unreadable(text);
    options.moe = layer;
    return {};
  }
  if (kind == "dlrm" && !options.dlrm) {
    DlrmTables layer;
    const bool good = read(terms, {{"tables", &layer.tables}, {"dim", &layer.dim}, {"batch", &layer.batch}});
    if (!good || layer.tables == 0 || layer.dim == 0 || layer.batch == 0) return unreadable(text);
    options.dlrm = layer;
    return {};
  }
  return unreadable(text);
}

std::string to_text(const LayerOptions& options) {
  std::string text;
  if (options.moe) {
    text = fmt::format("moe=experts:{},tokens:{},hidden:{},top-k:{}", options.moe->experts, options.moe->tokens,
                       options.moe->hidden, options.moe->top_k);
  }
  if (options.dlrm) {
    text += fmt::format("{}dlrm=tables:{},dim:{},batch:{}", text.empty() ? "" : " ", options.dlrm->tables,
                        options.dlrm->dim, options.dlrm->batch);
  }
  return text;
}

std::string layer_contradiction(const LayerOptions& options, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  if (options.moe && options.moe->experts % count != 0) {
    return fmt::format("{} experts on {} ranks; allowed: a multiple of the ranks", options.moe->experts, ranks);
  }
  if (options.moe && options.moe->top_k > options.moe->experts) {
    return fmt::format("top-k {} of {} experts; allowed: 1 to {}", options.moe->top_k, options.moe->experts,
                       options.moe->experts);
  }
  for (const LayerExchanges& layer : layer_exchanges(options, 0, ranks)) {
    double bytes = 0;
    for (const std::size_t block : layer.forward[0].send) bytes += static_cast<double>(block);
    if (bytes > static_cast<double>(kMostBytes)) {
      return fmt::format("{} has {:.0f} bytes in one all-to-all of a rank; allowed: at most {}", layer.name, bytes,
                         kMostBytes);
    }
  }
  return {};
}

std::vector<LayerExchanges> layer_exchanges(const LayerOptions& options, int rank, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<LayerExchanges> all;
  if (options.moe) {
    const std::size_t block = options.moe->experts / count * capacity(*options.moe) * options.moe->hidden;
    const std::vector<std::size_t> each(count, block * sizeof(float));
    // Tokens to their experts, and back; the gradients of either way come by the same ways.
    all.push_back({"moe", "train-moe", {{each, each}, {each, each}}, {{each, each}, {each, each}}});
  }
  if (options.dlrm) {
    Collective::BlockSizes lookups;
    const std::size_t vectors = options.dlrm->batch * options.dlrm->dim * sizeof(float);
    for (std::size_t peer = 0; peer < count; ++peer) {
      lookups.send.push_back(tables_of(*options.dlrm, static_cast<std::size_t>(rank), count) * vectors);
      lookups.recv.push_back(tables_of(*options.dlrm, peer, count) * vectors);
    }
    all.push_back({"dlrm", "train-dlrm", {lookups}, {reversed(lookups)}});
  }
  return all;
}

}  // namespace clustar::bench::trainer::parallel
