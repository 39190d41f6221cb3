#include "libfabric_shim/provider/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libfabric_shim/provider/provider.h"
#include "mlt/driver/settings.h"
#include "nccl_plugin/settings/all_settings.h"
#include "transport/api/settings.h"
#include "transport/base/environment.h"
#include "transport/base/nearest.h"
#include "transport/transport_tables.h"

namespace clustar::libfabric_shim::provider {
namespace {

// In a table of ours the provider's names begin so, since all tables share one room of names.
constexpr std::string_view kOwn = "fi_";
constexpr std::string_view kVariable = "FI_CLUSTAR_";

Config::Tables tables() {
  static const std::vector<const SettingTable*> all = [] {
    const Config::Tables ours = all_settings();
    std::vector<const SettingTable*> made(ours.begin(), ours.end());
    made.push_back(&ProviderSettings::table());
    return made;
  }();
  return all;
}

// libfabric's name of a setting, which it reads as FI_CLUSTAR_ and upper case.
std::string parameter(const std::string& name) { return name.starts_with(kOwn) ? name.substr(kOwn.size()) : name; }

std::string parameter_variable(const SettingInfo& info) {
  constexpr std::string_view kOurs = "CLUSTAR_";
  const std::size_t front = kOurs.size() + (info.name.starts_with(kOwn) ? kOwn.size() : 0);
  return std::string(kVariable) + info.variable().substr(front);
}

template <class Each>
void for_all(Each each) {
  for (const SettingTable* table : tables()) {
    for (std::size_t i = 0; i < table->size(); ++i) each(*table, i);
  }
}

using Texts = std::map<std::string, std::string>;

// libfabric ignores what no provider declared, so a mistyped name would count for nothing in silence.
Result<void> refuse_unknown(const Texts& environment) {
  std::vector<std::string> known;
  for_all([&](const SettingTable& table, std::size_t i) { known.push_back(parameter_variable(table.info(i))); });
  for (const auto& [name, text] : environment) {
    if (!name.starts_with(kVariable) || std::ranges::find(known, name) != known.end()) continue;
    const std::string meant = did_you_mean(name, known);
    return fail(ErrorCode::kInvalidArgument, fmt::format("unknown setting {}{} 'fi_info -e' lists all", name,
                                                         meant.empty() ? std::string(";") : meant));
  }
  return {};
}

// What libfabric was told, by our own names of it.
Result<Texts> told_to_libfabric() {
  Texts said;
  std::string wrong;
  for_all([&](const SettingTable& table, std::size_t i) {
    const SettingInfo& info = table.info(i);
    char* text = nullptr;
    if (fi_param_get_str(&provider(), parameter(info.name).c_str(), &text) != 0 || text == nullptr) return;
    said[info.variable()] = text;
    if (wrong.empty() && !table.allows(i, text)) {
      wrong = fmt::format("{} = '{}' is not allowed: {}", parameter_variable(info), text, info.allowed);
    }
  });
  if (!wrong.empty()) return fail(ErrorCode::kInvalidArgument, wrong);
  return said;
}

}  // namespace

const TypedTable<ProviderSettings>& ProviderSettings::table() {
  using S = ProviderSettings;
  static const TypedTable<S> all({
      setting::make_bytes("fi_eager_bytes", &S::eager_bytes, 0, 1 << 20)
          .help("longest message that is copied and goes ahead of its receive; longer ones wait for it"),
      setting::make_bytes("fi_unexpected_bytes", &S::unexpected_bytes, 64 << 10, 2u << 30)
          .help("memory of an endpoint's unexpected messages; beyond it nothing is taken from the network"),
      setting::make_seconds("fi_connect_timeout", &S::connect_timeout, 3600)
          .help("seconds after which a peer that does not answer is an error"),
      setting::make_seconds("fi_close_timeout", &S::close_timeout, 3600)
          .help("seconds that fi_close waits until what was sent has left"),
  });
  return all;
}

void declare_settings() {
  for_all([](const SettingTable& table, std::size_t i) {
    const SettingInfo& info = table.info(i);
    const std::string help = info.help.empty() ? info.allowed : info.help + " (" + info.allowed + ")";
    fi_param_define(&provider(), parameter(info.name).c_str(), FI_PARAM_STRING, "%s", help.c_str());
  });
}

Result<Config> load_settings() {
  Texts environment = environment_that_may_mean_us();
  if (const auto known = refuse_unknown(environment); !known) return tl::unexpected(known.error());
  auto said = told_to_libfabric();
  if (!said) return tl::unexpected(said.error());
  // What libfabric was told goes before the environment, in which it may be set, too.
  said->merge(environment);
  auto config = Config::load_from(tables(), *said);
  if (!config) return config;
  // Before anything is opened: those would ask libfabric for providers, and so this one.
  if (config->get<MltSettings>().io == "ofi") {
    return fail(ErrorCode::kInvalidArgument,
                "packets of 'ofi' would be libfabric over libfabric; choose another FI_CLUSTAR_IO, as udp");
  }
  const auto& transport = config->get<TransportSettings>();
  if (transport.transport == "ofi" || std::ranges::find(transport.require, "ofi") != transport.require.end()) {
    return fail(
        ErrorCode::kInvalidArgument,
        "the transport 'ofi' would be libfabric over libfabric; FI_CLUSTAR_TRANSPORT may be auto, tcp, verbs or mlt");
  }
  if (const auto sound = transport::check(*config); !sound) return tl::unexpected(sound.error());
  return config;
}

}  // namespace clustar::libfabric_shim::provider
