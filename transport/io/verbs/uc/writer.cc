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
    free_.push_back(static_cast<std::uint32_t>(lanes_.size()));
    lanes_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  lanes_[index].pair.emplace(std::move(pair));
  return index;
}

void Writer::remove(std::uint32_t index) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_[index];
  lane.pair.reset();
  on_failure(lane, {});
  ++lane.generation;
  free_.push_back(index);
}

std::optional<std::uint32_t> Writer::room(std::uint32_t index) {
  const std::lock_guard lock(mutex_);
  if (!lanes_[index].problem.empty()) return std::nullopt;
  return requests_ - outstanding(lanes_[index]);
}

bool Writer::post(std::uint32_t index, std::span<const Write> writes, std::uint64_t taken) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_[index];
  if (!lane.pair || !lane.problem.empty()) return false;
  std::array<ibv_send_wr, kMostChain> requests;
  std::array<ibv_sge, kMostChain> pieces;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    pieces[i] = writes[i].from;
    ibv_send_wr& request = requests[i];
    request = {};
    request.wr_id = std::uint64_t{lane.generation} << 32 | index;
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
  if (const auto posted = lane.pair->post(requests[0]); !posted) {
    // What was posted of the chain completes invisibly, so nobody would know when: end it.
    lane.pair.reset();
    on_failure(lane, posted.error().message);
    return false;
  }
  lane.posted += count;
  lane.chains.push_back({taken, count});
  return true;
}

void Writer::on_failure(Lane& lane, std::string why) {
  lane.problem = std::move(why);
  lane.finished = lane.posted;
  while (!lane.chains.empty()) lane.chains.pop_front();
}

void Writer::poll_locked() {
  std::array<ibv_wc, 32> completions;
  for (;;) {
    const auto taken = queue_.poll(completions);
    if (!taken || *taken == 0) return;
    for (const ibv_wc& completion : std::span(completions).first(*taken)) {
      Lane& lane = lanes_[static_cast<std::uint32_t>(completion.wr_id)];
      if (lane.generation != completion.wr_id >> 32 || !lane.pair || lane.chains.empty()) continue;
      if (completion.status != IBV_WC_SUCCESS) {
        // What stopped it comes before what it flushed.
        on_failure(lane, lane.problem.empty() ? lane.pair->explain(completion).message : lane.problem);
        continue;
      }
      lane.finished += lane.chains.pop_front().count;
    }
  }
}

void Writer::poll() {
  const std::lock_guard lock(mutex_);
  poll_locked();
}

std::string Writer::problem(std::uint32_t lane) {
  const std::lock_guard lock(mutex_);
  return lanes_[lane].problem;
}

std::optional<std::uint64_t> Writer::oldest() {
  const std::lock_guard lock(mutex_);
  std::optional<std::uint64_t> oldest;
  for (Lane& lane : lanes_) {
    if (lane.chains.empty()) continue;
    const std::uint64_t taken = lane.chains.front().taken;
    oldest = std::min(oldest.value_or(taken), taken);
  }
  return oldest;
}

bool Writer::finished_locked(std::span<const std::uint64_t> targets) const {
  return std::ranges::equal(targets, std::span(lanes_).first(targets.size()),
                            [](std::uint64_t target, const Lane& lane) { return lane.finished >= target; });
}

void Writer::stop_locked(std::span<const std::uint64_t> targets) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.finished >= targets[i] || !lane.pair) continue;
    // Its flushed requests are the sign that it has stopped.
    static_cast<void>(lane.pair->to_error());
    lane.problem = "it did not send for 1 s: is the link down, or paused by the switch (PFC counters)?";
  }
}

// Without its queue pair the NIC has nothing left to read for it.
void Writer::end_locked(std::span<const std::uint64_t> targets) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.finished >= targets[i]) continue;
    lane.pair.reset();
    on_failure(lane, lane.problem);
  }
}

void Writer::settle() {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> targets;
  for (bool first = true, stopped = false;; first = false) {
    {
      const std::lock_guard lock(mutex_);
      if (first) std::ranges::transform(lanes_, std::back_inserter(targets), &Lane::posted);
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
