// The plugin's .so behind bench/proxy's loader, with what the tests repeat.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/proxy/net_plugin.h"

namespace clustar::tests {

using bench::proxy::Handle;
using bench::proxy::NetPlugin;

inline constexpr const char* kPluginPath = CLUSTAR_PLUGIN;

std::unique_ptr<NetPlugin> open_plugin(int version = 0, const std::string& path = kPluginPath);

using Variables = std::map<std::string, std::string>;

// Sets variables for its lifetime. Loopback is the default interface of every test.
class Environment {
 public:
  explicit Environment(const Variables& variables);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> names_;
};

bool poll_until(const std::function<bool()>& step);

struct PluginConnection {
  void* send = nullptr;
  void* recv = nullptr;
};
PluginConnection connect_to_self(NetPlugin& plugin, void* context, int device = 0);
// Sends `size` patterned bytes and checks what arrives.
void transfer(NetPlugin& plugin, const PluginConnection& connection, std::size_t size);
void close(NetPlugin& plugin, const PluginConnection& connection);
std::string joined_log(NetPlugin& plugin);

}  // namespace clustar::tests
