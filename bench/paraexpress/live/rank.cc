#include "bench/paraexpress/live/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "bench/proxy/bootstrap.h"
#include "coflow/enforce/host_policies.h"
#include "nccl_plugin/settings/all_settings.h"
#include "paraexpress/core/probe.h"
#include "paraexpress/engine/engine.h"
#include "transport/api/settings.h"
#include "transport/base/system_clock.h"
#include "transport/registry.h"

namespace clustar::bench::paraexpress::live {
namespace {

// A size's slow plans are left out of later rounds: a server of 32 ranks would make them last for minutes.
constexpr double kMostSeconds = 20;

std::string regions_text(const px::Group& group) {
  return group.regions.regions.size() < 2 ? "" : px::to_text(group.regions, group.ranks);
}

void say(int words, Word word, const std::string& text = {}) {
  std::strncpy(word.text.data(), text.c_str(), word.text.size() - 1);
  (void)!write(words, &word, sizeof word);
}

class Rank {
 public:
  Rank(const LiveOptions& options, std::uint32_t rank, int words)
      : options_(options), rank_(rank), words_(words), contenders_(contenders(options)) {}

  Result<void> run(const std::string& root) {
    auto bootstrap = proxy::Bootstrap::join(
        {.rank = static_cast<int>(rank_), .size = static_cast<int>(options_.group.ranks), .root = root});
    if (!bootstrap) return tl::unexpected(bootstrap.error());
    bootstrap_ = std::move(*bootstrap);
    auto config = load_settings();
    if (!config) return tl::unexpected(config.error());
    const auto order = config->get<SendOrderSettings>();
    auto selected =
        transport::select_transport({*config, clock_, {}, clustar::coflow::enforce::host_policies(order, {})});
    if (!selected) return tl::unexpected(selected.error());
    selection_ = std::move(*selected);
    elements_.resize(*std::ranges::max_element(options_.sizes) / sizeof(float));
    regions_ = regions_text(options_.group);
    if (options_.probe) {
      if (const auto ok = probe(); !ok) return ok;
    }
    for (const Contender& one : contenders_) {
      if (const auto ok = start(one); !ok) return fail(ok.error().code, "plan " + one.name + ": " + ok.error().message);
    }
    // The first round opens windows and learns paths; it is not measured.
    for (int round = -1; round < options_.rounds; ++round) {
      for (std::uint32_t size = 0; size < options_.sizes.size(); ++size) {
        for (std::uint32_t i = 0; i < contenders_.size(); ++i) {
          // In turns: none is always behind the same one.
          const auto which =
              static_cast<std::uint32_t>((i + static_cast<std::uint32_t>(round + 1)) % contenders_.size());
          if (const auto ok = once(round, size, which); !ok) {
            return fail(ok.error().code, fmt::format("plan {}, {} bytes: {}", contenders_[which].name,
                                                     options_.sizes[size], ok.error().message));
          }
        }
      }
    }
    // Others may still receive: nobody closes before all are done.
    if (const auto ok = bootstrap_->barrier(); !ok) return ok;
    for (const auto& engine : engines_) engine->close();
    return {};
  }

 private:
  Result<void> probe() {
    px::EngineOptions options;
    options.rank = rank_;
    options.ranks = options_.group.ranks;
    options.regions = px::kProbeRegions;
    auto engine = make(options);
    if (!engine) return fail(engine.error().code, "probing: " + engine.error().message);
    regions_ = (*engine)->regions();
    if (rank_ == 0) say(words_, {Word::Kind::kFound, rank_, 0, 0, 0}, regions_);
    if (const auto ok = bootstrap_->barrier(); !ok) return ok;
    (*engine)->close();
    return {};
  }

  Result<std::unique_ptr<px::Engine>> make(const px::EngineOptions& options) {
    return px::Engine::create(
        *selection_.transport, [this](std::span<const std::byte> mine) { return bootstrap_->all_gather(mine); },
        options);
  }

  Result<void> start(const Contender& one) {
    px::EngineOptions engine;
    engine.rank = rank_;
    engine.ranks = options_.group.ranks;
    if (one.knows_regions) engine.regions = regions_;
    if (!one.plan.empty()) engine.plan = px::plan_of(one.plan);
    auto made = make(engine);
    if (!made) return tl::unexpected(made.error());
    engines_.push_back(std::move(*made));
    left_out_.emplace_back(options_.sizes.size());
    return engines_.back()->add_memory(elements_.data(), elements_.size() * sizeof(float));
  }

  Result<void> once(int round, std::uint32_t size, std::uint32_t which) {
    if (left_out_[which][size]) return {};
    const std::size_t count = options_.sizes[size] / sizeof(float);
    const float ranks = static_cast<float>(options_.group.ranks);
    std::fill_n(elements_.begin(), count, static_cast<float>(rank_ + 1));
    if (const auto ok = bootstrap_->barrier(); !ok) return ok;
    const auto seconds = engines_[which]->all_reduce(elements_.data(), count, px::DataType::kFloat32)->wait();
    if (!seconds) return tl::unexpected(seconds.error());
    const float sum = ranks * (ranks + 1) / 2;
    if (!std::all_of(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(count),
                     [&](float element) { return element == sum; })) {
      return fail(ErrorCode::kInternal, "a wrong sum");
    }
    const auto all = bootstrap_->all_gather(std::as_bytes(std::span(&*seconds, 1)));
    if (!all) return tl::unexpected(all.error());
    double slowest = 0;
    for (std::size_t at = 0; at + sizeof(double) <= all->size(); at += sizeof(double)) {
      double one;
      std::memcpy(&one, all->data() + at, sizeof one);
      slowest = std::max(slowest, one);
    }
    left_out_[which][size] = slowest > kMostSeconds;
    if (rank_ != 0 || round < 0) return {};
    say(words_, {Word::Kind::kTime, rank_, size, which, slowest});
    if (contenders_[which].plan.empty() && round == 0) {
      say(words_, {Word::Kind::kChosen, rank_, size, which, 0},
          px::to_string(engines_[which]->plan_for(options_.sizes[size])));
    }
    return {};
  }

  const LiveOptions& options_;
  const std::uint32_t rank_;
  const int words_;
  const std::vector<Contender> contenders_;
  SystemClock clock_;
  std::unique_ptr<proxy::Bootstrap> bootstrap_;
  transport::Selection selection_;
  std::string regions_;
  std::vector<float> elements_;
  std::vector<std::unique_ptr<px::Engine>> engines_;  // by contender
  std::vector<std::vector<bool>> left_out_;           // by contender and size
};

}  // namespace

std::vector<Contender> all_contenders(const px::Group& group) {
  std::vector<Contender> all;
  for (const px::Plan plan : px::kPlans) {
    if (px::makes_sense(plan, group)) all.push_back({px::to_string(plan), px::to_string(plan), true});
  }
  if (!std::ranges::is_sorted(group.order)) all.push_back({"ring by number", px::to_string(px::Plan::kRing), false});
  all.push_back({"auto", "", true});
  return all;
}

std::vector<Contender> contenders(const LiveOptions& options) {
  std::vector<Contender> some = all_contenders(options.group);
  if (options.only.empty()) return some;
  std::erase_if(some,
                [&](const Contender& one) { return std::ranges::find(options.only, one.name) == options.only.end(); });
  return some;
}

int be_rank(const LiveOptions& options, std::uint32_t rank, const std::string& root, int words) {
  Rank one(options, rank, words);
  const auto ok = one.run(root);
  if (!ok) say(words, {Word::Kind::kFailed, rank, 0, 0, 0}, ok.error().message);
  return ok ? 0 : 1;
}

}  // namespace clustar::bench::paraexpress::live
