#include "bench/fabric/topology_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <toml.hpp>
#include <utility>
#include <vector>

#include "bench/fabric/places.h"
#include "bench/fabric/switch/rules_text.h"
#include "transport/base/toml_scan.h"

namespace clustar::bench::fabric {
namespace {

// Carries "LINE: message" out of the parser; never leaves this file.
class Wrong : public std::runtime_error {
 public:
  Wrong(const toml::value& where, const std::string& message)
      : std::runtime_error(fmt::format("{}: {}", where.location().line(), message)) {}
};

void allow_keys(const toml::value& table, const std::string& where, const std::vector<std::string>& allowed) {
  if (!table.is_table()) throw Wrong(table, fmt::format("{}: must be a table", where));
  for (const auto& [key, value] : table.as_table()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    throw Wrong(value, fmt::format("{}: unknown key '{}'; allowed: {}", where, key, fmt::join(allowed, ", ")));
  }
}

const toml::value* find(const toml::value& table, const std::string& key) {
  const auto found = table.as_table().find(key);
  return found == table.as_table().end() ? nullptr : &found->second;
}

long long integer(const toml::value& value, const std::string& key, long long low, long long high) {
  if (value.is_integer() && value.as_integer() >= low && value.as_integer() <= high) return value.as_integer();
  throw Wrong(value, fmt::format("{}: allowed: {} to {}", key, low, high));
}

// Quantities are strings with a unit ("200M", "50us") or plain numbers.
template <class Parse>
std::uint64_t quantity(const toml::value& value, const std::string& key, const Parse& parse) {
  std::string text;
  if (value.is_string()) text = value.as_string().str;
  if (value.is_integer()) text = std::to_string(value.as_integer());
  const auto parsed = parse(text);
  if (!parsed) throw Wrong(value, fmt::format("{}: {}", key, parsed.error().message));
  return *parsed;
}

std::vector<std::string> names(const toml::value& value, const std::string& key, std::size_t count) {
  std::vector<std::string> list;
  bool ok = value.is_array();
  if (ok) {
    for (const toml::value& one : value.as_array()) {
      ok = ok && one.is_string();
      if (ok) list.push_back(one.as_string().str);
    }
  }
  if (ok && (count == 0 || list.size() == count)) return list;
  throw Wrong(value, fmt::format("{}: must be a list of {}names, as [\"h0\", \"leaf0\"]", key,
                                 count == 0 ? "" : fmt::format("{} ", count)));
}

void read_properties(const toml::value& table, LinkSpec& link) {
  if (const auto* rate = find(table, "rate")) {
    link.rate_bps = quantity(*rate, "rate", parse_rate);
    // A default buffer belongs to the default rate; "off" has none.
    link.buffer_bytes = 0;
  }
  if (const auto* buffer = find(table, "buffer")) link.buffer_bytes = quantity(*buffer, "buffer", parse_size);
  if (const auto* mtu = find(table, "mtu")) link.mtu = static_cast<int>(integer(*mtu, "mtu", kMinMtu, kMaxMtu));
  if (const auto* delay = find(table, "delay")) link.delay_ns = quantity(*delay, "delay", parse_delay);
}

// "1%" or a list of such texts.
std::vector<std::string> texts(const toml::value& value, const std::string& key) {
  if (value.is_string()) return {value.as_string().str};
  return names(value, key, 0);
}

std::string text(const toml::value& value, const std::string& key) {
  if (value.is_string()) return value.as_string().str;
  if (value.is_boolean() && key == "dead") return value.as_boolean() ? "on" : "off";
  throw Wrong(value,
              fmt::format("{}: must be a text, as on the command line: --{} TEXT is {} = \"TEXT\"", key, key, key));
}

// A table of [[rules]], applied as `clustar fabric set` would.
void read_rules(const toml::value& table, FabricSpec& spec) {
  allow_keys(table, "rules",
             {"at", "loss", "loss-model", "bursts", "dead", "direction", "ecn", "drop-above", "trim", "seed"});
  RuleTexts rules;
  const std::pair<const char*, std::optional<std::string>&> single[] = {{"loss", rules.loss},
                                                                        {"loss-model", rules.loss_model},
                                                                        {"bursts", rules.bursts},
                                                                        {"dead", rules.dead},
                                                                        {"trim", rules.trim}};
  for (const auto& [key, into] : single) {
    if (const auto* value = find(table, key)) into = text(*value, key);
  }
  if (const auto* value = find(table, "direction")) rules.direction = text(*value, "direction");
  if (const auto* value = find(table, "ecn")) rules.marking = texts(*value, "ecn");
  if (const auto* value = find(table, "drop-above")) rules.drop_above = texts(*value, "drop-above");
  if (const auto* value = find(table, "seed")) {
    rules.seed = static_cast<std::uint64_t>(integer(*value, "seed", 0, std::numeric_limits<long long>::max()));
  }
  const auto* at = find(table, "at");
  const auto done =
      edit_rules(spec, at == nullptr ? "" : text(*at, "at"), [&](PortRules& port) { return apply(rules, port); });
  if (!done) throw Wrong(table, "rules: " + done.error().message);
}

FabricSpec read_document(const toml::value& document, const std::string& name) {
  allow_keys(document, "the file", {"hosts", "switches", "defaults", "links", "rules", "delay-by"});
  for (const char* needed : {"hosts", "switches", "links"}) {
    if (find(document, needed) == nullptr) throw Wrong(document, fmt::format("'{}' is missing", needed));
  }
  FabricSpec spec;
  spec.name = name;
  spec.hosts = static_cast<int>(integer(*find(document, "hosts"), "hosts", kMinHosts, kMaxHosts));
  spec.switches = names(*find(document, "switches"), "switches", 0);
  LinkSpec usual;
  usual.rate_bps = FabricSpec().rate_bps;
  if (const auto* defaults = find(document, "defaults")) {
    allow_keys(*defaults, "defaults", {"rate", "buffer", "mtu", "delay"});
    read_properties(*defaults, usual);
  }
  if (const auto* by = find(document, "delay-by")) {
    const auto parsed = parse_delay_by(by->is_string() ? by->as_string().str : "");
    if (!parsed) throw Wrong(*by, "delay-by: " + parsed.error().message);
    spec.delay_by = *parsed;
  }
  const toml::value& links = *find(document, "links");
  if (!links.is_array() || links.as_array().empty()) throw Wrong(links, "links: must be [[links]], one for each link");
  for (const toml::value& one : links.as_array()) {
    allow_keys(one, "links", {"between", "rate", "buffer", "mtu", "delay"});
    if (find(one, "between") == nullptr)
      throw Wrong(one, "links: 'between' is missing, as between = [\"h0\", \"leaf0\"]");
    LinkSpec link = usual;
    const auto ends = names(*find(one, "between"), "between", 2);
    link.a = ends[0];
    link.b = ends[1];
    read_properties(one, link);
    spec.links.push_back(link);
    // A link that is wrong by itself is best told with its line; what follows from all of them, without.
    FabricSpec alone;
    alone.rate_bps = link.rate_bps;
    alone.buffer_bytes = link.buffer_bytes;
    alone.mtu = link.mtu;
    if (const auto ok = checked(alone); !ok) {
      throw Wrong(one, fmt::format("link {} - {}: {}", link.a, link.b, ok.error().message));
    }
  }
  return spec;
}

}  // namespace

Result<FabricSpec> parse_topology(const std::string& content, const std::string& path, const std::string& name) {
  const auto wrong = [&](const std::string& message) { return fail(ErrorCode::kInvalidArgument, message); };
  if (content.size() > kMaxTomlBytes) {
    return wrong(fmt::format("{}: too large for a topology; allowed: {} bytes", path, kMaxTomlBytes));
  }
  if (const auto refused = refuse_toml(content, "a topology")) return wrong(fmt::format("{}:{}", path, *refused));
  try {
    std::istringstream in(content);
    const toml::value document = toml::parse(in, path);
    auto spec = checked(read_document(document, name));
    const toml::value* rules = find(document, "rules");
    if (spec && rules != nullptr) {
      if (!rules->is_array()) throw Wrong(*rules, "rules: must be [[rules]], one for each place");
      for (const toml::value& one : rules->as_array()) read_rules(one, *spec);
      spec = checked(std::move(*spec));
    }
    if (!spec) return wrong(fmt::format("{}: {}", path, spec.error().message));
    return spec;
  } catch (const Wrong& error) {
    return wrong(fmt::format("{}:{}", path, error.what()));
  } catch (const std::exception& error) {
    return wrong(fmt::format("{}: {}", path, error.what()));
  }
}

Result<FabricSpec> read_topology_file(const std::string& path, const std::string& name) {
  const auto content = read_toml_text(path);
  if (!content) return tl::unexpected(content.error());
  return parse_topology(*content, path, name);
}

}  // namespace clustar::bench::fabric
