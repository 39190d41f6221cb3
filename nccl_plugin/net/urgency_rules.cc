#include "nccl_plugin/net/urgency_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/loss_rules.h"

namespace clustar::nccl_plugin {
namespace {

using transport::Urgency;

template <class T>
struct Word {
  std::string_view name;
  T value;
};
constexpr Word<Urgency> kUrgencyWords[] = {{"blocking", Urgency::kBlocking},
                                           {"prefetch", Urgency::kPrefetch},
                                           {"gradient", Urgency::kGradient},
                                           {"background", Urgency::kBackground}};
constexpr Word<int> kFunctions[] = {{"allreduce", nccl_abi::kAllReduce}, {"reducescatter", nccl_abi::kReduceScatter},
                                    {"allgather", nccl_abi::kAllGather}, {"broadcast", nccl_abi::kBroadcast},
                                    {"reduce", nccl_abi::kReduce},       {"sendrecv", nccl_abi::kSendRecv}};
constexpr const char* kAllowed =
    "[comm=NAME,][func=allreduce|reducescatter|allgather|broadcast|reduce|sendrecv,]blocking|prefetch|gradient|"
    "background, rules joined by ';'";

template <class Words>
auto find(const Words& words, std::string_view name) {
  return std::find_if(std::begin(words), std::end(words), [&](const auto& word) { return word.name == name; });
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string_view take(std::optional<std::string_view>& rest, char separator) {
  const std::string_view all = *rest;
  const std::size_t end = all.find(separator);
  rest = end == std::string_view::npos ? std::nullopt : std::optional(all.substr(end + 1));
  return without_blanks(all.substr(0, end));
}

}  // namespace

Urgencies::Urgencies() {
  by_function_.fill(Urgency::kGradient);
  by_function_[nccl_abi::kAllGather] = Urgency::kPrefetch;
  for (const int function : {nccl_abi::kSendRecv, nccl_abi::kSend, nccl_abi::kRecv, nccl_abi::kAlltoAll}) {
    by_function_[static_cast<std::size_t>(function)] = Urgency::kBlocking;
  }
}

Result<UrgencyRules> UrgencyRules::create(std::string_view text) {
  UrgencyRules all;
  if (without_blanks(text).empty()) return all;
  for (std::optional<std::string_view> rules = text; rules;) {
    const std::string_view whole = take(rules, ';');
    const auto bad = [&](const std::string& problem) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("CLUSTAR_SEND_URGENCY: rule {} ('{}'): {}; allowed: {}",
                                                           all.rules_.size() + 1, whole, problem, kAllowed));
    };
    Rule rule;
    bool has_urgency = false;
    for (std::optional<std::string_view> parts = whole; parts;) {
      const std::string_view part = take(parts, ',');
      const std::size_t equals = part.find('=');
      const std::string_view value = equals == std::string_view::npos ? part : without_blanks(part.substr(equals + 1));
      const std::string_view key = equals == std::string_view::npos ? "" : without_blanks(part.substr(0, equals));
      if (key.empty()) {
        const auto* const word = find(kUrgencyWords, value);
        if (word == std::end(kUrgencyWords)) return bad(fmt::format("'{}' is no urgency", value));
        if (std::exchange(has_urgency, true)) return bad("has two urgencies");
        rule.urgency = word->value;
      } else if (key == "comm") {
        if (!std::exchange(rule.any_communicator, false)) return bad("has two names");
        rule.communicator = value;
      } else if (key == "func") {
        const auto* const word = find(kFunctions, value);
        if (word == std::end(kFunctions)) return bad(fmt::format("'{}' is no function", value));
        if (rule.function != -1) return bad("has two functions");
        rule.function = word->value;
      } else {
        return bad(fmt::format("unknown key '{}'", key));
      }
    }
    if (!has_urgency) return bad("has no urgency");
    all.rules_.push_back(std::move(rule));
  }
  return all;
}

Urgencies UrgencyRules::of(const std::string& communicator) const {
  Urgencies urgencies;
  // From the last to the first, which counts.
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (!rule->any_communicator && !glob_matches(rule->communicator, communicator)) continue;
    if (rule->function == -1) {
      urgencies.by_function_.fill(rule->urgency);
      urgencies.unknown_ = rule->urgency;
      continue;
    }
    urgencies.by_function_[static_cast<std::size_t>(rule->function)] = rule->urgency;
    if (rule->function != nccl_abi::kSendRecv) continue;
    for (const int function : {nccl_abi::kSend, nccl_abi::kRecv, nccl_abi::kAlltoAll}) {
      urgencies.by_function_[static_cast<std::size_t>(function)] = rule->urgency;
    }
  }
  return urgencies;
}

}  // namespace clustar::nccl_plugin
