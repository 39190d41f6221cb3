// clustarApi_v2: marks of important memory.

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>

#include "nccl_plugin/clustar.h"
#include "nccl_plugin/net/plugin_state.h"

namespace clustar::nccl_plugin {
namespace {

using transport::ImportanceTable;

static_assert(CLUSTAR_MOST_BLOCKS == ImportanceTable::kMostBlocksOfRange);
static_assert(CLUSTAR_MOST_RANGES == ImportanceTable::kMostRanges);

// The wall that no exception passes. `body` gets the state that communicators hold.
template <class Body>
int with_plugin(Body&& body) noexcept {
  try {
    const std::shared_ptr<PluginState> plugin = current_plugin();
    return plugin ? body(*plugin) : CLUSTAR_ENOTFOUND;
  } catch (const std::exception&) {
    return CLUSTAR_ENOMEM;  // the only one there is
  }
}

bool passes_the_end(const void* buffer, std::size_t bytes) {
  return bytes > std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(buffer);
}

int mark_importance(const void* buffer, std::size_t bytes, std::size_t block_bytes, const std::uint8_t* important,
                    std::size_t blocks) {
  if (buffer == nullptr || important == nullptr || bytes == 0 || block_bytes == 0) return CLUSTAR_EINVAL;
  if (blocks > CLUSTAR_MOST_BLOCKS || blocks != ImportanceTable::blocks_of(bytes, block_bytes)) return CLUSTAR_EINVAL;
  if (passes_the_end(buffer, bytes)) return CLUSTAR_EINVAL;
  if (std::any_of(important, important + blocks, [](std::uint8_t mark) { return mark > 1; })) return CLUSTAR_EINVAL;
  return with_plugin([&](PluginState& plugin) {
    plugin.importance().mark(static_cast<const std::byte*>(buffer), bytes, block_bytes, {important, blocks},
                             plugin.clock().now());
    return CLUSTAR_OK;
  });
}

int forget_importance(const void* buffer, std::size_t bytes) {
  if ((buffer == nullptr) != (bytes == 0) || passes_the_end(buffer, bytes)) return CLUSTAR_EINVAL;
  return with_plugin([&](PluginState& plugin) {
    ImportanceTable& table = plugin.importance();
    const std::size_t forgotten =
        buffer == nullptr ? table.forget_all() : table.forget(static_cast<const std::byte*>(buffer), bytes);
    return forgotten > 0 ? CLUSTAR_OK : CLUSTAR_ENOTFOUND;
  });
}

int get_importance(clustarImportance_v1* out) {
  if (out == nullptr || out->size != sizeof *out) return CLUSTAR_EINVAL;
  return with_plugin([&](PluginState& plugin) {
    const ImportanceTable::Totals totals = plugin.importance().totals();
    out->ranges = totals.ranges;
    out->messages = totals.messages;
    out->bytes = totals.bytes;
    out->important_bytes = totals.important_bytes;
    return CLUSTAR_OK;
  });
}

}  // namespace
}  // namespace clustar::nccl_plugin

using namespace clustar::nccl_plugin;

extern "C" __attribute__((visibility("default"))) const clustarApi_v2_t clustarApi_v2 = {
    .size = sizeof(clustarApi_v2_t),
    .v1 = &clustarApi_v1,
    .markImportance = mark_importance,
    .forgetImportance = forget_importance,
    .getImportance = get_importance,
};
