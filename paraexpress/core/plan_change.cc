#include "paraexpress/core/plan_change.h"

namespace clustar::paraexpress {

PlanChange::PlanChange(std::uint32_t ranks, Member rank, Plan first) : ranks_(ranks), rank_(rank), plan_(first) {}

std::optional<Plan> PlanChange::begin() {
  if (open_ && next_ >= open_->at) return {};
  if (comes_ && next_ >= comes_->at) {
    plan_ = comes_->plan;
    comes_.reset();
  }
  ++next_;
  return plan_;
}

std::optional<Proposal> PlanChange::propose(Plan plan, std::uint64_t ahead) {
  if (rank_ != 0 || open_ || comes_ || plan == plan_) return {};
  const Proposal proposal{++last_number_, plan, next_ + ahead};
  // Alone it needs nobody's answer.
  if (ranks_ == 1) {
    comes_ = proposal;
    return proposal;
  }
  open_ = proposal;
  answered_.assign(ranks_, false);
  missing_ = ranks_ - 1;
  refused_ = false;
  return proposal;
}

std::optional<Verdict> PlanChange::on_answer(Member from, const Answer& answer) {
  if (rank_ != 0 || !open_ || answer.number != open_->number || from == 0 || from >= ranks_ || answered_[from])
    return {};
  answered_[from] = true;
  refused_ = refused_ || !answer.accepted;
  if (--missing_ > 0) return {};
  const Verdict verdict{open_->number, !refused_};
  take(verdict);
  return verdict;
}

Answer PlanChange::on_proposal(const Proposal& proposal) {
  // A rank far behind, which has not reached the last change, refuses: the leader may try again later.
  const bool accepted = rank_ != 0 && !open_ && !comes_ && next_ <= proposal.at;
  if (accepted) open_ = proposal;
  return {proposal.number, accepted};
}

void PlanChange::on_verdict(const Verdict& verdict) {
  if (rank_ != 0 && open_ && verdict.number == open_->number) take(verdict);
}

void PlanChange::take(const Verdict& verdict) {
  if (verdict.holds) comes_ = open_;
  open_.reset();
}

bool PlanChange::is_consistent() const {
  return rank_ < ranks_ && (!open_ || next_ <= open_->at) && (!comes_ || next_ <= comes_->at) && !(open_ && comes_);
}

}  // namespace clustar::paraexpress
