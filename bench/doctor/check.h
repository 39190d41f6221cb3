// What a doctor found of one matter. Every doctor's JSON has them as `checks`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace clustar::bench::doctor {

enum class Outcome { kOk, kWarning, kFailed };

struct Check {
  std::string name{};
  Outcome outcome = Outcome::kOk;
  std::string evidence{};  // what was found, as a sentence or less
  std::string fix{};       // what to do; empty where all is well
};

Check ok(std::string name, std::string evidence);
Check warning(std::string name, std::string evidence, std::string fix);
Check failed(std::string name, std::string evidence, std::string fix);

const char* to_string(Outcome outcome);  // "ok", "warning", "failed"

bool any_failed(const std::vector<Check>& checks);

// {pass, warn, fail, checks[] {name, outcome, evidence, fix (null: nothing to do)}}
nlohmann::json to_json(const std::vector<Check>& checks);

// A line for each, with its fix below.
std::string to_text(const std::vector<Check>& checks);
// "1 failed, 2 warnings, 9 ok"
std::string counts(const std::vector<Check>& checks);

}  // namespace clustar::bench::doctor
