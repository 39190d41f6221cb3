// Runs operations: a member's programs over the mesh.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paraexpress/core/program.h"
#include "paraexpress/engine/helper_lines.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/waits.h"
#include "paraexpress/engine/watch.h"

namespace clustar::paraexpress {

class PlanChoice;

struct Work {
  Collective collective = Collective::kAllReduce;
  std::byte* data = nullptr;
  std::uint64_t count = 0;  // elements
  DataType type = DataType::kFloat32;
  Reduction reduction = Reduction::kSum;
  Member root = 0;           // of a broadcast
  std::uint64_t agreed = 0;  // a number that is the same on all ranks (Engine::agree_on)
  const Seat* seat = nullptr;
  std::vector<ElementRange> ranges{};
  std::uint64_t chunk = 0;             // elements
  const Registered* memory = nullptr;  // holds `data`
  std::uint64_t number = 0;            // of the operation: the same on all members, another one than of those before
  // `data` is this element of the operation's; a helper has no more than its shard.
  std::uint64_t first = 0;
  // Of the plan's members behind the ranks, which helpers they are.
  std::vector<std::uint32_t> helpers{};
  // What `seat` is of.
  std::shared_ptr<const PlanChoice> by{};
  std::shared_ptr<const Seat> tree{};
};

struct RunnerOptions {
  Member self = 0;
  std::uint32_t ranks = 1;
  std::uint32_t members = 1;
  Waits waits{};
};

// An operation under way.
class Running {
 public:
  const Work& work() const { return work_; }
  bool done() const { return program_.done(); }

 private:
  friend class Runner;
  struct Message {
    transport::Request* request = nullptr;
    std::uint64_t bytes = 0;
    // A helper's result comes to a place of its own first: until it is whole, the rank's contribution must not change.
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
  };
  struct Link {
    std::deque<Message> messages{};
  };
  Running(Work work, std::uint32_t window);

  const Work work_;
  Program program_;
  const std::uint64_t element_;  // bytes
  std::size_t slot_ = 0;         // of memory for partial sums
  int tags_ = 0;                 // the first of two
  std::vector<Link> links_{};
};

class Runner {
 public:
  // `lines`: null for a helper. `abort`: looked at now and then; set, an operation ends with blame on this member.
  Runner(Mesh& mesh, Watch& watch, HelperLines* lines, const RunnerOptions& options, const std::atomic<bool>& abort);

  // So many operations at once: each takes 8 of the 32 requests that a channel has.
  static constexpr std::size_t kAtOnce = 3;
  // At most kAtOnce are begun and not finished. What was not done of one when it failed may still be written to until
  // the mesh is gone. A rank goes on where it loses a helper, without what that one owes.
  tl::expected<std::unique_ptr<Running>, Blame> begin(Work work);
  // A moment's work.
  std::optional<Blame> advance(Running& one, bool& moved);
  // Nothing moved: whether something is wrong, and a moment's rest.
  std::optional<Blame> rest(const Running& one);
  void moved();
  void finish(const Running& one) { slots_[one.slot_].taken = false; }
  // From begin to finish.
  std::optional<Blame> run(const Work& work);

  // Of a helper that was lost in the last operation that had some: how many elements of its result came before.
  std::uint64_t came_from(std::uint32_t helper) const { return came_[helper]; }
  EngineTraffic traffic() const;  // any thread
  void set_waits(const Waits& waits) { waits_ = waits; }
  // Before the mesh closes.
  void release();

  // Partial sums from one peer that came and are not added yet.
  static constexpr std::uint32_t kWindow = 4;
  // Messages of a link at once.
  static constexpr std::uint32_t kPosted = 4;

 private:
  std::optional<Blame> post(Running& one, std::size_t link, bool& moved);
  std::optional<Blame> take(Running& one, std::size_t link, bool& moved);
  std::optional<Blame> add_up(Running& one, bool& moved);
  bool is_helper(Member peer) const { return lines_ != nullptr && peer >= options_.ranks; }
  // Of the plan's member: the mesh's.
  Member place_of(const Work& work, Member member) const {
    return member < options_.ranks ? member : options_.ranks + work.helpers[member - options_.ranks];
  }
  void watch_helpers(Running& one);
  void lose(Running& one, Member peer);
  Blame stalled(const Running& one) const;
  int tags_of(const Work& work);

  struct Places {
    std::unique_ptr<std::byte[]> memory{};
    std::uint64_t each = 0;  // bytes
    std::unique_ptr<transport::Mr> mr{};
  };
  struct Slot {
    bool taken = false;
    std::vector<Places> places{};  // by peer
  };
  // Where partial sums from ranks, and results from helpers, come to.
  Result<void> make_places(const Running& one);

  Mesh& mesh_;
  Watch& watch_;
  HelperLines* const lines_;
  const RunnerOptions options_;
  Waits waits_;
  const std::atomic<bool>& abort_;
  int roots_ = 0;  // the sum of the broadcasts' so far, modulo kChecks
  std::array<Slot, kAtOnce> slots_{};
  std::vector<const void*> inputs_;
  std::vector<std::uint64_t> came_;  // by helper
  std::chrono::steady_clock::time_point moved_at_{};
  std::uint64_t looks_ = 0;
  std::atomic<std::uint64_t> bytes_sent_{0}, bytes_received_{0}, messages_sent_{0}, messages_received_{0};
};

}  // namespace clustar::paraexpress
