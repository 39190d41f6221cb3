#include "bench/coflow/muri.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/coflow/csv.h"
#include "bench/coflow/keys.h"

namespace clustar::bench::coflow {
namespace {

constexpr std::size_t kMaxJobs = 1'000'000;

Duration milliseconds(double ms) { return Duration(static_cast<Duration::rep>(std::llround(ms * 1e6))); }

Result<Job> read_job(const Csv& csv, const MuriOptions& options, double bytes_per_s) {
  constexpr std::int64_t kMostMs = 1'000'000'000'000;  // 31 years
  const std::size_t all_gpus = options.ports * options.gpus_per_port;
  const auto gpus = csv.whole("num_gpu", 1, static_cast<std::int64_t>(all_gpus));
  if (!gpus) return fail(gpus.error().code, gpus.error().message + ", GPUs of all ports");
  const auto submitted = csv.real("submit_time", 0, kMostMs);
  if (!submitted) return tl::unexpected(submitted.error());
  const auto iterations = csv.whole("iterations", 1, kMostMs);
  if (!iterations) return tl::unexpected(iterations.error());
  const auto iteration_ms = csv.real("iteration_time", 0.001, 1e9);
  if (!iteration_ms) return tl::unexpected(iteration_ms.error());
  const auto network_ms = csv.real("resource_time_2", 0, *iteration_ms);
  if (!network_ms) return fail(network_ms.error().code, network_ms.error().message + ", its iteration_time");
  Job job;
  job.name = printable(fmt::format("{} {}", csv.field("job_id"), csv.field("model_name")));
  job.begins = TimePoint(milliseconds(*submitted / options.scale));
  job.gpus = static_cast<std::size_t>(*gpus);
  job.iterations =
      static_cast<std::size_t>(std::max(1.0, std::round(static_cast<double>(*iterations) / options.scale)));
  job.phases.push_back({milliseconds(*iteration_ms - *network_ms), {}, *network_ms / 1e3 * bytes_per_s});
  const double compute_ms = *iteration_ms - *network_ms;
  if (options.intensity && *network_ms > 0) {
    job.weight = std::clamp(static_cast<double>(job.gpus) * compute_ms / *network_ms, kLeastIntensity, kMostIntensity);
  }
  return job;
}

}  // namespace

Result<MuriOptions> parse_muri_options(std::string_view text) {
  MuriOptions options;
  const Key keys[] = {
      {"ports", 1, clustar::coflow::kMaxPorts, true, into(options.ports)},
      {"gpus_per_port", 1, 1024, true, into(options.gpus_per_port)},
      {"scale", 1, 1e12, false, into(options.scale)},
      {"intensity", 0, 1, true, [&](double value) { options.intensity = value > 0; }},
      {"jobs", 1, kMaxJobs, true, into(options.jobs)},
  };
  if (const auto ok = read_keys(text, keys); !ok) return tl::unexpected(ok.error());
  return options;
}

bool is_muri(std::string_view text) {
  Csv csv(text, "");
  return csv.next() && csv.take_header({"job_id", "num_gpu", "submit_time"}).has_value();
}

Result<JobMix> parse_muri(std::string_view text, const std::string& name, const MuriOptions& options,
                          double bytes_per_s) {
  Csv csv(text, name);
  if (!csv.next()) return fail(ErrorCode::kInvalidArgument, name + ": empty; expected: job_id,num_gpu,...");
  const auto header = csv.take_header(
      {"job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time", "resource_time_2"});
  if (!header) return tl::unexpected(header.error());
  JobMix mix{name, options.ports, options.gpus_per_port, {}};
  mix.scale = options.scale;
  JobSize size;
  while (mix.jobs.size() < std::min(options.jobs, kMaxJobs) && csv.next()) {
    if (const auto ok = csv.split(); !ok) return tl::unexpected(ok.error());
    auto job = read_job(csv, options, bytes_per_s);
    if (!job) return tl::unexpected(job.error());
    const auto fits = add_size(size_of(*job, options.ports), std::string(options.lower), size);
    if (!fits) return csv.wrong(fits.error().message);
    mix.jobs.push_back(std::move(*job));
  }
  if (mix.jobs.empty()) return fail(ErrorCode::kInvalidArgument, name + ": no job behind the header");
  std::stable_sort(mix.jobs.begin(), mix.jobs.end(), [](const Job& a, const Job& b) { return a.begins < b.begins; });
  return mix;
}

}  // namespace clustar::bench::coflow
