#include "nccl_plugin/loss/settings.h"

#include <fmt/format.h>

#include <limits>

namespace clustar {
namespace {

constexpr double kMaxTolerance = 0.1;
constexpr const char* kTolerances = "0, or a fraction from 0.000001 to 0.1";

Setting<LossSettings> make_tolerance() {
  return {{"loss_tolerance", kTolerances, {}, {}, false},
          [](LossSettings& settings, const std::string& text) {
            const auto ppm = setting::share_ppm(text, kMaxTolerance);
            if (ppm) settings.tolerance_ppm = *ppm;
            return ppm.has_value();
          },
          [](const LossSettings& settings) { return setting::share_text(settings.tolerance_ppm); }};
}

Setting<LossSettings> make_critical_tolerance() {
  return {{"loss_critical_tolerance", kTolerances, {}, "`CLUSTAR_LOSS_TOLERANCE`", false},
          [](LossSettings& settings, const std::string& text) {
            settings.critical_tolerance_ppm = setting::share_ppm(text, kMaxTolerance);
            return settings.critical_tolerance_ppm.has_value();
          },
          [](const LossSettings& settings) {
            return settings.critical_tolerance_ppm ? setting::share_text(*settings.critical_tolerance_ppm)
                                                   : std::string();
          },
          // Compared between ranks as what counts.
          [](const LossSettings& settings) {
            return setting::share_text(settings.critical_tolerance_ppm.value_or(settings.tolerance_ppm));
          }};
}

Setting<LossSettings> make_critical_drop() {
  return {{"loss_critical_drop", "a fraction above 0 and up to 1", {}, {}, false},
          [](LossSettings& settings, const std::string& text) {
            const auto value = setting::number<double>(text, std::numeric_limits<double>::min(), 1);
            if (value) settings.critical_drop = *value;
            return value.has_value();
          },
          [](const LossSettings& settings) { return fmt::format("{}", settings.critical_drop); }};
}

}  // namespace

const TypedTable<LossSettings>& LossSettings::table() {
  static const TypedTable<LossSettings> all({
      make_tolerance().shared().help(
          "*p*, the fraction of a collective that may stay missing, where nothing more specific is said. It opts in to "
          "nothing: the next two do ([loss.md](loss.md))"),
      setting::make_text("loss_traffic_classes", &LossSettings::traffic_classes, "traffic classes such as 160-167,200")
          .shared()
          .otherwise("none")
          .help("communicators whose `ncclConfig_t.trafficClass` is in one of these ranges opt in, e.g. `160-167,200`"),
      setting::make_text("loss_rules", &LossSettings::rules, "rules such as comm=dp*,bytes=1M-,p=0.01; comm=tp*,p=0")
          .shared()
          .otherwise("none")
          .help("collectives that opt in (sends only by `func=sendrecv`), e.g. "
                "`comm=dp*,ranks=4-64,bytes=1M-,func=allreduce,p=0.01; comm=tp*,p=0`; the first rule that fits counts "
                "([grammar](loss.md))"),
      setting::make_number<LossSettings, std::uint32_t>("loss_warmup", &LossSettings::warmup, 0,
                                                        std::numeric_limits<std::uint32_t>::max())
          .shared()
          .help("all-reduces and reduce-scatters of each communicator, and sends to each rank, that stay reliable at "
                "first"),
      make_critical_tolerance().shared().help("the most that any rule allows while the model is in a critical phase"),
      make_critical_drop().shared().help("relative fall of the reported gradient norm that makes the phase critical"),
      setting::make_switch("loss_trust_profiler", &LossSettings::trust_profiler)
          .shared()
          .help("1: allow loss also with a net API below v11, where NCCL does not confirm what a message is"),
  });
  return all;
}

}  // namespace clustar
