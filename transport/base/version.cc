#include "transport/base/version.h"

namespace clustar {

std::string version_text() {
  const std::string commit = clustar_commit;
  return commit.empty() ? CLUSTAR_VERSION : CLUSTAR_VERSION " (commit " + commit + ")";
}

}  // namespace clustar
