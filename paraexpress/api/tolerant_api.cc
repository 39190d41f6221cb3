// The C API of the tolerant contract.
#include <clustar/paraexpress_tolerant.h>
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "paraexpress/api/calls.h"
#include "paraexpress/tolerant/core/saved.h"
#include "paraexpress/tolerant/tolerant.h"
#include "transport/rendezvous/bootstrap.h"

namespace clustar::paraexpress {
namespace {

using rendezvous::Bootstrap;

struct Ranks {
  Met met{};  // outlives the group
  std::unique_ptr<tolerant::Group> group{};
};
struct Begun {
  std::shared_ptr<Ranks> ranks{};  // outlives the round
  std::unique_ptr<tolerant::Round> round{};
};

// Never destroyed: other threads may still call while the process ends.
Handles<Ranks>& groups() {
  static auto* const all = new Handles<Ranks>;
  return *all;
}
Handles<Begun>& rounds() {
  static auto* const all = new Handles<Begun>;
  return *all;
}

Result<tolerant::GroupOptions> options_of(const clustarPxTolerantOptions_v1& options) {
  struct Number {
    const char* name;
    int value, least;
  };
  for (const Number& one : {Number{"rank", options.rank, 0},
                            {"ranks", options.ranks, 1},
                            {"buckets", options.buckets, 1},
                            {"quorum", options.quorum, 0},
                            {"deadline_us", options.deadline_us, 0},
                            {"staleness", options.staleness, 0},
                            {"tolerance_ppm", options.tolerance_ppm, 0},
                            {"stall_ms", options.stall_ms, 0}}) {
    if (one.value < one.least) return wrong(fmt::format("{} {}; allowed: {} and more", one.name, one.value, one.least));
  }
  if (options.plain != 0 && options.plain != 1) return wrong(fmt::format("plain {}; allowed: 0, 1", options.plain));
  tolerant::GroupOptions group;
  group.rank = static_cast<Member>(options.rank);
  group.ranks = static_cast<std::uint32_t>(options.ranks);
  group.buckets = static_cast<std::uint32_t>(options.buckets);
  group.tolerance = {.quorum = static_cast<std::uint32_t>(options.quorum),
                     .deadline = std::chrono::microseconds(options.deadline_us),
                     .staleness = static_cast<std::uint32_t>(options.staleness),
                     .tolerance_ppm = static_cast<std::uint32_t>(options.tolerance_ppm),
                     .scales = options.plain == 0};
  if (options.stall_ms > 0) group.stall = std::chrono::milliseconds(options.stall_ms);
  if (const auto ok = check(group); !ok) return tl::unexpected(ok.error());
  return group;
}

// Under which a transport counts what it loses of this group: rank 0 draws it.
Result<std::uint64_t> agree_on_id(Bootstrap& bootstrap) {
  std::random_device random;
  const std::uint64_t mine = std::uint64_t{random()} << 32 | random();
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  if (!all) return tl::unexpected(all.error());
  std::uint64_t id = 0;
  std::memcpy(&id, all->data(), sizeof id);
  return id;
}

Result<void> init(const clustarPxTolerantOptions_v1* options, clustarPxTolerant_t* out) {
  if (options == nullptr || out == nullptr) return wrong("a null pointer; allowed: options, and where the handle goes");
  if (options->size != sizeof *options) {
    return wrong(
        fmt::format("size {}; allowed: {}, sizeof(clustarPxTolerantOptions_v1)", options->size, sizeof *options));
  }
  auto group = options_of(*options);
  if (!group) return tl::unexpected(group.error());
  auto met = meet(options->root, options->hosts, options->rank, options->ranks);
  if (!met) return tl::unexpected(met.error());
  const auto ranks = std::make_shared<Ranks>();
  ranks->met = std::move(*met);
  group->device = ranks->met.transport->device();
  group->channel.job = ranks->met.transport->job();
  const auto id = agree_on_id(*ranks->met.bootstrap);
  if (!id) return tl::unexpected(id.error());
  group->channel.comm_id = *id;
  auto made = tolerant::Group::create(
      ranks->met.transport->transport(),
      [&](std::span<const std::byte> mine) { return ranks->met.bootstrap->all_gather(mine); }, *group);
  if (!made) return tl::unexpected(made.error());
  ranks->group = std::move(*made);
  *out = groups().add(ranks);
  return {};
}

// With the group of this handle.
template <class Body>
int with_group(clustarPxTolerant_t handle, Body&& body) noexcept {
  return guarded([&]() -> Result<void> {
    const auto ranks = groups().find(handle);
    if (ranks == nullptr) return wrong(fmt::format("group {}; allowed: one that is not finalized", handle));
    return body(ranks);
  });
}

std::uint32_t bucket_of(int bucket) { return bucket < 0 ? ~std::uint32_t{0} : static_cast<std::uint32_t>(bucket); }

}  // namespace
}  // namespace clustar::paraexpress

using clustar::Result;
using namespace clustar::paraexpress;

#pragma GCC visibility push(default)
extern "C" {

int clustarPxTolerantInit(const clustarPxTolerantOptions_v1* options, clustarPxTolerant_t* out) {
  return guarded([&] { return init(options, out); });
}

int clustarPxTolerantShouldCompute(clustarPxTolerant_t group, int* should) {
  return with_group(group, [&](const auto& ranks) -> Result<void> {
    if (should == nullptr) return wrong("a null pointer; allowed: where the answer goes");
    *should = ranks->group->should_compute() ? 1 : 0;
    return {};
  });
}

int clustarPxTolerantAllReduce(clustarPxTolerant_t group, int bucket, void* elements, size_t count, int datatype,
                               int gives, clustarPxTolerantRound_t* out) {
  return with_group(group, [&](const auto& ranks) -> Result<void> {
    if (out == nullptr) return wrong("a null pointer; allowed: where the round's handle goes");
    if (datatype != CLUSTARPX_FLOAT32 && datatype != CLUSTARPX_FLOAT64) {
      return wrong(fmt::format("datatype {}; allowed: CLUSTARPX_FLOAT32 (7), CLUSTARPX_FLOAT64 (8)", datatype));
    }
    auto round =
        ranks->group->all_reduce(bucket_of(bucket), elements, count, static_cast<DataType>(datatype), gives != 0);
    *out = rounds().add(std::make_shared<Begun>(Begun{ranks, std::move(round)}));
    return {};
  });
}

int clustarPxTolerantWait(clustarPxTolerantRound_t handle, clustarPxTolerantOutcome_v1* out) {
  return guarded([&]() -> Result<void> {
    if (out != nullptr && out->size != sizeof *out) {
      return wrong(fmt::format("size {}; allowed: {}, sizeof(clustarPxTolerantOutcome_v1)", out->size, sizeof *out));
    }
    const auto begun = rounds().take(handle);
    if (begun == nullptr) return wrong(fmt::format("round {}; allowed: one that is not waited for yet", handle));
    const auto outcome = begun->round->wait();
    if (!outcome) return tl::unexpected(outcome.error());
    if (out != nullptr) *out = {sizeof *out, outcome->round, outcome->given, outcome->kept, outcome->gradients};
    return {};
  });
}

int clustarPxTolerantSave(clustarPxTolerant_t group, int bucket, void* memory, size_t* bytes) {
  return with_group(group, [&](const auto& ranks) -> Result<void> {
    if (bytes == nullptr) return wrong("a null pointer; allowed: where the number of bytes goes");
    const auto residual = ranks->group->residual(bucket_of(bucket));
    if (!residual) return tl::unexpected(residual.error());
    const std::size_t needed = tolerant::saved_bytes(*residual), room = std::exchange(*bytes, needed);
    if (memory == nullptr) return {};
    if (room < needed) return wrong(fmt::format("room for {} bytes; allowed: {} and more", room, needed));
    tolerant::save(*residual, std::span(static_cast<std::byte*>(memory), needed));
    return {};
  });
}

int clustarPxTolerantRestore(clustarPxTolerant_t group, int bucket, const void* memory, size_t bytes) {
  return with_group(group, [&](const auto& ranks) -> Result<void> {
    if (memory == nullptr) return wrong("a null pointer; allowed: what clustarPxTolerantSave() wrote");
    auto residual = tolerant::parse_saved(std::span(static_cast<const std::byte*>(memory), bytes));
    if (!residual) return wrong(fmt::format("{} bytes that clustarPxTolerantSave() did not write", bytes));
    return ranks->group->restore(bucket_of(bucket), std::move(*residual));
  });
}

int clustarPxTolerantFinalize(clustarPxTolerant_t handle) {
  return guarded([&]() -> Result<void> {
    const auto ranks = groups().take(handle);
    if (ranks == nullptr) return wrong(fmt::format("group {}; allowed: one that is not finalized", handle));
    ranks->group->close();
    return {};
  });
}

}  // extern "C"
#pragma GCC visibility pop
