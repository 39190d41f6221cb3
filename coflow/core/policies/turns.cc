#include "coflow/core/policies/turns.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "coflow/core/policies/bssi.h"

namespace clustar::coflow {
namespace {

constexpr std::uint64_t kAlone = std::uint64_t{1} << 63;  // and a coflow's id: one of no job is a job of its own

}  // namespace

std::uint64_t JobTurns::job_of(CoflowId coflow) const {
  const std::uint64_t job = table_.coflow(coflow).job;
  return job == 0 ? kAlone | coflow : job;
}

double JobTurns::served(CoflowId id) const {
  const Coflow& coflow = table_.coflow(id);
  return present_.at(id).bottleneck * std::min(coflow.sent / coflow.bytes, 1.0) / coflow.weight;
}

double JobTurns::served(const Job& job) const {
  double all = job.served;
  for (const CoflowId coflow : job.present) all += served(coflow);
  return all;
}

// Of the jobs that have coflows, the one that got least; it never decreases.
void JobTurns::look() {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [id, one] : present_) least = std::min(least, served(jobs_.at(one.job)));
  if (least < std::numeric_limits<double>::infinity()) least_ = std::max(least_, least);
}

void JobTurns::arrived(CoflowId coflow) {
  look();
  const std::uint64_t key = job_of(coflow);
  const double bottleneck = table_.bottleneck(coflow);
  const auto [found, is_new] = jobs_.try_emplace(key);
  Job& job = found->second;
  largest_ = std::max(largest_, bottleneck / table_.coflow(coflow).weight);
  if (is_new) job.served = least_;
  if (job.present.empty()) job.served = std::max(job.served, least_ - options_.credit * largest_);
  job.present.push_back(coflow);
  present_[coflow] = {key, bottleneck};
}

void JobTurns::departed(CoflowId coflow) {
  look();
  const std::uint64_t key = present_.at(coflow).job;
  Job& job = jobs_[key];
  job.served += served(coflow);
  std::erase(job.present, coflow);
  present_.erase(coflow);
  if ((key & kAlone) != 0) jobs_.erase(key);
}

std::vector<CoflowId> JobTurns::order(BssiOrder& bssi) {
  look();
  ahead_ = 0;
  double unit = std::numeric_limits<double>::infinity();
  for (const auto& [id, one] : present_) {
    const double weight = table_.coflow(id).weight;
    ahead_ = std::max(ahead_, one.bottleneck / weight);
    unit = std::min(unit, weight);
  }
  std::vector<std::pair<double, const Job*>> jobs;
  for (const auto& [id, one] : present_) {
    const Job& job = jobs_.at(one.job);
    if (job.present.front() == id) jobs.emplace_back(served(job), &job);
  }
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second->present.front() < b.second->present.front();
  });
  std::vector<CoflowId> all, alike;
  for (std::size_t i = 0; i < jobs.size();) {
    const double most = jobs[i].first + ahead_;
    alike.clear();
    for (; i < jobs.size() && jobs[i].first <= most; ++i) {
      alike.insert(alike.end(), jobs[i].second->present.begin(), jobs[i].second->present.end());
    }
    std::sort(alike.begin(), alike.end());
    for (const CoflowId coflow : bssi_order_of(table_, alike, bssi)) all.push_back(coflow);
  }
  // An eighth of what would be too much. One job alone has nobody to be ahead of.
  good_for_ = jobs.size() > 1 ? ahead_ * unit / table_.rate() / 8 : std::numeric_limits<double>::infinity();
  return all;
}

}  // namespace clustar::coflow
