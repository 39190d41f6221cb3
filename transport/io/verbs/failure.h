// What a failed call of libibverbs means: which call, errno, where, the likely cause and what to do about it.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/result.h"

namespace clustar::transport::io::verbs {

// Where something was tried. What is not known stays out of the text.
struct Place {
  std::string device{};
  int port = 0;
  int gid_index = -1;
  std::string peer{};  // "10.0.0.2 queue pair 17"

  std::string to_string() const;  // "mlx5_0 port 1 GID index 3 to 10.0.0.2 queue pair 17"
};

enum class Call : std::uint8_t {
  kForkInit,
  kListDevices,
  kOpenDevice,
  kQueryDevice,
  kQueryPort,
  kQueryGids,
  kAllocPd,
  kRegMr,
  kRegDmaBuf,
  kAllocMw,
  kCreateChannel,
  kCreateCq,
  kPollCq,
  kArmCq,
  kCqEvent,
  kCreateSrq,
  kCreateAh,
  kCreateQp,
  kQueryQp,
  kToInit,
  kToRtr,
  kToRts,
  kToError,
  kToReset,
  kPostSend,
  kPostRecv,
  kAsyncEvent,
};
const char* to_string(Call call);  // "ibv_modify_qp to RTR"

// `error` is an errno. `detail`: what was asked for ("8 MiB at 0x7f..."), may be empty.
Error call_failed(Call call, int error, const Place& place, const std::string& detail = {});

// Likely cause and remedy; empty when nothing is known about this error of this call.
std::string likely_cause(Call call, int error, const Place& place);

}  // namespace clustar::transport::io::verbs
