// A Wire over a net plugin.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/perf/wire.h"
#include "bench/proxy/net_plugin.h"

namespace clustar::bench::perf {

class PluginWire final : public Wire {
 public:
  // Loads and inits the plugin. Errors name the plugin, its last warning, or the devices that it has.
  static Result<std::unique_ptr<PluginWire>> open(const PluginSpec& spec);
  ~PluginWire() override;

  proxy::NetPlugin& plugin() { return *plugin_; }
  const PluginDescription& description() const { return description_; }
  // What the plugin logged while close() finalized it: its own account of what it did.
  const std::vector<std::string>& last_words() const { return last_words_; }

  Result<std::vector<std::string>> listen(int count) override;
  Result<void> connect(const std::vector<std::string>& handles, Clock::time_point deadline) override;
  Result<void> attach(const Memory& send, const Memory& receive) override;
  Result<void> detach() override;
  Result<void> close() override;
  Result<void*> post_send(int channel, std::size_t offset, std::size_t bytes) override;
  Result<void*> post_receive(int channel, std::size_t offset, std::size_t bytes) override;
  Result<Tested> test(void* request) override;

 private:
  struct Channel {
    void* comm = nullptr;
    std::byte* memory = nullptr;
    void* mhandle = nullptr;
  };

  explicit PluginWire(std::unique_ptr<proxy::NetPlugin> plugin) : plugin_(std::move(plugin)) {}
  Result<void> init(const PluginSpec& spec);
  Result<void> attach_one(Channel& channel, const Memory& memory);
  // Keeps the first error of a sequence of closing calls.
  void note(Result<void>& first, const char* call, int result) const;

  std::unique_ptr<proxy::NetPlugin> plugin_;
  PluginDescription description_;
  std::vector<std::string> last_words_;
  int device_ = 0;
  void* ctx_ = nullptr;
  bool initialised_ = false;
  std::vector<void*> listeners_;
  std::vector<Channel> outgoing_;
  std::vector<Channel> incoming_;
};

}  // namespace clustar::bench::perf
