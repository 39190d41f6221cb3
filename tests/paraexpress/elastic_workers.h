// Who works in an elastic group, in a thread or a process: sums over those who are in, compared with a reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "paraexpress/elastic/elastic.h"
#include "tests/paraexpress/engine_ranks.h"
#include "tests/sanitized.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {

inline constexpr std::size_t kValues = 3000, kMostIds = 16;
inline constexpr std::chrono::seconds kLong(tests::kSanitized ? 60 : 20);

inline std::vector<float> gift(std::uint64_t id, std::uint64_t step) {
  std::vector<float> values(kValues);
  Rng rng(id * 1000 + step);
  for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5) * (rng.below(3) == 0 ? 1e6F : 1e-3F);
  return values;
}

// A process's memory and what it does between changes.
class Worker {
 public:
  Worker(Elastic& elastic, std::uint64_t id) : elastic_(elastic), id_(id) {}

  Result<void> add_memory() {
    if (const auto ok = elastic_.add_memory(shared_.data(), sizeof shared_); !ok) return ok;
    if (const auto ok = elastic_.add_memory(ids_.data(), sizeof ids_); !ok) return ok;
    return elastic_.add_memory(values_.data(), values_.size() * sizeof(float));
  }
  // Sums over those who are in, compared with a sum from rank 0 to the last. Who is new learns the step.
  Result<void> step(bool stop) {
    const auto engine = elastic_.engine();
    const auto wait = [](std::unique_ptr<Operation> one) {
      const auto seconds = one->wait();
      return seconds ? Result<void>() : tl::unexpected(seconds.error());
    };
    shared_ = {step_, stop ? 1U : 0U};
    if (auto ok = wait(engine->all_reduce(shared_.data(), 2, DataType::kUint64, Reduction::kMax)); !ok) return ok;
    step_ = shared_[0];
    stopped = shared_[1] != 0;
    const Place place = elastic_.place();
    ids_[place.rank] = id_;
    if (auto ok = wait(engine->all_gather(ids_.data(), sizeof ids_[0])); !ok) return ok;
    in.assign(ids_.begin(), ids_.begin() + place.ranks);
    std::ranges::copy(gift(id_, step_), values_.begin());
    if (auto ok = wait(engine->all_reduce(values_.data(), kValues, DataType::kFloat32)); !ok) return ok;
    std::vector<float> expected = gift(in[0], step_);
    for (std::size_t rank = 1; rank < in.size(); ++rank) {
      const std::vector<float> one = gift(in[rank], step_);
      for (std::size_t i = 0; i < kValues; ++i) expected[i] += one[i];
    }
    if (values_ != expected) return fail(ErrorCode::kInternal, "a wrong sum");
    ++step_;
    return {};
  }

  std::vector<std::uint64_t> in{};  // by rank
  bool stopped = false;

 private:
  Elastic& elastic_;
  const std::uint64_t id_;
  std::uint64_t step_ = 0;
  std::array<std::uint64_t, 2> shared_{};
  std::array<std::uint64_t, kMostIds> ids_{};
  std::vector<float> values_ = std::vector<float>(kValues);
};

inline ElasticOptions elastic_options(const std::string& root) {
  ElasticOptions options;
  options.engine.plan = Plan::kDirect;  // added from rank 0 to the last
  options.engine.chunk_bytes = kLeastChunk;
  options.engine.stall = kLong;
  options.door = root;
  options.patience = std::chrono::seconds(tests::kSanitized ? 5 : 2);
  return options;
}

// Of the first members.
inline Result<std::unique_ptr<Elastic>> first(transport::Transport& transport, Member rank, std::uint32_t ranks,
                                              ElasticOptions options) {
  auto bootstrap = bench::proxy::Bootstrap::join(
      {.rank = static_cast<int>(rank), .size = static_cast<int>(ranks), .root = options.door});
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  options.engine.rank = rank;
  options.engine.ranks = ranks;
  auto engine = Engine::create(transport, through(**bootstrap), options.engine);
  if (!engine) return tl::unexpected(engine.error());
  return Elastic::around(transport, std::move(*engine), std::move(options));
}

}  // namespace clustar::paraexpress
