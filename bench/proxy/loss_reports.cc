#include "bench/proxy/loss_reports.h"

#include <fmt/format.h>

#include <utility>

#include "bench/proxy/plugin_library.h"
#include "nccl_plugin/clustar.h"

namespace clustar::bench::proxy {
namespace {

class PluginLossReports final : public LossReports {
 public:
  PluginLossReports(Library library, const clustarApi_v1_t* api) : library_(std::move(library)), api_(api) {}

  Result<std::vector<LostBytes>> missing_from(std::uint64_t comm_id, int sender, std::uint64_t number) override {
    return ask("listMissingFrom", api_ != nullptr ? api_->listMissingFrom : nullptr, comm_id, sender, number);
  }
  Result<std::vector<LostBytes>> lost_to(std::uint64_t comm_id, int receiver, std::uint64_t number) override {
    return ask("listLostTo", api_ != nullptr ? api_->listLostTo : nullptr, comm_id, receiver, number);
  }

 private:
  using List = decltype(clustarApi_v1_t::listMissingFrom);

  Result<std::vector<LostBytes>> ask(const char* name, List list, std::uint64_t comm_id, int peer,
                                     std::uint64_t number) {
    if (list == nullptr) return std::vector<LostBytes>{};
    std::size_t count = 0;
    for (;;) {
      for (clustarMissing_v1& range : ranges_) range.size = sizeof range;
      const int result =
          list(comm_id, static_cast<std::uint32_t>(peer), number, ranges_.data(), ranges_.size(), &count);
      if (result == CLUSTAR_ENOTFOUND) return std::vector<LostBytes>{};
      if (result != CLUSTAR_OK) {
        return fail(ErrorCode::kInternal, fmt::format("the plugin's {} for rank {}, send {}, returned {}; allowed are "
                                                      "CLUSTAR_OK and CLUSTAR_ENOTFOUND",
                                                      name, peer, number, result));
      }
      if (count <= ranges_.size()) break;
      ranges_.resize(count);
    }
    std::vector<LostBytes> lost;
    for (std::size_t i = 0; i < count; ++i) lost.push_back({ranges_[i].slice, ranges_[i].offset, ranges_[i].bytes});
    return lost;
  }

  Library library_;
  const clustarApi_v1_t* api_;  // null: none
  std::vector<clustarMissing_v1> ranges_ = std::vector<clustarMissing_v1>(64);
};

}  // namespace

Result<std::unique_ptr<LossReports>> plugin_loss_reports(const std::string& path) {
  auto opened = open_library(path);
  if (!opened) return tl::unexpected(opened.error());
  const auto* api = static_cast<const clustarApi_v1_t*>(find_symbol(opened->library.get(), "clustarApi_v1"));
  if (api != nullptr && api->size < sizeof(clustarApi_v1_t)) api = nullptr;  // built before there were these lists
  return std::make_unique<PluginLossReports>(std::move(opened->library), api);
}

}  // namespace clustar::bench::proxy
