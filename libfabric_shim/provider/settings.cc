#include "libfabric_shim/provider/settings.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libfabric_shim/provider/provider.h"
#include "nccl_plugin/settings/all_settings.h"
#include "transport/api/settings.h"
#include "transport/base/environment.h"
#include "transport/transport_tables.h"

namespace clustar::libfabric_shim::provider {
namespace {

// In a table of ours the provider's names begin so, since all tables share one room of names.
constexpr std::string_view kOwn = "fi_";

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

template <class Each>
void for_all(Each each) {
  for (const SettingTable* table : tables()) {
    for (std::size_t i = 0; i < table->size(); ++i) each(table->info(i));
  }
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
  for_all([](const SettingInfo& info) {
    const std::string help = info.help.empty() ? info.allowed : info.help + " (" + info.allowed + ")";
    fi_param_define(&provider(), parameter(info.name).c_str(), FI_PARAM_STRING, "%s", help.c_str());
  });
}

Result<Config> load_settings() {
  std::map<std::string, std::string> said;
  for_all([&](const SettingInfo& info) {
    char* text = nullptr;
    if (fi_param_get_str(&provider(), parameter(info.name).c_str(), &text) == 0 && text != nullptr) {
      said[info.variable()] = text;
    }
  });
  // What libfabric was told goes before the environment, in which it may be set, too.
  said.merge(environment_that_may_mean_us());
  auto config = Config::load_from(tables(), said);
  if (!config) return config;
  // Before anything is opened: that transport would ask libfabric for providers, and so this one.
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
