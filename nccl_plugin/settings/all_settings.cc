#include "nccl_plugin/settings/all_settings.h"

#include <vector>

#include "nccl_plugin/collnet/settings.h"
#include "nccl_plugin/loss/policy.h"
#include "nccl_plugin/loss/settings.h"
#include "nccl_plugin/net/urgency_rules.h"
#include "nccl_plugin/settings/plugin_settings.h"
#include "transport/transport_tables.h"

namespace clustar {
namespace {

Result<Config> checked(Result<Config> config) {
  if (!config) return config;
  if (const auto sound = transport::check(*config); !sound) return tl::unexpected(sound.error());
  // Rules are a language of their own, whose errors say which rule it is.
  const auto urgencies = nccl_plugin::UrgencyRules::create(config->get<PluginSettings>().send_urgency);
  if (!urgencies) return tl::unexpected(urgencies.error());
  const auto losses = nccl_plugin::LossPolicy::create(config->get<LossSettings>());
  if (!losses) return tl::unexpected(losses.error());
  return config;
}

}  // namespace

Config::Tables all_settings() {
  static const std::vector<const SettingTable*> all = [] {
    const Config::Tables transports = transport::setting_tables();
    std::vector<const SettingTable*> tables(transports.begin(), transports.end());
    tables.push_back(&LossSettings::table());
    tables.push_back(&PluginSettings::table());
    tables.push_back(&CollNetSettings::table());
    return tables;
  }();
  return all;
}

Result<Config> load_settings() { return checked(Config::load(all_settings())); }

Result<Config> load_settings(const std::map<std::string, std::string>& environment) {
  return checked(Config::load_from(all_settings(), environment));
}

}  // namespace clustar
