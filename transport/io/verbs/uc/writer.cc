#include "transport/io/verbs/uc/writer.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

namespace clustar::transport::io::verbs::uc {

std::uint32_t Writer::add(QueuePair pair) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(pairs_.size()));
    pairs_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  pairs_[index].pair.emplace(std::move(pair));
  return index;
}

void Writer::remove(std::uint32_t index) {
  const std::lock_guard lock(mutex_);
  Pair& pair = pairs_[index];
  pair.pair.reset();
  on_failure(pair, {});
  ++pair.generation;
  free_.push_back(index);
}

std::optional<std::uint32_t> Writer::room(std::uint32_t index) {
  const std::lock_guard lock(mutex_);
  if (!pairs_[index].problem.empty()) return std::nullopt;
  return requests_ - outstanding(pairs_[index]);
}

bool Writer::post(std::uint32_t index, std::span<const Write> writes, std::uint64_t taken) {
  const std::lock_guard lock(mutex_);
  Pair& pair = pairs_[index];
  if (!pair.pair || !pair.problem.empty()) return false;
  std::array<ibv_send_wr, kMostChain> requests;
  std::array<ibv_sge, kMostChain> pieces;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    pieces[i] = writes[i].from;
    ibv_send_wr& request = requests[i];
    request = {};
    request.wr_id = std::uint64_t{pair.generation} << 32 | index;
    request.next = i + 1 < writes.size() ? &requests[i + 1] : nullptr;
    request.sg_list = &pieces[i];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.send_flags = request.next == nullptr ? IBV_SEND_SIGNALED : 0;
    request.imm_data = htonl(writes[i].number);
    request.wr.rdma.remote_addr = writes[i].address;
    request.wr.rdma.rkey = writes[i].rkey;
  }
  const auto count = static_cast<std::uint32_t>(writes.size());
  if (const auto posted = pair.pair->post(requests[0]); !posted) {
    // What was posted of the chain completes invisibly, so nobody would know when: end it.
    pair.pair.reset();
    on_failure(pair, posted.error().message);
    return false;
  }
  pair.posted += count;
  pair.chains.push_back({taken, count});
  return true;
}

void Writer::on_failure(Pair& pair, std::string why) {
  pair.problem = std::move(why);
  pair.finished = pair.posted;
  while (!pair.chains.empty()) pair.chains.pop_front();
}

void Writer::poll_locked() {
  std::array<ibv_wc, 32> completions;
  for (;;) {
    const auto taken = queue_.poll(completions);
    if (!taken || *taken == 0) return;
    for (const ibv_wc& completion : std::span(completions).first(*taken)) {
      Pair& pair = pairs_[static_cast<std::uint32_t>(completion.wr_id)];
      if (pair.generation != completion.wr_id >> 32 || !pair.pair || pair.chains.empty()) continue;
      if (completion.status != IBV_WC_SUCCESS) {
        // What stopped it comes before what it flushed.
        on_failure(pair, pair.problem.empty() ? pair.pair->explain(completion).message : pair.problem);
        continue;
      }
      pair.finished += pair.chains.pop_front().count;
    }
  }
}

void Writer::poll() {
  const std::lock_guard lock(mutex_);
  poll_locked();
}

std::string Writer::problem(std::uint32_t pair) {
  const std::lock_guard lock(mutex_);
  return pairs_[pair].problem;
}

std::optional<std::uint64_t> Writer::oldest() {
  const std::lock_guard lock(mutex_);
  std::optional<std::uint64_t> oldest;
  for (Pair& pair : pairs_) {
    if (pair.chains.empty()) continue;
    const std::uint64_t taken = pair.chains.front().taken;
    oldest = std::min(oldest.value_or(taken), taken);
  }
  return oldest;
}

bool Writer::finished_locked(std::span<const std::uint64_t> targets) const {
  return std::ranges::equal(targets, std::span(pairs_).first(targets.size()),
                            [](std::uint64_t target, const Pair& pair) { return pair.finished >= target; });
}

void Writer::stop_locked(std::span<const std::uint64_t> targets) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Pair& pair = pairs_[i];
    if (pair.finished >= targets[i] || !pair.pair) continue;
    // Its flushed requests are the sign that it has stopped.
    static_cast<void>(pair.pair->to_error());
    pair.problem = "it did not send for 1 s: is the link down, or paused by the switch (PFC counters)?";
  }
}

// Without its queue pair the NIC has nothing left to read for it.
void Writer::end_locked(std::span<const std::uint64_t> targets) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Pair& pair = pairs_[i];
    if (pair.finished >= targets[i]) continue;
    pair.pair.reset();
    on_failure(pair, pair.problem);
  }
}

void Writer::quiesce() {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> targets;
  for (bool first = true, stopped = false;; first = false) {
    {
      const std::lock_guard lock(mutex_);
      if (first) std::ranges::transform(pairs_, std::back_inserter(targets), &Pair::posted);
      poll_locked();
      if (finished_locked(targets)) return;
      const auto waited = std::chrono::steady_clock::now() - begin;
      if (waited > 2 * kPatience) return end_locked(targets);
      if (waited > kPatience && !std::exchange(stopped, true)) stop_locked(targets);
    }
    std::this_thread::yield();
  }
}

}  // namespace clustar::transport::io::verbs::uc
