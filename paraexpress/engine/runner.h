// Runs one operation at a time: a member's program over the mesh.
#pragma once

#include <atomic>
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
#include "paraexpress/engine/watch.h"

namespace clustar::paraexpress {

struct Work {
  Collective collective = Collective::kAllReduce;
  std::byte* data = nullptr;
  std::uint64_t count = 0;  // elements
  DataType type = DataType::kFloat32;
  Reduction reduction = Reduction::kSum;
  const Seat* seat = nullptr;
  std::vector<ElementRange> ranges{};
  std::uint64_t chunk = 0;             // elements
  const Registered* memory = nullptr;  // holds `data`
  std::uint64_t number = 0;            // of the operation: the same on all members, another one than of those before
  // `data` is this element of the operation's; a helper has no more than its shard.
  std::uint64_t first = 0;
  // Of the plan's members behind the ranks, which helpers they are.
  std::vector<std::uint32_t> helpers{};
};

struct RunnerOptions {
  Member self = 0;
  std::uint32_t ranks = 1;
  std::uint32_t members = 1;
  Duration stall{};
};

class Runner {
 public:
  // `lines`: null for a helper. `abort`: looked at now and then; set, an operation ends with blame on this member.
  Runner(Mesh& mesh, Watch& watch, HelperLines* lines, const RunnerOptions& options, const std::atomic<bool>& abort);

  // Blocks. What was not done of it when it failed may still be written to until the mesh is gone. A rank goes on where
  // it loses a helper, without what that one owes.
  std::optional<Blame> run(const Work& work);
  // Of a helper that run() lost: how many elements of its result came before.
  std::uint64_t came_from(std::uint32_t helper) const { return came_[helper]; }
  EngineTraffic traffic() const;  // any thread
  // Before the mesh closes.
  void release() {
    for (Places& places : places_) places.mr.reset();
  }

  // Partial sums from one peer that came and are not added yet.
  static constexpr std::uint32_t kWindow = 4;
  // Messages of a link at once.
  static constexpr std::uint32_t kPosted = 4;

 private:
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
  std::optional<Blame> post(const Work& work, Program& program, std::size_t link, bool& moved);
  std::optional<Blame> take(const Work& work, Program& program, std::size_t link, bool& moved);
  bool is_helper(Member peer) const { return lines_ != nullptr && peer >= options_.ranks; }
  // Of the plan's member: the mesh's.
  Member place_of(const Work& work, Member member) const {
    return member < options_.ranks ? member : options_.ranks + work.helpers[member - options_.ranks];
  }
  void watch_helpers(const Work& work, Program& program);
  void lose(const Work& work, Program& program, Member peer);
  Result<void> make_all_places(const Work& work, const Program& program);
  std::optional<Blame> add_up(const Work& work, Program& program, bool& moved);
  // The peer's channel failed: unless the others say who is to blame, it is the peer.
  Blame channel_failed(Member peer, const Error& error);
  Blame stalled(const Work& work, const Program& program) const;
  int tag(bool up) const;
  // Where partial sums of the peer land.
  Result<void> make_places(Member peer, std::uint64_t bytes);

  struct Places {
    std::unique_ptr<std::byte[]> memory{};
    std::uint64_t each = 0;  // bytes
    std::unique_ptr<transport::Mr> mr{};
  };

  Mesh& mesh_;
  Watch& watch_;
  HelperLines* const lines_;
  const RunnerOptions options_;
  const std::atomic<bool>& abort_;
  std::uint64_t number_ = 0;   // of the operation
  int kind_ = 0;               // what it does, to what
  std::uint64_t element_ = 1;  // bytes
  std::vector<Link> links_;
  std::vector<Places> places_;  // by peer
  std::vector<const void*> inputs_;
  std::vector<std::uint64_t> came_;  // by helper
  std::atomic<std::uint64_t> bytes_sent_{0}, bytes_received_{0}, messages_sent_{0}, messages_received_{0};
};

}  // namespace clustar::paraexpress
