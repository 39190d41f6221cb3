#include "paraexpress/core/plan_change.h"

#include <algorithm>
#include <cassert>

namespace clustar::paraexpress {
namespace {

bool is_plan(Plan plan) { return std::find(kPlans.begin(), kPlans.end(), plan) != kPlans.end(); }

}  // namespace

PlanChange::PlanChange(std::uint32_t ranks, Member rank, Plan first) : ranks_(ranks), rank_(rank), plan_(first) {}

std::optional<Plan> PlanChange::begin() {
  if (open_ && next_ >= open_->at) return {};
  if (comes_ && next_ >= comes_->at) {
    plan_ = comes_->plan;
    comes_.reset();
  }
  ++next_;
  assert(is_consistent());
  return plan_;
}

std::optional<Proposal> PlanChange::propose(Plan plan, std::uint64_t ahead) {
  if (rank_ != 0 || open_ || comes_ || plan == plan_ || !is_plan(plan) || ahead > kMostAhead) return {};
  const Proposal proposal{++last_number_, plan, next_ + ahead};
  // Alone it needs nobody's answer.
  if (ranks_ == 1) {
    comes_ = proposal;
    assert(is_consistent());
    return proposal;
  }
  open_ = proposal;
  answered_.assign(ranks_, false);
  missing_ = ranks_ - 1;
  refused_ = false;
  assert(is_consistent());
  return proposal;
}

std::optional<Verdict> PlanChange::on_answer(Member from, const Answer& answer) {
  if (rank_ != 0 || !open_ || answer.number != open_->number || from == 0 || from >= ranks_ || answered_[from])
    return {};
  answered_[from] = true;
  refused_ = refused_ || !answer.accepted;
  std::optional<Verdict> verdict;
  if (--missing_ == 0) {
    verdict = Verdict{open_->number, !refused_};
    take(*verdict);
  }
  assert(is_consistent());
  return verdict;
}

Answer PlanChange::on_proposal(const Proposal& proposal) {
  // A rank far behind, which has not reached the last change, refuses: the leader may try again later.
  const bool accepted = rank_ != 0 && !open_ && !comes_ && is_plan(proposal.plan) && next_ <= proposal.at &&
                        proposal.at - next_ <= kMostAhead;
  if (accepted) open_ = proposal;
  assert(is_consistent());
  return {proposal.number, accepted};
}

void PlanChange::on_verdict(const Verdict& verdict) {
  if (rank_ != 0 && open_ && verdict.number == open_->number) take(verdict);
  assert(is_consistent());
}

void PlanChange::take(const Verdict& verdict) {
  if (verdict.holds) comes_ = open_;
  open_.reset();
}

bool PlanChange::is_consistent() const {
  const auto is_ahead = [&](const Proposal& one) {
    return next_ <= one.at && one.at - next_ <= kMostAhead && is_plan(one.plan);
  };
  const auto answers = static_cast<std::uint32_t>(std::count(answered_.begin(), answered_.end(), true));
  return rank_ < ranks_ && is_plan(plan_) && (!open_ || is_ahead(*open_)) && (!comes_ || is_ahead(*comes_)) &&
         !(open_ && comes_) && (rank_ != 0 || !open_ || (missing_ > 0 && answers + missing_ == ranks_ - 1));
}

}  // namespace clustar::paraexpress
