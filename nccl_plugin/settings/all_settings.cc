#include "nccl_plugin/settings/all_settings.h"

#include <vector>

#include "nccl_plugin/loss/settings.h"
#include "nccl_plugin/settings/plugin_settings.h"
#include "transport/transport_tables.h"

namespace clustar {
namespace {

Result<Config> checked(Result<Config> config) {
  if (!config) return config;
  if (const auto sound = transport::check(*config); !sound) return tl::unexpected(sound.error());
  return config;
}

}  // namespace

Config::Tables all_settings() {
  static const std::vector<const SettingTable*> all = [] {
    const Config::Tables transports = transport::setting_tables();
    std::vector<const SettingTable*> tables(transports.begin(), transports.end());
    tables.push_back(&LossSettings::table());
    tables.push_back(&PluginSettings::table());
    return tables;
  }();
  return all;
}

Result<Config> load_settings() { return checked(Config::load(all_settings())); }

Result<Config> load_settings(const std::map<std::string, std::string>& environment) {
  return checked(Config::load_from(all_settings(), environment));
}

}  // namespace clustar
