#include "mlt/compare/settings.h"

namespace clustar {

const TypedTable<CompareSettings>& CompareSettings::table() {
  using S = CompareSettings;
  static const TypedTable<S> all({
      setting::make_seconds("static_deadline", &S::static_deadline, 3600)
          .help("for comparisons only, `mlt` only, the same on all ranks: a message ends so many seconds after its "
                "first packet, whatever is missing; 0: never. Breaks the loss contract for every message, so replicas "
                "drift apart; a warning in the log says so. Needs `libclustar-compare.so` beside the plugin"),
  });
  return all;
}

}  // namespace clustar
