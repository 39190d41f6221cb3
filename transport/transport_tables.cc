#include "transport/transport_tables.h"

#include <fmt/format.h>

#include <array>

#include "gdr/settings.h"
#include "libfabric_shim/settings.h"
#include "mlt/compare/settings.h"
#include "mlt/driver/settings.h"
#include "transport/api/settings.h"
#include "transport/io/decorators/settings.h"
#include "transport/io/dpdk/settings.h"
#include "transport/io/packet_ios.h"
#include "transport/io/verbs/settings.h"
#include "transport/net/settings.h"
#include "transport/tcp/settings.h"

namespace clustar::transport {
namespace {

// `of_mlt` is set, and another transport may be chosen.
Result<void> mlt_only(const Config& config, const std::string& of_mlt, const std::string& variable) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}, and the transport is {}; set CLUSTAR_TRANSPORT=mlt or unset {}", of_mlt,
                          config.get<TransportSettings>().transport, variable));
}

}  // namespace

Config::Tables setting_tables() {
  static const std::array<const SettingTable*, 11> all{
      &TransportSettings::table(), &NetworkSettings::table(), &SendOrderSettings::table(), &TcpSettings::table(),
      &IbSettings::table(),        &OfiSettings::table(),     &DpdkSettings::table(),      &MltSettings::table(),
      &GdrSettings::table(),       &FaultSettings::table(),   &CompareSettings::table(),
  };
  return all;
}

bool is_only_mlt(const Config& config) {
  const auto general = config.get<TransportSettings>();
  if (general.transport != "auto") return general.transport == "mlt";
  return !config.get<MltSettings>().psk_file.empty() || general.require == std::vector<std::string>{"mlt"};
}

bool asks_for_something(const Config& config) {
  const auto general = config.get<TransportSettings>();
  return general.transport != "auto" || !general.require.empty() || !config.get<MltSettings>().psk_file.empty() ||
         !config.get<FaultSettings>().inject.empty() || config.get<GdrSettings>().gdr == "staged";
}

std::string ib_disabled_by(const Config& config) {
  return config.source("ib_disable") == "NCCL_IB_DISABLE" ? "NCCL_IB_DISABLE" : "CLUSTAR_IB_DISABLE";
}

Result<void> check(const Config& config) {
  for (const SettingTable* table : setting_tables()) {
    const std::string wrong = table->contradiction(config);
    if (!wrong.empty()) return fail(ErrorCode::kInvalidArgument, wrong);
  }
  const auto mlt = config.get<MltSettings>();
  if (!is_only_mlt(config)) {
    if (!config.get<FaultSettings>().inject.empty()) {
      return mlt_only(config, "inject_faults works with mlt only", "CLUSTAR_INJECT_FAULTS");
    }
    if (config.get<CompareSettings>().static_deadline > Duration::zero()) {
      return mlt_only(config, "static_deadline works with mlt only", "CLUSTAR_STATIC_DEADLINE");
    }
    if (mlt.loss_important_ppm > 0) {
      return mlt_only(config, "loss_important works with mlt only", "CLUSTAR_LOSS_IMPORTANT");
    }
    if (mlt.io != "udp") {
      return mlt_only(config, fmt::format("io={} is what carries mlt's packets", mlt.io), "CLUSTAR_IO");
    }
    if (!config.get<NetworkSettings>().control_interfaces.empty()) {
      return mlt_only(config, "control_ifname is of mlt's connections", "CLUSTAR_CONTROL_IFNAME");
    }
  }
  const PacketIoKind* kind = packet_io_kind(mlt.io);
  if (kind != nullptr && kind->rdma && config.get<IbSettings>().disable) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("io={} needs RDMA NICs, and {} forbids them; set CLUSTAR_IB_DISABLE=0 or unset CLUSTAR_IO",
                            mlt.io, ib_disabled_by(config)));
  }
  if (config.find("psk_mode") != nullptr && mlt.psk_file.empty()) {
    return fail(ErrorCode::kInvalidArgument, "psk_mode protects nothing without psk_file: set CLUSTAR_PSK_FILE, too");
  }
  return {};
}

}  // namespace clustar::transport
