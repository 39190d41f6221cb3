#include "coflow/core/policies/turns.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "coflow/core/policies/bssi.h"

namespace clustar::coflow {
namespace {

constexpr std::uint64_t kAlone = std::uint64_t{1} << 63;  // and a coflow's id: one of no job is a job of its own
constexpr double kForever = std::numeric_limits<double>::infinity();

std::size_t root(std::vector<std::size_t>& parents, std::size_t at) {
  while (parents[at] != at) at = parents[at] = parents[parents[at]];
  return at;
}

}  // namespace

std::uint64_t JobTurns::job_of(CoflowId coflow) const {
  const std::uint64_t job = table_.coflow(coflow).job;
  return job == 0 ? kAlone | coflow : job;
}

double JobTurns::served(CoflowId id) const {
  const Coflow& coflow = table_.coflow(id);
  return present_.at(id) * std::min(coflow.sent / coflow.bytes, 1.0) / coflow.weight;
}

void JobTurns::arrived(CoflowId coflow) {
  const double bottleneck = table_.bottleneck(coflow);
  const auto [found, is_new] = jobs_.try_emplace(job_of(coflow));
  Job& job = found->second;
  if (!is_new && job.present.empty()) job.since = Since::kBack;
  job.largest = std::max(job.largest, bottleneck / table_.coflow(coflow).weight);
  job.present.push_back(coflow);
  present_[coflow] = bottleneck;
}

void JobTurns::flow_added(FlowId id) {
  const CoflowId coflow = table_.flow(id).coflow;
  const Coflow& grown = table_.coflow(coflow);
  const double before = grown.bytes - table_.flow(id).left;
  double& bottleneck = present_.at(coflow);
  bottleneck = bottleneck * (before > 0 ? std::min(grown.sent / before, 1.0) : 0) + table_.bottleneck(coflow);
  Job& job = jobs_.at(job_of(coflow));
  job.largest = std::max(job.largest, bottleneck / grown.weight);
}

void JobTurns::departed(CoflowId coflow) {
  const std::uint64_t key = job_of(coflow);
  Job& job = jobs_[key];
  job.served += served(coflow);
  std::erase(job.present, coflow);
  present_.erase(coflow);
  job.left = ++departures_;
  if ((key & kAlone) != 0) jobs_.erase(key);
  if (jobs_.size() > present_.size() + 2 * kRemembered) forget_oldest();
}

// Down to kRemembered, so that it is rare.
void JobTurns::forget_oldest() {
  std::vector<std::uint64_t> away;
  for (const auto& [key, job] : jobs_) {
    if (job.present.empty()) away.push_back(job.left);
  }
  const auto first_kept = away.end() - kRemembered;
  std::nth_element(away.begin(), first_kept, away.end());
  const std::uint64_t oldest = *first_kept;
  std::erase_if(jobs_, [&](const auto& one) { return one.second.present.empty() && one.second.left < oldest; });
}

// Jobs with coflows present, those together that share ports.
std::vector<JobTurns::Jobs> JobTurns::who_meets() {
  Jobs jobs;
  for (auto& [key, job] : jobs_) {
    if (!job.present.empty()) jobs.push_back(&job);
  }
  std::vector<std::size_t> parents(jobs.size());
  std::iota(parents.begin(), parents.end(), std::size_t{0});
  const std::size_t nobody = jobs.size();
  std::vector<std::size_t> out(table_.ports(), nobody), in(table_.ports(), nobody);
  for (std::size_t at = 0; at < jobs.size(); ++at) {
    const auto is_at = [&](std::size_t& owner) {
      if (owner == nobody) owner = at;
      parents[root(parents, at)] = root(parents, owner);
    };
    for (const CoflowId id : jobs[at]->present) {
      for (const Sender& sender : table_.coflow(id).senders) is_at(out[sender.port]);
      for (const Receiver& receiver : table_.coflow(id).receivers) is_at(in[receiver.port]);
    }
  }
  std::vector<Jobs> together(jobs.size());
  for (std::size_t at = 0; at < jobs.size(); ++at) together[root(parents, at)].push_back(jobs[at]);
  std::erase_if(together, [](const Jobs& one) { return one.empty(); });
  return together;
}

// What each was served, as it counts among these: a new one has no claim, and nobody is too far from the others.
void JobTurns::settle(const Jobs& jobs) const {
  double largest = 0, least = kForever;
  for (Job* job : jobs) {
    job->now = job->served;
    for (const CoflowId coflow : job->present) job->now += served(coflow);
    largest = std::max(largest, job->largest);
  }
  for (const Since since : {Since::kBefore, Since::kBack, Since::kNew}) {
    if (least < kForever) break;
    for (const Job* job : jobs) {
      if (job->since == since) least = std::min(least, job->now);
    }
  }
  const double apart = options_.credit * largest;
  const auto move = [](Job& job, double to) {
    job.served += to - job.now;
    job.now = to;
  };
  for (Job* job : jobs) {
    if (job->since == Since::kNew) move(*job, least);
    if (job->now < least - apart) move(*job, least - apart);
  }
  for (const Job* job : jobs) least = std::min(least, job->now);
  for (Job* job : jobs) {
    if (job->now > least + apart) move(*job, least + apart);
    job->since = Since::kBefore;
  }
}

// When it alone will have been served so far, in bytes that its bottleneck sends until then; never if it ends before.
double JobTurns::crosses(const Job& job, double limit) const {
  double left = 0, weight = 0;
  for (const CoflowId id : job.present) {
    const double of_weight = table_.coflow(id).weight;
    left += present_.at(id) / of_weight - served(id);
    weight = std::max(weight, of_weight);
  }
  return job.now + left > limit ? std::max(limit - job.now, 0.0) * weight : kForever;
}

void JobTurns::order(Jobs& jobs, BssiOrder& bssi, std::vector<CoflowId>& all) {
  double ahead = 0, longest = 0;  // that a job may be; of the coflows present
  for (const Job* job : jobs) {
    for (const CoflowId id : job->present) {
      ahead = std::max(ahead, present_.at(id) / table_.coflow(id).weight);
      longest = std::max(longest, present_.at(id));
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const Job* a, const Job* b) {
    return a->now != b->now ? a->now < b->now : a->present.front() < b->present.front();
  });
  double good_for = kForever;
  std::vector<CoflowId> alike;
  for (std::size_t i = 0; i < jobs.size();) {
    const Job& least = *jobs[i];
    const double limit = least.now + ahead;
    alike.clear();
    for (; i < jobs.size() && jobs[i]->now <= limit; ++i) {
      alike.insert(alike.end(), jobs[i]->present.begin(), jobs[i]->present.end());
      if (jobs.size() > 1) good_for = std::min(good_for, crosses(*jobs[i], limit));
    }
    if (i < jobs.size()) good_for = std::min(good_for, crosses(least, jobs[i]->now - ahead));
    std::sort(alike.begin(), alike.end());
    for (const CoflowId coflow : bssi_order_of(table_, alike, bssi)) all.push_back(coflow);
  }
  // A bit of the longest coflow more or less is not worth another order.
  constexpr double kBits = 16;
  good_for_ = std::min(good_for_, std::max(good_for, longest / kBits) / table_.rate());
}

std::vector<CoflowId> JobTurns::order(BssiOrder& bssi) {
  good_for_ = kForever;
  std::vector<CoflowId> all;
  for (Jobs& jobs : who_meets()) {
    settle(jobs);
    order(jobs, bssi, all);
  }
  return all;
}

}  // namespace clustar::coflow
