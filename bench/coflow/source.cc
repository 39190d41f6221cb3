#include "bench/coflow/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "bench/coflow/aicb.h"
#include "bench/coflow/benchmark_format.h"
#include "bench/coflow/muri.h"

namespace clustar::bench::coflow {
namespace {

// The file's, without folder and extension; a second one of the same name is name#2.
std::string name_of(const std::string& path, std::set<std::string>& taken) {
  const std::string file = path.substr(path.rfind('/') + 1);
  const std::string stem = file.substr(0, file.rfind('.'));
  std::string name = stem;
  for (int nth = 2; !taken.insert(name).second; ++nth) name = fmt::format("{}#{}", stem, nth);
  return name;
}

Result<JobMix> aicb_mix(const std::vector<JobSource>& sources, double bytes_per_s) {
  JobMix mix;
  mix.name = fmt::format("{} job{}", sources.size(), sources.size() == 1 ? "" : "s");
  std::set<std::string> names;
  std::size_t with_tflop = 0;
  JobSize size;
  for (const JobSource& source : sources) {
    const auto options = parse_aicb_options(source.keys);
    if (!options) return fail(options.error().code, fmt::format("--job {}: {}", source.name, options.error().message));
    with_tflop += options->tflop ? 1 : 0;
    const auto iteration = parse_aicb(source.text, source.name);
    if (!iteration) return tl::unexpected(iteration.error());
    auto job = aicb_job(*iteration, source.name, *options, bytes_per_s);
    if (!job) return tl::unexpected(job.error());
    if (const auto ok = add_size(size_of(*job, 0), "fewer iterations, jobs or, for flows, more ranks_per_port", size);
        !ok) {
      return fail(ok.error().code, fmt::format("--job {}: {}", source.name, ok.error().message));
    }
    job->name = name_of(source.name, names);
    mix.ports = std::max(mix.ports, options->layout.first_port + options->layout.ports_of(iteration->world));
    mix.jobs.push_back(std::move(*job));
  }
  if (with_tflop == 0 || with_tflop == sources.size()) return mix;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--job: tflop for {} of {} jobs; allowed: for all or none, as weights are compared",
                          with_tflop, sources.size()));
}

}  // namespace

JobSource split_job(const std::string& argument) {
  for (std::size_t colon = argument.rfind(':'); colon != std::string::npos && colon > 0;
       colon = argument.rfind(':', colon - 1)) {
    const std::string keys = argument.substr(colon + 1);
    if (keys.find('/') != std::string::npos) break;
    if (keys.find('=') != std::string::npos) return {argument.substr(0, colon), {}, keys};
  }
  return {argument, {}, {}};
}

bool has_jobs(const Source& source) { return !source.jobs.empty() || is_muri(source.text); }

Result<Trace> trace_of(const Source& source, double bytes_per_s, bool whole_mb) {
  if (!source.muri_keys.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--muri is for a trace of Muri, whose header begins with job_id,num_gpu");
  }
  if (source.generator) return generate(*source.generator, bytes_per_s);
  return parse_benchmark(source.text, source.name, {.whole_mb = whole_mb});
}

Result<JobMix> mix_of(const Source& source, double bytes_per_s) {
  if (!source.jobs.empty()) return aicb_mix(source.jobs, bytes_per_s);
  const auto options = parse_muri_options(source.muri_keys);
  if (!options) return fail(options.error().code, "--muri: " + options.error().message);
  return parse_muri(source.text, source.name, *options, bytes_per_s);
}

}  // namespace clustar::bench::coflow
