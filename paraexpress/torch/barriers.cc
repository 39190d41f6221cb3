#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "paraexpress/torch/backend.h"

namespace clustar::torch_backend {
namespace {

using paraexpress::Member;
using paraexpress::Task;
using paraexpress::TaskKind;

// Tags of messages that no user's, which are 31 bits, is like: two for each monitored barrier.
constexpr std::uint64_t kMonitored = std::uint64_t{1} << 40;

// What ended a work of this operation.
std::string why(const char* name, const std::exception& error) {
  const std::string text = error.what(), before = std::string(name) + ": ";
  return text.starts_with(before) ? text.substr(before.size()) : text;
}

}  // namespace

WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  return start({"clustar:barrier", c10d::OpType::BARRIER, options.timeout}, {}, {}, {});
}

// By messages, which end alone: a rank that does not come leaves the group as it was.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const Call call{"clustar:monitored_barrier", c10d::OpType::BARRIER, options.timeout};
  const std::uint64_t arrived = kMonitored + 2 * monitored_.fetch_add(1), answered = arrived + 1;
  const auto message = [&](bool sends, int peer, std::uint64_t tag) {
    Task task;
    task.kind = TaskKind::kMessage;
    task.tag = tag;
    task.transfers = {{sends, static_cast<Member>(peer), 0, 0}};
    return start(call, std::move(task), {}, {});
  };
  if (getRank() != 0) {
    const WorkPtr here = message(true, 0, arrived), answer = message(false, 0, answered);
    try {
      here->wait();
      answer->wait();
    } catch (const std::exception& error) {
      TORCH_CHECK(false, call.name, ": rank ", getRank(),
                  " has come, and rank 0 does not let it go on: ", why(call.name, error),
                  "; rank 0 says who did not come");
    }
    return;
  }
  std::vector<WorkPtr> arrivals;
  for (int rank = 1; rank < getSize(); ++rank) arrivals.push_back(message(false, rank, arrived));
  std::string missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    try {
      arrivals[static_cast<std::size_t>(rank - 1)]->wait();
    } catch (const std::exception& error) {
      missing +=
          (missing.empty() ? "" : "; ") + ("rank " + std::to_string(rank) + " did not come: " + why(call.name, error));
      if (!wait_all_ranks) break;
    }
  }
  TORCH_CHECK(missing.empty(), call.name, ": ", missing);
  std::vector<WorkPtr> answers;
  for (int rank = 1; rank < getSize(); ++rank) answers.push_back(message(true, rank, answered));
  for (const WorkPtr& answer : answers) answer->wait();
}

}  // namespace clustar::torch_backend
