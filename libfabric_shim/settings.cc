#include "libfabric_shim/settings.h"

namespace clustar {

const TypedTable<OfiSettings>& OfiSettings::table() {
  using S = OfiSettings;
  static const TypedTable<S> all({
      setting::make_text("ofi_provider", &S::provider, "a provider's name as `fi_info` shows it")
          .otherwise("the best that is there")
          .help("libfabric's provider, as `efa`, `tcp` or `tcp;ofi_rxm`; unset: the first of `verbs`, `efa`, `cxi`, "
                "`tcp`; with `CLUSTAR_IO=ofi`, whose packets are datagrams, of `verbs`, `udp` "
                "([libfabric.md](libfabric.md))"),
      setting::make_choice("ofi_progress", &S::progress, {"any", "manual", "auto"})
          .help("who moves libfabric's messages: `manual` our calls, `auto` the provider's threads, `any` what the "
                "provider likes better"),
      setting::make_bytes("ofi_eager_bytes", &S::eager_bytes, 0, 64 << 10)
          .help("largest message that may go ahead of its receive; the smaller value of both ends counts"),
      setting::make_bytes("ofi_chunk_bytes", &S::chunk_bytes, 4 << 10, 64 << 20)
          .help("longer messages are cut into messages of this size"),
  });
  return all;
}

}  // namespace clustar
