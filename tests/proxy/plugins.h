// Which plugins the tests of this folder drive, and the control of the memory plugin.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "bench/proxy/net_plugin.h"
#include "tests/proxy/memory_plugin.h"

namespace clustar::bench::proxy {

struct TestedPlugin {
  std::string name;
  std::string path;
};
inline void PrintTo(const TestedPlugin& plugin, std::ostream* out) { *out << plugin.name; }

// The memory plugin always; the others when the build has them.
inline std::vector<TestedPlugin> tested_plugins() {
  std::vector<TestedPlugin> plugins{{"Memory", PROXY_TEST_MEMORY_PLUGIN}};
#ifdef PROXY_TEST_SAMPLE_PLUGIN
  plugins.push_back({"Sample", PROXY_TEST_SAMPLE_PLUGIN});
#endif
#ifdef PROXY_TEST_CLUSTAR_PLUGIN
  plugins.push_back({"Clustar", PROXY_TEST_CLUSTAR_PLUGIN});
#endif
  return plugins;
}

// Kept open for the whole process, so that its statics are one set.
inline tests::MemoryPluginControl& memory_plugin() {
  static void* library = dlopen(PROXY_TEST_MEMORY_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  static auto* control = static_cast<tests::MemoryPluginControl*>(dlsym(library, "memory_plugin_control"));
  return *control;
}

inline std::unique_ptr<NetPlugin> open_plugin(const std::string& path, int version = 0) {
  auto plugin = NetPlugin::open(path, version);
  if (!plugin) {
    ADD_FAILURE() << plugin.error().message;
    return nullptr;
  }
  return std::move(*plugin);
}

}  // namespace clustar::bench::proxy
