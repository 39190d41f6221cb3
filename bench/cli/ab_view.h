// What clustar ab says on standard error while it compares two arms.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/ab/experiment.h"
#include "bench/trainer/progress_view.h"

namespace clustar::bench::cli {

// A line per run, and on a terminal a bar within each. `plan` must outlive it.
class AbView {
 public:
  AbView(const ab::Plan& plan, bool bar)
      : plan_(plan), bar_(bar ? trainer::ProgressView::Style::kBar : trainer::ProgressView::Style::kNone) {}

  void on_record(const nlohmann::json& record);
  void on_run(int done, int total, const ab::Run& run);
  void clear() { bar_.clear(); }

 private:
  const ab::Plan& plan_;
  trainer::ProgressView bar_;
};

}  // namespace clustar::bench::cli
