// One rank of a run, from its data to its results: loads, joins the others, trains.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/trainer/config.h"
#include "bench/trainer/data/dataset.h"
#include "bench/trainer/model.h"
#include "bench/trainer/trainer.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// The data set that `config` names, or the generated one. Errors are those of load() and generate().
Result<Dataset> load_data(const TrainConfig& config, const Model& model);

// Whether the plan has a bucket more than the front layers take.
Result<void> check_front(const TrainConfig& config, const BucketPlan& plan);

// Blocks until the run is over; `progress` is called on this thread. Returns to_results()'s JSON, the same on all
// ranks; a run that failed after it had begun to measure carries results.failure. Errors name what could not be done;
// warnings that the plugin logged are appended.
Result<nlohmann::json> run_rank(const TrainConfig& config, const RankOptions& options, const ProgressSink& progress);

}  // namespace clustar::bench::trainer
