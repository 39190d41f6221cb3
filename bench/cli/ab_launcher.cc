#include "bench/cli/ab_launcher.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "bench/ab/cluster/starter.h"

namespace clustar::bench::cli {
namespace {

namespace cluster = ab::cluster;

const std::map<std::string, cluster::Starter>& starters() {
  static const std::map<std::string, cluster::Starter> all{{"mpirun", cluster::Starter::kMpirun},
                                                           {"torchrun", cluster::Starter::kTorchrun},
                                                           {"srun", cluster::Starter::kSrun}};
  return all;
}

}  // namespace

void add_ab_launcher_options(CLI::App& command, AbLauncherArguments& arguments) {
  const std::string group = "On a cluster";
  arguments.given = command.add_option(
      "--launcher", arguments.launcher,
      "Start the ranks (--ranks) of each run by this program, on the network that is there, instead of a fabric: "
      "mpirun "
      "(Open MPI), srun (inside an allocation), or torchrun (all ranks on this machine). clustar must be at the same "
      "path on every host");
  arguments.given->check(CLI::IsMember({"mpirun", "torchrun", "srun"}))
      ->type_name("mpirun|torchrun|srun")
      ->group(group);
  command
      .add_option("--launcher-args", arguments.more,
                  "More words for it, as for a shell: '--hostfile hosts --map-by node --mca oob_tcp_if_include eth0'")
      ->type_name("WORDS")
      ->group(group)
      ->needs(arguments.given);
  command
      .add_option("--root", arguments.root,
                  "Rank 0's host as all ranks reach it, and the first of 1000 ports of which each run takes the next "
                  "[29500]; mpirun and srun need it")
      ->type_name("HOST[:PORT]")
      ->group(group)
      ->needs(arguments.given);
}

Result<void> complete_ab_launcher(const AbLauncherArguments& arguments, ab::Plan& plan) {
  cluster::Spec spec;
  spec.starter = starters().at(arguments.launcher);
  auto words = cluster::split_words(arguments.more);
  if (!words) return fail(words.error().code, "--launcher-args: " + words.error().message);
  spec.more = std::move(*words);
  if (spec.starter == cluster::Starter::kTorchrun) {
    if (!arguments.root.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "--root is not for --launcher torchrun, whose ranks are all on this machine: torchrun itself would "
                  "have to be started on every other one; use mpirun or srun for several");
    }
  } else if (arguments.root.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--launcher {} needs --root HOST[:PORT]: rank 0's host (the first one) as all ranks reach "
                            "it",
                            arguments.launcher));
  } else if (const auto ok = cluster::set_root(arguments.root, spec); !ok) {
    return ok;
  }
  for (const auto& [option, arm] :
       {std::pair("--baseline", &plan.baseline), std::pair("--candidate", &plan.candidate)}) {
    if (arm->helpers() == 0) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: helpers are not for --launcher, which starts ranks only", option));
  }
  plan.cluster = std::move(spec);
  plan.fabric.reset();
  return {};
}

Result<void> find_launcher(ab::Plan& plan) {
  if (!plan.cluster) return {};
  auto version = cluster::find_version(plan.cluster->starter);
  if (!version) return tl::unexpected(version.error());
  plan.cluster->version = std::move(*version);
  return {};
}

}  // namespace clustar::bench::cli
