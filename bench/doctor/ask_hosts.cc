#include "bench/doctor/ask_hosts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "bench/doctor/child.h"

namespace clustar::bench::doctor {
namespace {

using nlohmann::json;

constexpr int kMostLevels = 32;  // of a report's values: each takes stack where it is written

std::vector<std::string> words_for(const std::string& host, const std::string& launch,
                                   const std::vector<std::string>& command) {
  constexpr std::string_view kHost = "{host}";
  std::vector<std::string> words;
  std::istringstream in(launch);
  for (std::string word; in >> word;) {
    for (std::size_t at = 0; (at = word.find(kHost, at)) != std::string::npos; at += host.size()) {
      word.replace(at, kHost.size(), host);
    }
    words.push_back(word);
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

HostReport report_of(const std::string& host, const Child::Ended& ended) {
  // What a login shell prints may stand before it, in braces, too; the report's own first line is one alone.
  const std::size_t line = ended.answer.rfind("\n{\n");
  const std::size_t begin = line == std::string::npos ? ended.answer.find('{') : line + 1;
  HostReport report = host_report(begin == std::string::npos ? "" : ended.answer.substr(begin), host);
  report.host = host;  // as the user called it
  // Its exit status is 1 where a check failed.
  if (report.failure.empty()) return report;
  const std::string said = last_line(ended.errors);
  report.failure = fmt::format("no report: {}{}{}", ended.why.empty() ? "it said nothing of use" : ended.why,
                               said.empty() ? "" : ": ", said);
  return report;
}

}  // namespace

HostReport host_report(const std::string& text, const std::string& from) {
  bool deep = false;
  const auto shallow = [&](int depth, json::parse_event_t, const json&) {
    deep = deep || depth > kMostLevels;
    return !deep;
  };
  try {
    const json document = json::parse(text, shallow);
    const json& results = document.at("results");
    if (!deep && document.at("command") == "doctor nccl") {
      return {.host = results.at("host").get<std::string>(), .json = results.dump()};
    }
  } catch (const json::exception&) {
    // Told below.
  }
  return {.host = from, .failure = from + " is no report of one host by `clustar doctor nccl --json`"};
}

std::vector<HostReport> ask_hosts(const std::vector<std::string>& hosts, const std::string& launch,
                                  const std::vector<std::string>& command, std::chrono::seconds limit) {
  std::vector<Result<Child>> children;
  for (const std::string& host : hosts) children.push_back(Child::start(words_for(host, launch, command)));
  const auto until = std::chrono::steady_clock::now() + limit;
  std::vector<HostReport> reports;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (!children[i]) {
      reports.push_back({.host = hosts[i], .failure = children[i].error().message});
      continue;
    }
    reports.push_back(report_of(hosts[i], children[i]->wait(until)));
  }
  return reports;
}

}  // namespace clustar::bench::doctor
