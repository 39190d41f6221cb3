// Result<T>: how every layer reports an expected failure. Exceptions stay inside construction and configuration.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace clustar {

enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  // the caller broke the contract of the call
  kInvalidUsage,     // the calls are well formed but contradict each other (a mismatch between ranks)
  kUnavailable,      // this machine or build cannot do it
  kSystem,           // a local system call failed
  kRemote,           // the peer or its host failed, or closed with work outstanding
  kInternal,         // a broken invariant of ours
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one sentence for a person: what happened, where, what is allowed or what to check
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

constexpr const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kInvalidUsage: return "invalid usage";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kSystem: return "system error";
    case ErrorCode::kRemote: return "remote error";
    case ErrorCode::kInternal: return "internal error";
  }
  return "?";
}

}  // namespace clustar
