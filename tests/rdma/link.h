// The veth cable between the two SoftRoCE devices: va at rxe_a's end, vb at rxe_b's.
#pragma once

#include <string>

namespace clustar::tests {

// Empty where rxe_a and rxe_b are; otherwise why the tests are skipped.
std::string why_no_devices();

// netem on both ends while it lives: "loss 5%", "delay 20ms reorder 50%". Throws where netem is missing.
class Netem {
 public:
  explicit Netem(const std::string& what);
  ~Netem();
  Netem(const Netem&) = delete;
  Netem& operator=(const Netem&) = delete;
};

// An end is down while it lives; the veth pair makes the other port lose its link, too. What is sent at the end that is
// down fails, at the other one it is lost.
class LinkDown {
 public:
  explicit LinkDown(const std::string& interface = "vb");
  ~LinkDown();  // returns when both ports are active again
  LinkDown(const LinkDown&) = delete;
  LinkDown& operator=(const LinkDown&) = delete;

 private:
  const std::string set_;
};

// What the command prints; throws if it fails. Destructors above report a test failure instead.
std::string output_of(const std::string& command);

}  // namespace clustar::tests
