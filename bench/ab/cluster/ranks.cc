#include "bench/ab/cluster/ranks.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "bench/ab/cluster/program.h"
#include "bench/trainer/record.h"

namespace clustar::bench::ab::cluster {
namespace {

using nlohmann::json;

constexpr std::size_t kShownLines = 12;

struct Reports {
  json results;
  json places = json::array();
  std::optional<Error> error;
  int rank = -1;  // whose error it is

  // A rank that lost its peer only passes on what happened to another.
  void take_error(const json& record) {
    Error found;
    if (!trainer::from_record(record, found)) return;
    if (error && (error->code != ErrorCode::kRemote || found.code == ErrorCode::kRemote)) return;
    error = std::move(found);
    rank = record.value("rank", -1);
  }
  // Whether it is a record at all.
  bool take(const std::string& line, const std::function<void(const json&)>& on_record) {
    const json record = json::parse(line, nullptr, false);
    if (!record.is_object()) return false;
    take_error(record);
    if (record.contains("results")) results = record["results"];
    if (record.contains("place")) places.push_back(record["place"]);
    if (on_record) on_record(record);
    return true;
  }
};

std::string last_lines(const std::string& text) {
  std::size_t from = text.size();
  for (std::size_t line = 0; line <= kShownLines && from > 0; ++line) {
    from = text.rfind('\n', from - 1);
    if (from == std::string::npos) return text;
  }
  return text.substr(from + 1);
}

std::string with_help(const Spec& spec, const std::string& what, const std::string& said) {
  std::string text = what;
  if (!said.empty()) text += "; its last words:\n" + last_lines(said);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (const std::string help = remedy(spec.starter, said); !help.empty()) text += "\nWhat to do: " + help;
  return text;
}

// Of a run without results.
Error error_of(const Spec& spec, const ProgramEnd& end, const Reports& reports, std::chrono::seconds limit) {
  const std::string name = to_string(spec.starter);
  if (end.interrupted != 0) {
    return {ErrorCode::kSystem, fmt::format("interrupted by signal {} ({}); {} and its ranks were ended",
                                            end.interrupted, strsignal(end.interrupted), name)};
  }
  if (end.over_time) {
    return {ErrorCode::kRemote, with_help(spec,
                                          fmt::format("not done within {} s (--time-limit); {} and its ranks were "
                                                      "ended",
                                                      limit.count(), name),
                                          end.last_words)};
  }
  if (reports.error) {
    return {reports.error->code, fmt::format("rank {} failed: {}", reports.rank, reports.error->message)};
  }
  const std::string how = end.signal != 0
                              ? fmt::format("{} was ended by signal {} ({})", name, end.signal, strsignal(end.signal))
                              : fmt::format("{} ended with exit status {}", name, end.status);
  return {ErrorCode::kRemote,
          with_help(spec, end.status == 0 && end.signal == 0 ? how + ", and rank 0 reported no results" : how,
                    end.last_words)};
}

}  // namespace

std::vector<std::string> command_of(const Spec& spec, const Training& training) {
  std::vector<std::string> names;
  for (const auto& [name, value] : training.environment) names.push_back(name);
  std::vector<std::string> words = words_of(spec, training.ranks, names, training.port);
  // 1: standard output.
  words.insert(words.end(),
               {training.program, "train", "--launcher", "env", "--root", training.root, "--report-fd", "1"});
  words.insert(words.end(), training.arguments.begin(), training.arguments.end());
  return words;
}

Result<json> train(const Spec& spec, const Training& training) {
  Reports reports;
  ProgramOptions options;
  options.words = command_of(spec, training);
  options.environment = training.environment;
  options.on_line = [&](const std::string& line) { return reports.take(line, training.on_record); };
  options.limit = training.limit;
  options.interrupted = training.interrupted;
  const auto end = run_program(options);
  if (!end) return tl::unexpected(end.error());
  if (end->interrupted != 0 || end->over_time || end->status != 0 || end->signal != 0 || reports.results.is_null()) {
    return tl::unexpected(error_of(spec, *end, reports, training.limit));
  }
  std::sort(reports.places.begin(), reports.places.end(),
            [](const json& a, const json& b) { return a.value("rank", 0) < b.value("rank", 0); });
  reports.results["hosts"] = std::move(reports.places);
  return std::move(reports.results);
}

std::size_t count_places(const json& hosts) {
  std::set<std::pair<std::string, std::uint64_t>> places;
  for (const json& one : hosts) places.emplace(one.value("host", ""), one.value("network", std::uint64_t{0}));
  return places.size();
}

}  // namespace clustar::bench::ab::cluster
