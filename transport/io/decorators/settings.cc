#include "transport/io/decorators/settings.h"

namespace clustar {

const TypedTable<FaultSettings>& FaultSettings::table() {
  using S = FaultSettings;
  static const TypedTable<S> all({
      setting::make_text("inject_faults", &S::inject, "faults such as loss=0.01")
          .otherwise("none")
          .help("for experiments, `mlt` only, an error with any other transport: packets that this process sends are "
                "lost or disturbed on purpose, e.g. `loss=0.01`, `burst=0.001/0.2/0.8`, `delay=100us` "
                "([grammar](../transport/io/decorators/fault_spec.h)); a warning in the log says so, the summary "
                "counts. Needs `libclustar-faults.so` beside the plugin"),
  });
  return all;
}

}  // namespace clustar
