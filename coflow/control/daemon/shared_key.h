// The key that agents and coordinator share, with what computes HMACs by it.
#pragma once

#include <memory>
#include <string>

#include "coflow/control/core/session.h"
#include "transport/base/result.h"
#include "transport/crypto/crypto.h"
#include "transport/crypto/psk_file.h"

namespace clustar::coflow::control {

// Outlives the sessions that have its SessionKey.
class SharedKey {
 public:
  // Of no file: no key.
  static Result<SharedKey> read(const std::string& path);
  SessionKey session_key() const;

 private:
  std::unique_ptr<transport::crypto::Crypto> crypto_;
  transport::crypto::Secret secret_;
};

}  // namespace clustar::coflow::control
