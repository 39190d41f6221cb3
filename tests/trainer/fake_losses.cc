#include "tests/trainer/fake_losses.h"

#include <cstring>
#include <span>

#include "nccl_plugin/clustar.h"

using clustar::bench::trainer::FakeLosses;

namespace {

FakeLosses state;

int list_collectives(clustarCollective_v1* out, std::size_t capacity, std::size_t* count) {
  *count = 0;
  if (capacity == 0) return CLUSTAR_OK;
  out->comm_id = FakeLosses::kCommId;
  std::strcpy(out->comm_name, FakeLosses::kCommName);
  *count = 1;
  return CLUSTAR_OK;
}

int list_missing_from(std::uint64_t comm_id, std::uint32_t sender, std::uint64_t number, clustarMissing_v1* out,
                      std::size_t capacity, std::size_t* count) {
  if (state.answer != CLUSTAR_OK) return state.answer;
  const auto found = state.missing.find({sender, number});
  if (comm_id != FakeLosses::kCommId || found == state.missing.end()) return CLUSTAR_ENOTFOUND;
  *count = found->second.size();
  for (std::size_t i = 0; i < *count && i < capacity; ++i) {
    const FakeLosses::Range& range = found->second[i];
    out[i].slice = range.transfer;
    out[i].offset = range.offset;
    out[i].bytes = range.bytes;
  }
  return CLUSTAR_OK;
}

int mark_importance(const void* buffer, std::size_t bytes, std::size_t block_bytes, const std::uint8_t* important,
                    std::size_t blocks) {
  state.marked.push_back({buffer, bytes, block_bytes, {important, important + blocks}});
  return CLUSTAR_OK;
}

int forget_importance(const void* buffer, std::size_t) {
  state.forgotten.push_back(buffer);
  return CLUSTAR_OK;
}

clustarApi_v1_t first() {
  clustarApi_v1_t api{};
  api.size = sizeof api;
  api.listCollectives = list_collectives;
  api.listMissingFrom = list_missing_from;
  return api;
}

clustarApi_v2_t second() {
  clustarApi_v2_t api{};
  api.size = sizeof api;
  api.v1 = &clustarApi_v1;
  api.markImportance = mark_importance;
  api.forgetImportance = forget_importance;
  return api;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) FakeLosses* fake_losses() { return &state; }
__attribute__((visibility("default"))) extern const clustarApi_v1_t clustarApi_v1 = first();
__attribute__((visibility("default"))) extern const clustarApi_v2_t clustarApi_v2 = second();

}  // extern "C"
