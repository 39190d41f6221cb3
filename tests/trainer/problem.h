// A small training run over a fake transport, for tests.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/trainer/checkpoint/checkpoints.h"
#include "bench/trainer/checkpoint/run_identity.h"
#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/compute_thread.h"
#include "bench/trainer/data/digits.h"
#include "bench/trainer/parallel/bucket_order.h"
#include "bench/trainer/parallel/layer_terms.h"
#include "bench/trainer/parallel/layer_traffic.h"
#include "bench/trainer/trainer.h"
#include "tests/trainer/fake_links.h"

namespace clustar::bench::trainer {

struct RankOutcome {
  Result<TrainReport> report = fail(ErrorCode::kInternal, "did not run");
  std::vector<float> parameters;  // as they lie
  std::vector<float> ordered;     // in parameter order
  BucketPlan plan;                // of the end
  std::vector<float> state;
};

struct Problem {
  TrainConfig config;
  Dataset dataset = generate_digits(400, 1);
  Split split = *split_dataset(dataset, 1);
  Model model;
  BucketPlan plan;
  std::optional<LayerTimes> times{};  // of a replay

  explicit Problem(const std::string& name, const ModelOptions& options = {}) : model(*make_model(name, options)) {
    config.model = name;
    config.model_options = options;
    config.epochs = 2;
    config.batch = 50;  // 320 examples: six whole batches and one of 20
    plan = plan_buckets(model.tensor_elements());
  }

  RankOutcome run(Links links, const ProgressSink& progress = {}) const {
    const ComputeThread settings_of_thread;  // as a rank does: oneDNN's idle threads would spin beside other tests
    const RankCompute computes = *make_compute(config, model, plan, times, links.rank(), links.size());
    Trainer trainer(config, model, plan, *computes.compute, dataset, split, links, progress);
    RankOutcome outcome;
    Checkpoints checkpoints(config.checkpoint, run_identity(config, links.size(), 1, dataset), links.bootstrap);
    outcome.report = trainer.run(&checkpoints);
    outcome.parameters.assign(trainer.parameters().begin(), trainer.parameters().end());
    outcome.plan = trainer.plan();
    outcome.ordered = parallel::in_parameter_order(outcome.parameters, outcome.plan);
    outcome.state = trainer.state();
    return outcome;
  }

  // `front`: what config.front_buckets go by.
  std::vector<RankOutcome> run_ranks(FakeWorld& world, FakeWorld* front = nullptr) const {
    std::vector<RankOutcome> outcomes(static_cast<std::size_t>(world.size()));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world.size(); ++rank) {
      threads.emplace_back([this, rank, &world, front, &outcomes] {
        const auto collective = world.collective(rank, config.exchange);
        const auto bootstrap = world.bootstrap(rank);
        const auto of_front = front != nullptr ? front->collective(rank, config.exchange) : nullptr;
        const auto exchanges = parallel::layer_exchanges(config.layers, rank, world.size());
        parallel::LayerTraffic layers(exchanges, std::vector<Collective*>(exchanges.size(), collective.get()), rank,
                                      plan.tensor_elements.size());
        outcomes[static_cast<std::size_t>(rank)] =
            run({collective.get(), bootstrap.get(), nullptr, of_front.get(), exchanges.empty() ? nullptr : &layers});
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
};

}  // namespace clustar::bench::trainer
