#include "bench/ab/jobs/jobs_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <toml.hpp>

#include "bench/fabric/spec.h"
#include "bench/trainer/limits.h"
#include "bench/trainer/model.h"
#include "transport/base/nearest.h"
#include "transport/base/toml_scan.h"

namespace clustar::bench::ab::jobs {
namespace {

constexpr int kMostNumber = 1'000'000'000;

// Carries "LINE: message" out of the parser; never leaves this file.
class WrongJob : public std::runtime_error {
 public:
  WrongJob(const toml::value& where, const std::string& message)
      : std::runtime_error(fmt::format("{}: {}", where.location().line(), message)) {}
};

// A table of the file, with what messages call it.
class Table {
 public:
  Table(const toml::value& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_table()) throw WrongJob(value, where_ + ": must be a table");
  }

  [[noreturn]] void wrong(const std::string& key, const std::string& message) const {
    const toml::value* at = find(key);
    throw WrongJob(at == nullptr ? value_ : *at, fmt::format("{}: {}: {}", where_, key, message));
  }
  void allow(const std::vector<std::string>& keys) const {
    for (const auto& [key, value] : value_.as_table()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      throw WrongJob(value, fmt::format("{}: unknown key '{}'{}; allowed: {}", where_, key, did_you_mean(key, keys),
                                        fmt::join(keys, ", ")));
    }
  }
  const toml::value* find(const std::string& key) const {
    const auto found = value_.as_table().find(key);
    return found == value_.as_table().end() ? nullptr : &found->second;
  }
  bool has(const std::string& key) const { return find(key) != nullptr; }

  std::optional<std::string> text(const std::string& key) const {
    const toml::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) wrong(key, "must be a text in quotes");
    return value->as_string().str;
  }
  std::optional<std::string> one_of(const std::string& key, const std::vector<std::string>& names) const {
    const auto value = text(key);
    if (value && std::find(names.begin(), names.end(), *value) == names.end()) {
      wrong(key, fmt::format("'{}'{}; allowed: {}", *value, did_you_mean(*value, names), fmt::join(names, ", ")));
    }
    return value;
  }
  std::optional<long long> whole(const std::string& key, long long low, long long high) const {
    const toml::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_integer() || value->as_integer() < low || value->as_integer() > high) {
      wrong(key, fmt::format("allowed: a whole number from {} to {}", low, high));
    }
    return value->as_integer();
  }
  std::optional<int> count(const std::string& key, int most = kMostNumber) const {
    const auto value = whole(key, 1, most);
    return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
  }
  std::optional<double> number(const std::string& key, double low, double high) const {
    const toml::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    double read = low - 1;
    if (value->is_integer()) read = static_cast<double>(value->as_integer());
    if (value->is_floating()) read = value->as_floating();
    if (!(read >= low && read <= high)) wrong(key, fmt::format("allowed: a number from {} to {}", low, high));
    return read;
  }

 private:
  const toml::value& value_;
  std::string where_;
};

const std::vector<std::string> kCommonKeys{"name", "hosts", "start", "job", "weight", "urgency", "env"};
const std::vector<std::string> kTrainKeys{"model", "epochs", "steps", "batch", "examples", "all_reduce"};
const std::vector<std::string> kTraceKeys{"trace", "source",     "id",   "queue", "gpus_per_host",
                                          "scale", "iterations", "gbps", "duty",  "compute_ms"};

std::vector<std::string> together(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

std::vector<int> read_hosts(const Table& job) {
  const std::string allowed =
      fmt::format("allowed: a number from 2 to {} for the first so many, or a list of different hosts as [0, 2]",
                  fabric::kMaxHosts);
  const toml::value* value = job.find("hosts");
  if (value == nullptr) job.wrong("hosts", "is missing; " + allowed);
  std::vector<int> hosts;
  if (value->is_integer()) {
    const auto first = job.whole("hosts", 2, fabric::kMaxHosts);
    for (int host = 0; host < static_cast<int>(*first); ++host) hosts.push_back(host);
    return hosts;
  }
  if (!value->is_array()) job.wrong("hosts", allowed);
  std::set<long long> seen;
  for (const toml::value& one : value->as_array()) {
    const long long host = one.is_integer() ? one.as_integer() : -1;
    if (host < 0 || host >= fabric::kMaxHosts || !seen.insert(host).second) job.wrong("hosts", allowed);
    hosts.push_back(static_cast<int>(host));
  }
  if (hosts.size() < 2) job.wrong("hosts", allowed);
  return hosts;
}

Training read_training(const Table& job) {
  job.allow(together(kCommonKeys, kTrainKeys));
  Training training;
  training.model = *job.one_of("model", trainer::model_names());
  training.epochs = job.count("epochs", trainer::kEpochs.most);
  training.steps = job.count("steps");
  if (training.epochs && training.steps) job.wrong("steps", "says how long the job trains, as epochs does; give one");
  training.batch = job.count("batch", trainer::kBatch.most);
  if (const auto examples = job.whole("examples", trainer::kExamples.least, trainer::kExamples.most))
    training.examples = static_cast<std::size_t>(*examples);
  training.all_reduce = job.one_of("all_reduce", {"ring", "all-to-all"}).value_or("ring");
  return training;
}

std::optional<Queue> read_queue(const Table& job) {
  if (!job.has("queue")) {
    for (const char* key : {"gpus_per_host", "scale"}) {
      if (job.has(key)) job.wrong(key, "is for a queue of Muri's jobs; allowed: with queue");
    }
    return std::nullopt;
  }
  for (const char* key : {"id", "iterations"}) {
    if (job.has(key)) job.wrong(key, "is for one job of Muri; allowed with queue: gpus_per_host, scale, gbps");
  }
  Queue queue;
  queue.jobs = static_cast<std::size_t>(*job.whole("queue", 1, kMostQueued));
  queue.gpus_per_host = static_cast<std::size_t>(job.whole("gpus_per_host", 1, 1024).value_or(8));
  queue.scale = job.number("scale", 1, 1e12).value_or(queue.scale);
  return queue;
}

// Its jobs are placed on ports, which are the first hosts; and each has a number of its own.
void check_queue(const Table& job, const std::vector<int>& hosts) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i] != static_cast<int>(i)) job.wrong("hosts", "of a queue allowed: a number, for the first so many");
  }
  (void)job.whole("job", 1, 2'000'000);
  const toml::value* env = job.find("env");
  if (env != nullptr && env->is_table() && env->as_table().contains("CLUSTAR_JOB")) {
    job.wrong("env", "CLUSTAR_JOB follows from job for a queue; allowed: job");
  }
}

Traffic read_traffic(const Table& job, const std::string& folder) {
  job.allow(together(kCommonKeys, kTraceKeys));
  Traffic traffic;
  traffic.path = *job.text("trace");
  if (!std::filesystem::path(traffic.path).is_absolute()) {
    traffic.path = (std::filesystem::path(folder) / traffic.path).string();
  }
  const auto source = job.one_of("source", {"aicb", "muri"});
  if (!source) job.wrong("source", "is missing; allowed: aicb, muri: whose format the trace has");
  traffic.source = *source;
  traffic.iterations = job.count("iterations").value_or(traffic.iterations);
  traffic.gbps = job.number("gbps", 0.001, 10000).value_or(traffic.gbps);
  traffic.id = job.text("id");
  traffic.duty = job.number("duty", 0.001, 1);
  traffic.compute_ms = job.number("compute_ms", 0, 1e9);
  const bool muri = traffic.source == "muri";
  if (!muri && job.has("queue")) job.wrong("queue", "is for source = \"muri\"; a file of AICB is one job");
  traffic.queue = read_queue(job);
  if (muri && !traffic.id && !traffic.queue) {
    job.wrong("id",
              "is missing; allowed: the job_id of a line of the trace, as \"12\", or queue = N for its first N jobs");
  }
  if (!muri && traffic.id) job.wrong("id", "is for source = \"muri\"; a file of AICB is one job");
  for (const char* key : {"duty", "compute_ms"}) {
    if (muri && job.has(key)) job.wrong(key, "is for source = \"aicb\"; a trace of Muri says how long a job computes");
  }
  if (traffic.duty && traffic.compute_ms) job.wrong("compute_ms", "says how long it computes, as duty does; give one");
  if (job.has("urgency")) {
    job.wrong("urgency", "is for jobs that train: a trace has neither communicators nor functions; allowed: weight");
  }
  return traffic;
}

void set(const Table& job, const std::string& key, const char* variable, const std::string& value, Settings& into) {
  if (!into.emplace(variable, value).second) job.wrong(key, fmt::format("sets {}, which env sets too", variable));
}

Settings read_settings(const Table& job, const std::string& where, std::size_t number) {
  Settings settings;
  if (const toml::value* env = job.find("env")) {
    const Table table(*env, where + ": env");
    for (const auto& [name, value] : env->as_table()) {
      if (const auto ok = parse_settings(name + "="); !ok) {
        throw WrongJob(value, fmt::format("{}: env: '{}' is no variable's name", where, name));
      }
      settings[name] = *table.text(name);
    }
  }
  if (const auto value = job.whole("job", 0, 2147483647)) {
    set(job, "job", "CLUSTAR_JOB", std::to_string(*value), settings);
  }
  if (const auto value = job.whole("weight", 1, 1000)) {
    set(job, "weight", "CLUSTAR_JOB_WEIGHT", std::to_string(*value), settings);
  }
  if (const auto value = job.text("urgency")) set(job, "urgency", "CLUSTAR_SEND_URGENCY", *value, settings);
  settings.emplace("CLUSTAR_JOB", std::to_string(number));
  return settings;
}

JobSpec read_job(const toml::value& value, std::size_t number, const std::string& folder) {
  const std::string nth = fmt::format("job {}", number);
  const Table unnamed(value, nth);
  JobSpec spec;
  spec.name = unnamed.text("name").value_or("");
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  if (spec.name.empty() || spec.name.size() > 32 || !std::all_of(spec.name.begin(), spec.name.end(), fits)) {
    unnamed.wrong("name", "allowed: 1 to 32 of a-z A-Z 0-9 - _ .");
  }
  const std::string where = fmt::format("job '{}'", spec.name);
  const Table job(value, where);
  if (job.has("model") == job.has("trace")) {
    if (!job.has("model")) job.allow(together(kCommonKeys, together(kTrainKeys, kTraceKeys)));
    throw WrongJob(value, where + ": allowed: model, which it trains, or trace, whose traffic it plays; one of them");
  }
  if (job.has("model")) {
    spec.work = read_training(job);
  } else {
    spec.work = read_traffic(job, folder);
  }
  spec.hosts = read_hosts(job);
  if (spec.is_queue()) check_queue(job, spec.hosts);
  spec.start_s = job.number("start", 0, kMostStartS).value_or(0);
  spec.settings = read_settings(job, where, number);
  return spec;
}

std::optional<std::uint64_t> number_of(const JobSpec& job) {
  const std::string& text = job.settings.at("CLUSTAR_JOB");
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Jobs of a number would take their turns as one.
void check_numbers(const std::vector<JobSpec>& jobs, const toml::value& list) {
  for (const JobSpec& queue : jobs) {
    if (!queue.is_queue()) continue;
    const std::uint64_t own = number_of(queue).value_or(0), first = own * kJobsOfAQueue + 1;
    const std::uint64_t last = own * kJobsOfAQueue + std::get<Traffic>(queue.work).queue->jobs;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const auto number = number_of(jobs[i]);
      if (&jobs[i] == &queue || !number) continue;
      if (jobs[i].is_queue() ? *number != own : *number < first || *number > last) continue;
      throw WrongJob(list.as_array().at(i),
                     fmt::format("job '{}': CLUSTAR_JOB {} is taken by queue '{}', whose jobs have {} to {}; "
                                 "allowed: another job = N",
                                 jobs[i].name, *number, queue.name, first, last));
    }
  }
}

std::vector<JobSpec> read_all(const toml::value& document, const std::string& folder) {
  const Table file(document, "the file");
  file.allow({"jobs"});
  const toml::value* list = file.find("jobs");
  const bool tables = list != nullptr && list->is_array();
  const auto wrong_number = [&] {
    return WrongJob(list == nullptr ? document : *list,
                    fmt::format("jobs: allowed: 2 to {} of [[jobs]], or one that is a queue", kMostJobs));
  };
  if (!tables || list->as_array().empty() || list->as_array().size() > kMostJobs) throw wrong_number();
  std::vector<JobSpec> jobs;
  std::set<std::string> names;
  double first = kMostStartS;
  for (const toml::value& one : list->as_array()) {
    jobs.push_back(read_job(one, jobs.size() + 1, folder));
    if (!names.insert(jobs.back().name).second) {
      throw WrongJob(one,
                     fmt::format("job '{}': name: another job has it; allowed: one that differs", jobs.back().name));
    }
    first = std::min(first, jobs.back().start_s);
  }
  if (jobs.size() == 1 && !jobs[0].is_queue()) throw wrong_number();
  check_numbers(jobs, *list);
  for (JobSpec& job : jobs) job.start_s -= first;
  return jobs;
}

}  // namespace

Result<std::vector<JobSpec>> parse_jobs(const std::string& content, const std::string& path) {
  const auto wrong = [&](const std::string& message) { return fail(ErrorCode::kInvalidArgument, message); };
  if (content.size() > kMaxTomlBytes) {
    return wrong(fmt::format("{}: too large for a list of jobs; allowed: {} bytes", path, kMaxTomlBytes));
  }
  if (const auto refused = refuse_toml(content, "a list of jobs")) {
    return wrong(fmt::format("{}:{}", path, *refused));
  }
  try {
    std::istringstream in(content);
    return read_all(toml::parse(in, path), std::filesystem::path(path).parent_path().string());
  } catch (const WrongJob& error) {
    return wrong(fmt::format("{}:{}", path, error.what()));
  } catch (const std::exception& error) {
    return wrong(fmt::format("{}: {}", path, error.what()));
  }
}

Result<std::string> read_jobs_text(const std::string& path) { return clustar::read_toml_text(path); }

int hosts_of(const std::vector<JobSpec>& jobs) {
  int most = 0;
  for (const JobSpec& job : jobs) {
    for (const int host : job.hosts) most = std::max(most, host + 1);
  }
  return most;
}

}  // namespace clustar::bench::ab::jobs
