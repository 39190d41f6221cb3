// The subcommands of `clustar`. Each adds itself to `app`; its callback sets `status` to 0 (ok), 1 (failed) or
// 2 (usage). One .cc per command, because CLI11 is slow to compile.
#pragma once

namespace CLI {
class App;
}

namespace clustar::bench::cli {

void add_aggregator(CLI::App& app, int& status);
void add_ab(CLI::App& app, int& status);
void add_coflow(CLI::App& app, int& status);
void add_conform(CLI::App& app, int& status);
void add_coordinator(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_fabric(CLI::App& app, int& status);
void add_perf(CLI::App& app, int& status);
void add_plan(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_settings(CLI::App& app, int& status);
void add_train(CLI::App& app, int& status);

}  // namespace clustar::bench::cli
