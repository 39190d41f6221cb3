#include "bench/cli/train_paths.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "bench/trainer/data/cifar.h"
#include "bench/trainer/data/idx.h"

namespace clustar::bench::cli {
namespace {

namespace fs = std::filesystem;

struct Named {
  std::string option;
  std::string path;
  bool of_run = false;  // --checkpoint and --resume, which may be one
};

constexpr const char* kStandardOutput = "/dev/stdout";

// std::filesystem::equivalent() takes no two pipes or devices.
bool same_file(const std::string& one, const std::string& other) {
  struct stat first {};
  struct stat second {};
  if (stat(one.c_str(), &first) == 0 && stat(other.c_str(), &second) == 0) {
    return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  }
  std::error_code error;
  const fs::path place = fs::weakly_canonical(one, error);
  return !error && place == fs::weakly_canonical(other, error) && !error;
}

// Documents do not disturb each other there.
bool keeps_nothing(const std::string& path) { return same_file(path, "/dev/null"); }

std::vector<Named> outputs_of(const trainer::TrainConfig& config, const std::string& json_path) {
  std::vector<Named> files;
  const auto add = [&](const char* option, const std::string& path, bool of_run = false) {
    if (path.empty()) return;
    const std::string place = path == "-" ? kStandardOutput : path;
    if (!keeps_nothing(place)) files.push_back({fmt::format("{} {}", option, path), place, of_run});
  };
  add("--json", json_path);
  add("--record-compute", config.record_compute);
  add("--checkpoint", config.checkpoint.file, true);
  if (!config.checkpoint.file.empty()) {
    files.push_back({fmt::format("the unfinished file of --checkpoint {}", config.checkpoint.file),
                     config.checkpoint.file + ".partial"});
  }
  return files;
}

// Of a folder the files by which it is a data set; those of classes see in_class_folder().
std::vector<Named> inputs_of(const trainer::TrainConfig& config) {
  std::vector<Named> files;
  if (!config.data.empty()) {
    const std::string option = "--data " + config.data;
    files.push_back({option, config.data});
    std::error_code error;
    if (const auto pair = trainer::find_idx_pair(config.data)) {
      files.push_back({option, pair->images});
      files.push_back({option, pair->labels});
    } else if (fs::is_directory(config.data, error)) {
      for (const std::string& file : trainer::cifar_files(config.data)) files.push_back({option, file});
    }
  }
  if (!config.checkpoint.resume.empty()) {
    files.push_back({"--resume " + config.checkpoint.resume, config.checkpoint.resume, true});
  }
  if (config.compute.kind == trainer::ComputeKind::kReplay) {
    files.push_back({"--compute replay=" + config.compute.source, config.compute.source});
  }
  if (!config.paraexpress.regions_path.empty()) {
    files.push_back({"--regions " + config.paraexpress.regions_path, config.paraexpress.regions_path});
  }
  return files;
}

// Whether it would be taken for an image of a class, or is one.
bool in_class_folder(const std::string& path, const std::string& data) {
  std::error_code error;
  if (data.empty() || !fs::is_directory(data, error)) return false;
  if (trainer::find_idx_pair(data) || !trainer::cifar_files(data).empty()) return false;
  const fs::path within = fs::weakly_canonical(path, error).lexically_relative(fs::canonical(data, error));
  return !error && !within.empty() && *within.begin() != ".." && within.has_parent_path();
}

}  // namespace

std::string path_contradiction(const trainer::TrainConfig& config, const std::string& json_path) {
  if (config.checkpoint.file == "-") {
    return "--checkpoint -: a checkpoint is a file that the next one replaces; allowed: a file's name";
  }
  const std::vector<Named> outputs = outputs_of(config, json_path);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t other = 0; other < i; ++other) {
      if (!same_file(outputs[i].path, outputs[other].path)) continue;
      return fmt::format("{} and {} are the same file; allowed: a file each", outputs[other].option, outputs[i].option);
    }
    for (const Named& input : inputs_of(config)) {
      const bool goes_on = input.of_run && outputs[i].of_run;
      if (goes_on || !same_file(outputs[i].path, input.path)) continue;
      return fmt::format("{} would be written over {}; allowed: another file", outputs[i].option, input.option);
    }
    if (in_class_folder(outputs[i].path, config.data)) {
      return fmt::format("{} lies in a sub-folder of --data {}, which has images; allowed: another folder",
                         outputs[i].option, config.data);
    }
  }
  return {};
}

}  // namespace clustar::bench::cli
