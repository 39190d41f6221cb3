// The veth cable between the two SoftRoCE devices: va at rxe_a's end, vb at rxe_b's.
#pragma once

#include <string>

namespace clustar::tests {

// Empty where rxe_a and rxe_b are; else why the tests are skipped.
std::string why_no_devices();

// netem on both ends while it lives: "loss 5%", "delay 20ms reorder 50%". Throws where netem is missing.
class Netem {
 public:
  explicit Netem(const std::string& what);
  ~Netem();
  Netem(const Netem&) = delete;
  Netem& operator=(const Netem&) = delete;
};

// rxe_b's end is down while it lives; the veth pair makes rxe_a's port lose its link, too.
class LinkDown {
 public:
  LinkDown();
  ~LinkDown();  // returns when both ports are active again
  LinkDown(const LinkDown&) = delete;
  LinkDown& operator=(const LinkDown&) = delete;
};

// What the command prints; throws if it fails. Destructors above report a test failure instead.
std::string output_of(const std::string& command);

}  // namespace clustar::tests
