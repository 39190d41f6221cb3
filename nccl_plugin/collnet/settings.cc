#include "nccl_plugin/collnet/settings.h"

#include "transport/base/nccl_values.h"

namespace clustar {

const TypedTable<CollNetSettings>& CollNetSettings::table() {
  using S = CollNetSettings;
  constexpr int kDay = 86400;
  static const TypedTable<S> all(
      {
          setting::make_choice("collnet", &S::offered, {"off", "on"})
              .otherwise("`NCCL_COLLNET_ENABLE`, or `off`")
              .help(
                  "`on`: NCCL is offered a collective network (CollNet), which it takes where `NCCL_COLLNET_ENABLE=1` "
                  "or `ncclConfig_t.collnetEnable` says so ([collnet.md](collnet.md))"),
          setting::make_seconds("collnet_stall", &S::stall, kDay)
              .help("how long an operation of the collective network may stand still because a rank comes late, before "
                    "it fails on all; a rank that dies is found at once"),
      },
      {.contradiction = {},
       .nccl = {{"NCCL_COLLNET_ENABLE", "collnet", "a number", nccl_values::yes_or_no("on", "off")}}});
  return all;
}

}  // namespace clustar
