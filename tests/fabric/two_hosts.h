// Two network namespaces joined by a cable (veth), made and removed by one object.
#pragma once

#include <functional>
#include <string>

namespace clustar::tests {

class TwoHosts {
 public:
  TwoHosts();   // reason() is empty when it worked
  ~TwoHosts();  // removes everything
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  const std::string& reason() const { return reason_; }
  // Runs `body` on a thread of its own inside host 0 or 1, where the cable's end is called "wire".
  void run_on(int host, const std::function<void()>& body) const;
  // Gives a host one more network interface, which leads nowhere.
  bool add_nic(int host, const std::string& nic, const std::string& address) const;
  // Of the whole cable, or of one host's end of it.
  bool set_mtu(int bytes) const;
  bool set_mtu(int host, int bytes) const;
  // From now on nothing passes the cable, and nobody is told: as when a host loses power.
  bool cut() const;

 private:
  std::string name(int host) const;

  std::string reason_;
};

}  // namespace clustar::tests
