// The plugin where users have it: in a folder with or without modules.
#pragma once

#include <filesystem>
#include <string>

#include "tests/plugin/plugin_under_test.h"
#include "tests/temp_path.h"

namespace clustar::tests {

namespace fs = std::filesystem;

// An installation: the plugin in a folder of its own, where modules can be put beside it.
class Installation {
 public:
  Installation() : folder_(tests::temp_path("install")) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::copy_file(kPluginPath, plugin());
  }
  ~Installation() { fs::remove_all(folder_); }
  fs::path plugin() const { return folder_ / "libnccl-net-clustar.so"; }
  fs::path module(const std::string& name) const { return folder_ / ("libclustar-" + name + ".so"); }

 private:
  fs::path folder_;
};

}  // namespace clustar::tests
