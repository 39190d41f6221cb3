#include "bench/cli/coflow_source.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "bench/coflow/aicb.h"

namespace clustar::bench::cli {
namespace {

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(ErrorCode::kInvalidArgument, fmt::format("cannot read '{}': {}", path, strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();  // fails for an empty file, too, which the parser names
  std::error_code error;
  if (in.bad() || std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("cannot read '{}': no file", path));
  }
  return text.str();
}

}  // namespace

void add_source_options(CLI::App& command, CoflowSource& source) {
  command
      .add_option(
          "trace", source.trace,
          "File in the format of coflow-benchmark (as FB2010-1Hr-150-0.txt), of jobs in Muri's, or of a job in AICB's")
      ->type_name("TRACE");
  command
      .add_option("--generate", source.generate,
                  "Instead of a file: ports=150,coflows=500,load=0.9,seed=1. A seed's coflows are the same at every "
                  "load: their arrivals stretch")
      ->type_name("KEY=VALUE,...");
  command
      .add_option(
          "--job", source.jobs,
          "Instead: a training job by its file of AICB; several for a mix. Keys: ranks_per_port=8, first_port=0, "
          "iterations=10, duty=0.5 (share of an iteration alone that is communication) or compute_ms, "
          "begins_ms=0, deadline_ms (which arms with a coordinator ask it for), share=1, tflop (work of an iteration: "
          "weights are GPU intensities)")
      ->type_name("FILE[:KEY=VALUE,...]")
      ->allow_extra_args(false);
}

void add_muri_option(CLI::App& command, CoflowSource& source) {
  command
      .add_option("--muri", source.muri,
                  "For a trace of Muri: ports=16,gpus_per_port=8,scale=2000 (divides submit times and iterations), "
                  "intensity=0 (1: weights are GPU intensities), "
                  "jobs (the first so many)")
      ->type_name("KEY=VALUE,...");
}

Result<void> check(const CoflowSource& source) {
  const int sources =
      (source.trace.empty() ? 0 : 1) + (source.generate.empty() ? 0 : 1) + (source.jobs.empty() ? 0 : 1);
  if (sources != 1) {
    return fail(ErrorCode::kInvalidArgument, "name a trace or --generate one, or name jobs; not two of them");
  }
  if (!source.muri.empty() && source.trace.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--muri is for a trace of Muri");
  }
  return {};
}

Result<coflow::Source> read_source(const CoflowSource& arguments) {
  coflow::Source source;
  source.muri_keys = arguments.muri;
  for (const std::string& argument : arguments.jobs) {
    source.jobs.push_back(coflow::split_job(argument));
    auto text = read_file(source.jobs.back().name);
    if (!text) return tl::unexpected(text.error());
    source.jobs.back().text = std::move(*text);
  }
  if (!arguments.jobs.empty()) return source;
  if (!arguments.generate.empty()) {
    const auto options = coflow::parse_generator(arguments.generate);
    if (!options) return fail(options.error().code, "--generate: " + options.error().message);
    source.generator = *options;
    return source;
  }
  auto text = read_file(arguments.trace);
  if (!text) return tl::unexpected(text.error());
  if (coflow::is_aicb(*text)) {
    if (!arguments.muri.empty())
      return fail(ErrorCode::kInvalidArgument, "--muri is for a trace of Muri, not for AICB's");
    source.jobs.push_back({arguments.trace, std::move(*text), ""});  // as by --job, without keys
    return source;
  }
  source.name = arguments.trace;
  source.text = std::move(*text);
  return source;
}

}  // namespace clustar::bench::cli
