#include "bench/cli/ab_view.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/ab/labels.h"
#include "bench/trainer/record.h"

namespace clustar::bench::cli {

void AbView::on_record(const nlohmann::json& record) {
  trainer::Progress progress;
  if (trainer::from_record(record, progress)) bar_.show(progress);
}

void AbView::on_run(int done, int total, const ab::Run& run) {
  bar_.clear();
  std::cerr << fmt::format("[{}/{}] round {}/{}  {:<17} {:>9} images/s  exposed {:.3f} of {:.3f} s\n", done, total,
                           run.round + 1, plan_.rounds, ab::to_string(run.role),
                           ab::rate_text(run.train["images_per_second"]), run.train["exposed_comm_s"].get<double>(),
                           run.train["train_s"].get<double>());
}

}  // namespace clustar::bench::cli
