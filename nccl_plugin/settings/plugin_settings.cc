#include "nccl_plugin/settings/plugin_settings.h"

namespace clustar {

const TypedTable<PluginSettings>& PluginSettings::table() {
  using S = PluginSettings;
  static const TypedTable<S> all({
      setting::make_choice("tuner", &S::tuner, {"on", "off"})
          .shared()
          .help("`on`: the tuner steers collectives that opted in to ring and Simple; `off`: it only forbids LL128 "
                "where the transport cannot carry it"),
      setting::make_choice("identity", &S::identity, {"auto", "on", "off"})
          .help(
              "whether each message brings with it which collective it is of, for the reports of `clustar.h` "
              "([loss.md](loss.md)): `auto` where the transport may lose (`mlt`, whose packets carry it in any case), "
              "`on` over `tcp` and `verbs`, too, where it costs `verbs` a work request per message"),
      setting::make_text("send_urgency", &S::send_urgency,
                         "rules joined by ';': [comm=NAME,][func=FUNCTION,]blocking | prefetch | gradient | background")
          .otherwise("sends `blocking`, all-gathers `prefetch`, the rest `gradient`")
          .help("with `CLUSTAR_SEND_ORDER=coflow`: how badly the job waits for a message, by the communicator's name "
                "(with `*` and `?`) and NCCL's function; the first rule that fits counts: "
                "`comm=tp*,blocking; func=broadcast,background`. One word makes all of a job alike: `background` "
                "([scheduling.md](scheduling.md))"),
      setting::make_text("chain_profiler", &S::chain_profiler, "a path or name of a profiler library, as NCCL takes it")
          .otherwise("none")
          .help("profiler library that gets all of NCCL's events, too: a path, or a name as `NCCL_PROFILER_PLUGIN` "
                "takes it"),
  });
  return all;
}

}  // namespace clustar
