// No exception leaves a module: it has a C++ runtime of its own.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/io/packet_backend.h"

namespace clustar::transport::io {

// `module`: its file's name, for the error.
template <class Call>
auto contained(const char* module, Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, std::string(module) + ": " + error.what());
  } catch (...) {
    return fail(ErrorCode::kInternal, std::string(module) + ": an exception without a name");
  }
}

// Around a module's backend.
class ContainedBackend final : public PacketBackend {
 public:
  ContainedBackend(const char* module, std::unique_ptr<PacketBackend> inner)
      : module_(module), inner_(std::move(inner)) {}
  const char* name() const override { return inner_->name(); }
  Result<std::vector<DeviceInfo>> devices() override {
    return contained(module_, [&] { return inner_->devices(); });
  }
  Result<std::unique_ptr<PacketIo>> open(std::size_t device) override {
    return contained(module_, [&] { return inner_->open(device); });
  }

 private:
  const char* const module_;
  const std::unique_ptr<PacketBackend> inner_;
};

}  // namespace clustar::transport::io
