#include "bench/fabric/owner.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/fabric/state.h"

namespace clustar::bench::fabric {
namespace {

std::string name_of(uid_t uid) {
  const passwd* entry = getpwuid(uid);
  return entry != nullptr ? entry->pw_name : fmt::format("user {}", uid);
}

}  // namespace

Owner caller() {
  uid_t uid = getuid();
  // Only root may claim to act for another.
  if (const char* asked = std::getenv("SUDO_UID"); asked != nullptr && uid == 0) {
    const char* const end = asked + std::strlen(asked);
    uid_t value = 0;
    const auto [rest, error] = std::from_chars(asked, end, value);
    if (error == std::errc() && rest == end && rest != asked) uid = value;
  }
  return {uid, name_of(uid)};
}

nlohmann::json to_json(const Owner& owner) { return {{"uid", owner.uid}, {"name", owner.name}}; }

std::optional<Owner> owner_from_json(const nlohmann::json& state) {
  const auto found = state.is_object() ? state.find("owner") : state.end();
  if (!state.is_object() || found == state.end() || !found->is_object()) return std::nullopt;
  const auto uid = found->find("uid");
  if (uid == found->end() || !uid->is_number_unsigned()) return std::nullopt;
  const auto name = found->find("name");
  const bool named = name != found->end() && name->is_string();
  return Owner{uid->get<uid_t>(), named ? name->get<std::string>() : name_of(uid->get<uid_t>())};
}

std::optional<Owner> owner_of(const std::string& fabric) {
  std::ifstream in(state_path(fabric));
  return in ? owner_from_json(nlohmann::json::parse(in, nullptr, false)) : std::nullopt;
}

Result<void> check_owner(const std::string& fabric) {
  const auto owner = owner_of(fabric);
  if (!owner || owner->uid == caller().uid) return {};
  return fail(ErrorCode::kInvalidUsage,
              fmt::format("the fabric '{}' is {}'s, and you are {}; choose another --name, or take it with --force",
                          fabric, owner->name, caller().name));
}

}  // namespace clustar::bench::fabric
