// `clustar doctor`: what keeps this machine from being fast, and how to fix it.
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cli/commands.h"
#include "bench/cli/doctor_command.h"
#include "bench/cli/options.h"
#include "bench/doctor/gdr_report.h"
#include "bench/doctor/probes.h"
#include "bench/report/report.h"
#include "gdr/topology/read_machine.h"

namespace clustar::bench::cli {
namespace {

struct Arguments {
  std::string sysfs;
  bool sysfs_given = false;  // also as an empty text, from a variable that is not set
  std::string procfs;
  std::string json;
  bool all = false;
};

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

int complain(int status, const std::string& message) {
  std::cerr << "clustar doctor gdr: " << message << "\n";
  return status;
}

int run_gdr(const Arguments& arguments) {
  if (const auto writable = report::check_writable(arguments.json); !writable) {
    return complain(kUsage, "--json: " + writable.error().message);
  }
  const bool here = !arguments.sysfs_given;
  if (!here && !is_folder(arguments.sysfs)) return complain(kUsage, "'" + arguments.sysfs + "' is no folder");
  if (!arguments.procfs.empty() && !is_folder(arguments.procfs)) {
    return complain(kUsage, "'" + arguments.procfs + "' is no folder");
  }
  if (here && !arguments.procfs.empty()) {
    return complain(kUsage, "--procfs belongs to --sysfs: both are of one machine");
  }
  if (!here && !is_folder(arguments.sysfs + "/bus")) {
    return complain(kUsage, "--sysfs '" + arguments.sysfs + "' is no copy of /sys: it has no folder bus");
  }
  const gdr::Roots roots = here ? gdr::Roots{} : gdr::Roots{arguments.sysfs, arguments.procfs};
  const auto examined =
      doctor::examine(gdr::read_machine(roots), here ? doctor::probes_here() : doctor::probes_elsewhere());
  // JSON on standard output stays parseable: people's lines go to standard error then.
  (arguments.json == "-" ? std::cerr : std::cout) << doctor::to_text(examined, arguments.all) << std::flush;
  if (!arguments.json.empty()) {
    const auto written = report::write_json(report::envelope("doctor gdr", doctor::to_json(examined)), arguments.json);
    if (!written) return complain(kFailed, written.error().message);
  }
  const doctor::Verdict verdict = examined.verdict();
  return verdict == doctor::Verdict::kMissing || verdict == doctor::Verdict::kUnknown ? kFailed : kOk;
}

void add_gdr(CLI::App& doctor, int& status) {
  auto* command = doctor.add_subcommand("gdr", "Is GPUDirect RDMA on between each GPU and NIC, and if not, why not");
  auto arguments = std::make_shared<Arguments>();
  const auto* sysfs =
      command->add_option("--sysfs", arguments->sysfs, "A copy of another machine's /sys; drivers are not asked then")
          ->type_name("DIR");
  command->add_option("--procfs", arguments->procfs, "With --sysfs: a copy of that machine's /proc")->type_name("DIR");
  command->add_flag("--all", arguments->all, "Reasons for every pair of GPU and NIC, not only for each GPU's best NIC");
  command->add_option("--json", arguments->json, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command->footer(
      "NCCL's variables (NCCL_NET_GDR_LEVEL, ...) count as this process has them. As root it sees ACS, too.\n"
      "Exit status: 0 every GPU has a NIC with GPUDirect RDMA, or there is no GPU; 1 a GPU has none,\n"
      "or a device could not be read; 2 wrong usage.\n"
      "Example: sudo --preserve-env=NCCL_NET_GDR_LEVEL clustar doctor gdr --json gdr.json");
  command->callback([arguments, sysfs, &status] {
    arguments->sysfs_given = sysfs->count() > 0;
    status = run_gdr(*arguments);
  });
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("doctor", "What keeps this machine from being fast, and how to fix it");
  command->require_subcommand(1);
  command->footer("Example: clustar doctor gdr");
  add_gdr(*command, status);
  add_doctor_nccl(*command, status);
  add_doctor_torch(*command, status);
  add_doctor_dpdk(*command, status);
}

}  // namespace clustar::bench::cli
