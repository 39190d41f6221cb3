#include "paraexpress/engine/helper.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "paraexpress/core/group.h"
#include "paraexpress/core/plans/build.h"
#include "paraexpress/engine/helper_lines.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/runner.h"

namespace clustar::paraexpress {
namespace {

using std::chrono::steady_clock;

// Answers the ranks' questions whether it lives.
class Attendant final : public Watch {
 public:
  Attendant(Mesh& mesh, std::uint32_t ranks, const std::atomic<bool>& stop)
      : mesh_(mesh), stop_(stop), questions_(ranks), asked_(ranks) {}

  Result<void> open() {
    auto questions = mesh_.reg_mr(questions_.data(), questions_.size());
    if (!questions) return tl::unexpected(questions.error());
    questions_mr_ = std::move(*questions);
    auto answer = mesh_.reg_mr(answer_.data(), answer_.size());
    if (!answer) return tl::unexpected(answer.error());
    answer_mr_ = std::move(*answer);
    return {};
  }

  std::optional<Blame> look() override {
    if (stop_.load(std::memory_order_relaxed)) return Blame{kNobody, {ErrorCode::kInvalidUsage, "it was stopped"}};
    for (Member rank = 0; rank < asked_.size(); ++rank) {
      if (const auto ok = attend(rank); !ok) return blame(rank, ok.error());
    }
    return std::nullopt;
  }
  bool silent(Member) const override { return true; }

 private:
  struct Asked {
    transport::Request *question = nullptr, *answer = nullptr;
    bool to_answer = false;
  };

  Result<void> attend(Member rank) {
    Asked& one = asked_[rank];
    if (one.question != nullptr) {
      const auto progress = one.question->test();
      if (!progress) return tl::unexpected(progress.error());
      if (progress->done) {
        one.question = nullptr;
        one.to_answer = true;
      }
    }
    if (one.question == nullptr) {
      const transport::RecvPart part{questions_mr_->to_receive[rank].get(), rank, 1, kAskTag};
      const auto posted = mesh_.from(rank).recv({&part, 1});
      if (!posted) return tl::unexpected(posted.error());
      one.question = *posted;
    }
    if (one.answer != nullptr) {
      const auto progress = one.answer->test();
      if (!progress) return tl::unexpected(progress.error());
      if (progress->done) one.answer = nullptr;
    }
    if (!one.to_answer || one.answer != nullptr) return {};
    const transport::FlowTag flow{.traffic_class = 0, .urgency = transport::Urgency::kBlocking};
    const auto sent = mesh_.to(rank).send(*answer_mr_->to_send[rank], 0, 1, kAnswerTag, flow);
    if (!sent) return tl::unexpected(sent.error());
    one.answer = *sent;
    one.to_answer = one.answer == nullptr;
    return {};
  }

  Mesh& mesh_;
  const std::atomic<bool>& stop_;
  std::vector<std::byte> questions_;
  std::array<std::byte, 1> answer_{};
  std::vector<Asked> asked_;
  std::unique_ptr<Registered> questions_mr_{}, answer_mr_{};
};

class Helper {
 public:
  Helper(std::unique_ptr<Mesh> mesh, const HelperOptions& options, const std::atomic<bool>& stop)
      : options_(options),
        mesh_(std::move(mesh)),
        attendant_(*mesh_, options.ranks, stop),
        runner_(*mesh_, attendant_, nullptr,
                {options.ranks + options.helper, options.ranks, options.ranks + options.helpers, {options.stall}},
                stop) {}
  ~Helper() {
    runner_.release();
    mesh_->close();
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  Result<HelperReport> serve();

 private:
  // Nothing: there are no more.
  Result<std::optional<Order>> next_order();
  Result<void> run(const Order& order);

  const HelperOptions options_;
  const std::unique_ptr<Mesh> mesh_;
  Attendant attendant_;
  Runner runner_;
  OrderBytes order_{};
  std::unique_ptr<Registered> order_mr_{};
  transport::Request* ordered_ = nullptr;
  std::unique_ptr<std::byte[]> sums_{};
  std::uint64_t sums_bytes_ = 0;
  std::unique_ptr<Registered> sums_mr_{};
};

Result<std::optional<Order>> Helper::next_order() {
  const OrderLimits limits{options_.helper, options_.helpers, static_cast<std::uint8_t>(kPlans.size()),
                           static_cast<std::uint8_t>(kDataTypes), static_cast<std::uint8_t>(kReductions)};
  const auto idle_since = steady_clock::now();
  for (;;) {
    // A rank that closes after the last operation has seen rank 0 say so: what rank 0 said counts first.
    const auto found = attendant_.look();
    if (ordered_ == nullptr) {
      const transport::RecvPart part{order_mr_->to_receive[0].get(), 0, order_.size(), kOrderTag};
      const auto posted = mesh_->from(0).recv({&part, 1});
      if (!posted) return tl::unexpected(blame(0, posted.error()).error);
      ordered_ = *posted;
    }
    if (ordered_ != nullptr) {
      const auto progress = ordered_->test();
      if (!progress) return tl::unexpected(blame(0, progress.error()).error);
      if (progress->done) {
        ordered_ = nullptr;
        const auto order = progress->sizes[0] == order_.size() ? parse_order(order_, limits) : std::nullopt;
        if (!order) {
          return fail(ErrorCode::kRemote, "rank 0: its order makes no sense; do all have the same version?");
        }
        return order->ends ? std::optional<Order>() : order;
      }
    }
    if (found) return tl::unexpected(found->error);
    if (steady_clock::now() - idle_since < std::chrono::milliseconds(2)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

Result<void> Helper::run(const Order& order) {
  const auto live = static_cast<std::uint32_t>(std::popcount(order.live));
  const std::uint64_t before = order.live & ((std::uint64_t{1} << options_.helper) - 1);
  const Member self = options_.ranks + static_cast<std::uint32_t>(std::popcount(before));
  const Group group = make_group(options_.ranks, live, one_region(options_.ranks + live));
  const Forest forest = build(static_cast<Plan>(order.plan), group);
  const auto ranges = element_ranges(forest, order.count);
  ElementRange own;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (forest.shards[i].root == self) own = ranges[i];
  }
  if (own.size() == 0) return {};
  const auto type = static_cast<DataType>(order.type);
  const std::uint64_t each = element_bytes(type), chunk = std::min(order.chunk, own.size());
  const std::uint64_t needs = (own.size() + chunk * Runner::kWindow * options_.ranks) * each;
  if (needs > options_.most_bytes) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("an operation of {} elements of {} needs {} bytes here; allowed: {} (--memory)",
                            order.count, name_of(type), needs, options_.most_bytes));
  }
  if (own.size() * each > sums_bytes_) {
    sums_mr_.reset();
    sums_bytes_ = own.size() * each;
    sums_.reset(new std::byte[sums_bytes_]);
    auto registered = mesh_->reg_mr(sums_.get(), sums_bytes_);
    if (!registered) return tl::unexpected(registered.error());
    sums_mr_ = std::move(*registered);
  }
  const Seat seat = seat_of(forest, self);
  Work work;
  work.data = sums_.get();
  work.count = order.count;
  work.type = type;
  work.reduction = static_cast<Reduction>(order.reduction);
  work.seat = &seat;
  work.ranges = ranges;
  work.chunk = order.chunk;
  work.memory = sums_mr_.get();
  work.number = order.number;
  work.first = own.begin;
  if (const auto failed = runner_.run(work)) return tl::unexpected(failed->error);
  return {};
}

Result<HelperReport> Helper::serve() {
  if (const auto ok = attendant_.open(); !ok) return tl::unexpected(ok.error());
  auto order_mr = mesh_->reg_mr(order_.data(), order_.size());
  if (!order_mr) return tl::unexpected(order_mr.error());
  order_mr_ = std::move(*order_mr);
  HelperReport report;
  for (;;) {
    const auto order = next_order();
    if (!order) return tl::unexpected(order.error());
    report.traffic = runner_.traffic();
    if (!*order) return report;
    try {
      if (const auto ok = run(**order); !ok) return tl::unexpected(ok.error());
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::kSystem, fmt::format("no memory is left for {} elements", (*order)->count));
    }
    ++report.operations;
  }
}

}  // namespace

Result<HelperReport> serve_as_helper(transport::Transport& transport, const AllGather& all_gather,
                                     const HelperOptions& options, const std::atomic<bool>& stop) {
  if (options.helpers < 1 || options.helpers > kMostHelpers || options.helper >= options.helpers || options.ranks < 1 ||
      options.ranks > kMostRanks) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("helper {} of {} for {} ranks; allowed: 1 to {} helpers, numbered from 0, for 1 to {} ranks",
                    options.helper, options.helpers, options.ranks, kMostHelpers, kMostRanks));
  }
  auto mesh = Mesh::connect(transport, all_gather,
                            {options.ranks + options.helper,
                             options.ranks,
                             options.helpers,
                             options.device,
                             {options.stall},
                             options.channel});
  if (!mesh) return tl::unexpected(mesh.error());
  return Helper(std::move(*mesh), options, stop).serve();
}

}  // namespace clustar::paraexpress
