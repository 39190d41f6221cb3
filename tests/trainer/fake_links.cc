#include "tests/trainer/fake_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "bench/proxy/direct_blocks.h"
#include "bench/proxy/steps.h"
#include "transport/base/half.h"

namespace clustar::bench::trainer {
namespace {

using proxy::DataType;

float read(DataType type, const void* from, std::size_t i) {
  std::uint16_t half = 0;
  if (type != DataType::kFloat32) std::memcpy(&half, static_cast<const std::byte*>(from) + 2 * i, sizeof half);
  if (type == DataType::kFloat16) return from_float16(half);
  if (type == DataType::kBfloat16) return from_bfloat16(half);
  float value = 0;
  std::memcpy(&value, static_cast<const std::byte*>(from) + 4 * i, sizeof value);
  return value;
}

void write(DataType type, void* to, std::size_t i, float value) {
  if (type == DataType::kFloat32) {
    std::memcpy(static_cast<std::byte*>(to) + 4 * i, &value, sizeof value);
    return;
  }
  const std::uint16_t half = type == DataType::kFloat16 ? to_float16(value) : to_bfloat16(value);
  std::memcpy(static_cast<std::byte*>(to) + 2 * i, &half, sizeof half);
}

float rounded(DataType type, float value) {
  if (type == DataType::kFloat16) return from_float16(to_float16(value));
  if (type == DataType::kBfloat16) return from_bfloat16(to_bfloat16(value));
  return value;
}

}  // namespace

void FakeWorld::join_reduction(std::uint64_t number, int rank, void* data, std::size_t count, DataType type) {
  const std::lock_guard lock(mutex_);
  join(reductions_[number], number, rank, data, count, type);
}

void FakeWorld::join_exchange(std::uint64_t number, int rank, void* data, std::size_t count, DataType type,
                              proxy::Missing missing, float* residual) {
  const std::lock_guard lock(mutex_);
  Reduction& reduction = reductions_[number];
  reduction.direct = true;
  reduction.missing = missing;
  reduction.residuals.resize(ranks_);
  reduction.residuals[static_cast<std::size_t>(rank)] = residual;
  join(reduction, number, rank, data, count, type);
}

// Under mutex_.
void FakeWorld::join(Reduction& reduction, std::uint64_t number, int rank, void* data, std::size_t count,
                     DataType type) {
  reduction.buffers.resize(ranks_);
  reduction.buffers[static_cast<std::size_t>(rank)] = data;
  reduction.count = count;
  reduction.type = type;
  if (++reduction.joined < ranks_) return;
  reduction.missing_contributions.resize(ranks_);
  reduction.expected_contributions.resize(ranks_);
  for (std::size_t i = 0; i < count; ++i) {
    if (reduction.direct) {
      exchange(reduction, number, i);
      continue;
    }
    float sum = read(type, reduction.buffers[0], i);
    for (std::size_t r = 1; r < ranks_; ++r) sum = rounded(type, sum + read(type, reduction.buffers[r], i));
    for (void* buffer : reduction.buffers) write(type, buffer, i, sum);
  }
  if (after_reduce && type == DataType::kFloat32) {
    std::vector<float*> buffers;
    for (void* buffer : reduction.buffers) buffers.push_back(static_cast<float*>(buffer));
    after_reduce(number, buffers, count);
  }
  reduction.done = true;
  changed_.notify_all();
}

// Element i of a direct all-reduce, as communicator.h says.
void FakeWorld::exchange(Reduction& reduction, std::uint64_t number, std::size_t i) {
  const int size = static_cast<int>(ranks_);
  const DataType type = reduction.type;
  const std::size_t share = proxy::block_share(size, reduction.count, proxy::element_bytes(type));
  const auto owner = static_cast<int>(i / share);
  float sum = 0;
  int contributions = 0;
  for (int from = 0; from < size; ++from) {
    const auto r = static_cast<std::size_t>(from);
    const bool lost = from != owner && loses && loses(number, from, owner, i);
    const float mine = read(type, reduction.buffers[r], i);
    if (reduction.residuals[r] != nullptr) reduction.residuals[r][i] = lost ? mine : 0;
    if (from != owner) ++reduction.expected_contributions[static_cast<std::size_t>(owner)];
    if (lost) {
      ++reduction.missing_contributions[static_cast<std::size_t>(owner)];
    } else {
      sum = from == 0 ? mine : rounded(type, sum + mine);
      ++contributions;
    }
  }
  if (reduction.missing == proxy::Missing::kRescale && contributions < size) {
    sum = static_cast<float>(static_cast<double>(sum) * size / contributions);
  }
  for (void* buffer : reduction.buffers) write(type, buffer, i, sum);
}

bool FakeWorld::reduction_done(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return reductions_[number].done;
}

proxy::CollectiveStats FakeWorld::wait_reduction(std::uint64_t number, int rank) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reductions_[number].done; });
  proxy::CollectiveStats stats;
  stats.missing_contributions = reductions_[number].missing_contributions[static_cast<std::size_t>(rank)];
  stats.expected_contributions = reductions_[number].expected_contributions[static_cast<std::size_t>(rank)];
  return stats;
}

std::vector<std::byte> FakeWorld::gather(std::uint64_t number, int rank, std::span<const std::byte> mine) {
  return gather_into(gatherings_, number, rank, mine);
}

std::vector<std::byte> FakeWorld::gather_block(std::uint64_t number, int rank, std::span<const std::byte> mine) {
  return gather_into(gathered_blocks_, number, rank, mine);
}

std::vector<std::byte> FakeWorld::gather_into(std::map<std::uint64_t, Gathering>& gatherings, std::uint64_t number,
                                              int rank, std::span<const std::byte> mine) {
  std::unique_lock lock(mutex_);
  Gathering& gathering = gatherings[number];
  gathering.all.resize(ranks_ * mine.size());
  std::memcpy(gathering.all.data() + static_cast<std::size_t>(rank) * mine.size(), mine.data(), mine.size());
  if (++gathering.joined == ranks_) changed_.notify_all();
  changed_.wait(lock, [&] { return gathering.joined == ranks_; });
  return gathering.all;
}

std::vector<std::size_t> FakeWorld::reduced() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> counts;
  for (const auto& [number, reduction] : reductions_) counts.push_back(reduction.count);
  return counts;
}

std::vector<DataType> FakeWorld::types() const {
  const std::lock_guard lock(mutex_);
  std::vector<DataType> types;
  for (const auto& [number, reduction] : reductions_) types.push_back(reduction.type);
  return types;
}

class FakePending final : public proxy::Pending {
 public:
  // Without a number it is complete.
  FakePending(FakeWorld& world, int rank, std::optional<std::uint64_t> number, std::size_t bytes)
      : world_(world), rank_(rank), number_(number), bytes_(bytes) {}
  bool done() const override { return !number_ || world_.reduction_done(*number_); }
  Result<proxy::CollectiveStats> wait() override {
    proxy::CollectiveStats stats;
    if (number_) stats = world_.wait_reduction(*number_, rank_);
    if (number_ && *number_ >= world_.fail_from) return fail(ErrorCode::kRemote, "the fake transport was told to fail");
    stats.bytes_sent = bytes_;
    return stats;
  }

 private:
  FakeWorld& world_;
  int rank_;
  std::optional<std::uint64_t> number_;
  std::size_t bytes_;
};

class FakeCommunicator final : public proxy::Communicator {
 public:
  FakeCommunicator(FakeWorld& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  void record_steps(bool) override {}
  void abort() override {}
  Result<void> close() override { return {}; }
  std::unique_ptr<proxy::Pending> all_reduce(void* data, std::size_t count, DataType type, proxy::ReduceOp) override {
    world_.join_reduction(next_, rank_, data, count, type);
    return started(count * proxy::element_bytes(type));
  }
  std::unique_ptr<proxy::Pending> all_reduce_direct(void* data, std::size_t count, DataType type,
                                                    proxy::Missing missing, void* residual) override {
    world_.join_exchange(next_, rank_, data, count, type, missing, static_cast<float*>(residual));
    return started(count * proxy::element_bytes(type));
  }
  // In rank order, as the all-reduces; complete when it returns.
  std::unique_ptr<proxy::Pending> reduce_scatter(const void* send, void* recv, std::size_t count, DataType type,
                                                 proxy::ReduceOp) override {
    const auto ranks = static_cast<std::size_t>(world_.size());
    const std::size_t bytes = count * proxy::element_bytes(type);
    const std::vector<std::byte> all =
        world_.gather_block(next_gather_++, rank_, {static_cast<const std::byte*>(send), ranks * bytes});
    std::vector<float> sum(count);
    for (std::size_t r = 0; r < ranks && count > 0; ++r) {
      const std::byte* const block = all.data() + (r * ranks + static_cast<std::size_t>(rank_)) * bytes;
      for (std::size_t i = 0; i < count; ++i) {
        const float mine = read(type, block, i);
        sum[i] = r == 0 ? mine : rounded(type, sum[i] + mine);
      }
    }
    for (std::size_t i = 0; i < count; ++i) write(type, recv, i, sum[i]);
    totals_.bytes_sent += (ranks - 1) * bytes;
    ++totals_.messages_sent;
    return std::make_unique<FakePending>(world_, rank_, std::nullopt, (ranks - 1) * bytes);
  }
  // Complete when it returns.
  std::unique_ptr<proxy::Pending> all_gather(const void* send, void* recv, std::size_t bytes,
                                             proxy::DataType) override {
    const std::vector<std::byte> all =
        world_.gather_block(next_gather_++, rank_, {static_cast<const std::byte*>(send), bytes});
    std::memcpy(recv, all.data(), all.size());
    const std::size_t sent = bytes * static_cast<std::size_t>(world_.size() - 1);
    totals_.bytes_sent += sent;
    ++totals_.messages_sent;
    return std::make_unique<FakePending>(world_, rank_, std::nullopt, sent);
  }
  // The same. Ranks may send unequal amounts, which a gathering does not.
  std::unique_ptr<proxy::Pending> all_to_all(const void* send, void* recv, std::span<const std::size_t> send_bytes,
                                             std::span<const std::size_t> recv_bytes) override {
    const std::size_t ranks = send_bytes.size();
    const std::vector<std::byte> all_sizes = world_.gather_block(next_gather_++, rank_, std::as_bytes(send_bytes));
    std::vector<std::size_t> sizes(ranks * ranks);
    std::memcpy(sizes.data(), all_sizes.data(), all_sizes.size());
    const auto sent_by = [&](std::size_t rank, std::size_t before) {
      std::size_t sum = 0;
      for (std::size_t to = 0; to < before; ++to) sum += sizes[rank * ranks + to];
      return sum;
    };
    std::size_t most = 0;
    for (std::size_t r = 0; r < ranks; ++r) most = std::max(most, sent_by(r, ranks));
    const auto self = static_cast<std::size_t>(rank_);
    std::vector<std::byte> mine(most);
    if (sent_by(self, ranks) > 0) std::memcpy(mine.data(), send, sent_by(self, ranks));
    const std::vector<std::byte> all = world_.gather_block(next_gather_++, rank_, mine);
    auto* into = static_cast<std::byte*>(recv);
    for (std::size_t from = 0; from < ranks; ++from) {
      const std::size_t bytes = sizes[from * ranks + self];
      EXPECT_EQ(bytes, recv_bytes[from]);
      if (bytes > 0) std::memcpy(into, all.data() + from * most + sent_by(from, self), bytes);
      into += bytes;
    }
    if (world_.after_exchange) world_.after_exchange(exchanges_++, rank_, {static_cast<std::byte*>(recv), into});
    return std::make_unique<FakePending>(world_, rank_, std::nullopt, sent_by(self, ranks));
  }
  std::unique_ptr<proxy::Pending> broadcast(void*, std::size_t, proxy::DataType, int) override { return nullptr; }
  Totals totals() const override { return totals_; }

 private:
  std::unique_ptr<proxy::Pending> started(std::size_t bytes) {
    totals_.bytes_sent += bytes;
    ++totals_.messages_sent;
    return std::make_unique<FakePending>(world_, rank_, next_++, bytes);
  }

  FakeWorld& world_;
  int rank_;
  std::uint64_t next_ = 0;
  std::uint64_t next_gather_ = 0;
  std::uint64_t exchanges_ = 0;
  Totals totals_;
};

class FakeBootstrap final : public proxy::Bootstrap {
 public:
  FakeBootstrap(FakeWorld& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  Result<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return world_.gather(next_++, rank_, mine);
  }
  Result<void> barrier() override {
    world_.gather(next_++, rank_, {});
    return {};
  }

 private:
  FakeWorld& world_;
  int rank_;
  std::uint64_t next_ = 0;
};

std::unique_ptr<Collective> FakeWorld::collective(int rank, const ExchangeOptions& exchange) {
  return std::make_unique<ProxyCollective>(std::make_unique<FakeCommunicator>(*this, rank), exchange);
}

std::unique_ptr<proxy::Bootstrap> FakeWorld::bootstrap(int rank) {
  return std::make_unique<FakeBootstrap>(*this, rank);
}

}  // namespace clustar::bench::trainer
