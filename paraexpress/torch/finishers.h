// Threads that complete futures.
#pragma once

#include <functional>

namespace clustar::torch_backend {

// Any thread; it does not block. Calls wait for each other only where very many block: what is called may wait for
// another operation to end.
void finish_later(std::function<void()> call);

}  // namespace clustar::torch_backend
