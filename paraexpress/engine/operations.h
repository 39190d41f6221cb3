// What the engine's thread does: connects and measures the network, runs operations by the plan, makes up for helpers
// that are lost, and changes plans where ranks are late.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paraexpress/core/agreement.h"
#include "paraexpress/core/fit.h"
#include "paraexpress/core/lateness.h"
#include "paraexpress/engine/engine.h"
#include "paraexpress/engine/farewell.h"
#include "paraexpress/engine/helper_lines.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/plan_choice.h"
#include "paraexpress/engine/runner.h"
#include "paraexpress/engine/waits.h"

namespace clustar::paraexpress {

// An operation as it was asked for.
struct Asked {
  Work work{};  // what, not yet how
  std::uint64_t bytes = 0;
  std::shared_ptr<PlanChoice::Choice> pushed{};  // of a push and its pull
};

// Thread rule: one thread, but choice(), helpers(), regions(), reg_mr() and traffic() from any.
class Operations {
 public:
  // Operations from one agreement about late ranks to the next.
  static constexpr std::uint64_t kReview = 32;

  // `abort`: as Runner's.
  Operations(const EngineOptions& options, const std::atomic<bool>& abort) : options_(options), abort_(abort) {}
  ~Operations() { close(); }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // Blocks. More than one rank.
  Result<void> connect(transport::Transport& transport, const AllGather& all_gather);

  // False: it has to wait until what runs has ended, or some of it. In the order of starts.
  bool may_begin(const Asked& asked) const;
  // Nothing: it has ended already.
  tl::expected<std::unique_ptr<Running>, Blame> begin(Asked asked);
  // A moment's work of what began, oldest first in `running`; the newest goes first. Those that are done are to be
  // given to end().
  std::optional<Blame> advance(std::span<const std::unique_ptr<Running>> running);
  // `seconds`: since its start by the user.
  void end(const Running& one, double seconds);
  // Of what began and ended at once.
  void count(double seconds) { lateness_.add(seconds); }

  // Closes all channels: nothing is read or written for anybody any more.
  void close();
  // There are no more operations, or there was `why` they failed: tells the others, and hears them. The last word on
  // who is to blame.
  std::optional<Blame> part(const std::optional<Blame>& why);

  std::shared_ptr<const PlanChoice> choice() const;
  std::uint32_t helpers() const;
  std::string regions() const;  // as text
  // Since set_up().
  const std::string& regions_found() const { return regions_found_; }
  Result<std::unique_ptr<Registered>> reg_mr(void* memory, std::size_t bytes) { return mesh_->reg_mr(memory, bytes); }
  EngineTraffic traffic() const { return runner_ ? runner_->traffic() : EngineTraffic{}; }

 private:
  // `keeps`: plans that are in use stay unless another is better by a margin.
  void choose_for(const Group& group, bool keeps = false);
  void go_by(const PlanChoice& by, Work& work, const PlanChoice::Choice& choice);
  // Memory for what the engine has to say itself.
  Result<std::byte*> scratch(std::size_t bytes);
  Result<void> set_up_lines(Group group);
  // Until it is set up.
  Waits setup() const { return {options_.setup > Duration{} ? options_.setup : options_.stall, options_.setup_until}; }
  // Without those that did not come through connecting.
  tl::expected<Group, Blame> agree_on_helpers();
  // All ranks work it out of the same numbers.
  tl::expected<RegionMap, Blame> find_map();
  tl::expected<Measured, Blame> measure();
  // Each element's maximum over all ranks.
  template <typename T>
  std::optional<Blame> agree(std::span<T> elements, DataType type);
  // Whether ranks are late, as all see it.
  std::optional<Blame> review();
  void note(Collective collective, std::uint64_t bytes, Plan plan);
  bool is_helped(const Asked& asked) const;
  // With helpers: rank 0 tells them first, and all ranks see in the end whether one was lost, and make up for it.
  std::optional<Blame> run_with_helpers(Work work, const PlanChoice& by, Plan plan);
  void order(const Work& work, Plan plan);
  std::optional<Blame> make_up(const Work& work, const ElementRange& range, const HelperFate& fate);

  const EngineOptions options_;
  const std::atomic<bool>& abort_;
  std::unique_ptr<Mesh> mesh_{};
  std::unique_ptr<Farewells> farewells_{};
  std::unique_ptr<HelperLines> lines_{};
  std::optional<Runner> runner_{};
  Network network_{};
  std::uint64_t number_ = 0;                   // of the last operation
  std::uint64_t asked_ = 0;                    // operations that were asked for and began
  std::vector<std::uint32_t> helpers_{};       // those that are there
  std::string regions_found_{};                // by probing
  std::shared_ptr<const PlanChoice> plain_{};  // without helpers
  std::vector<std::byte> scratch_{};
  std::unique_ptr<Registered> scratch_mr_{};
  PlanChoice::InUse in_use_{};
  Lateness lateness_{};
  std::vector<const Running*> running_{};
  mutable std::mutex mutex_{};  // of what follows
  Group group_{};
  std::shared_ptr<const PlanChoice> choice_{};
};

}  // namespace clustar::paraexpress
