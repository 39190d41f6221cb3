#include "gdr/settings.h"

namespace clustar {

const TypedTable<GdrSettings>& GdrSettings::table() {
  using S = GdrSettings;
  static const TypedTable<S> all({
      setting::make_choice("gdr", &S::gdr, {"auto", "off", "staged"})
          .help("GPU memory is offered to NCCL: `auto` where the NIC reaches it, `off` never, `staged` also where it "
                "does not, by copies through pinned host memory, for comparisons; NCCL then needs "
                "`NCCL_NET_GDR_LEVEL=SYS` ([gdr.md](gdr.md))"),
      setting::make_switch("gdr_emulate", &S::emulate)
          .help("1: for tests without a GPU, host memory plays GPU memory; never with real GPU memory. A warning in "
                "the log says so"),
  });
  return all;
}

}  // namespace clustar
