#include "paraexpress/communicator/core/kinds.h"

namespace clustar::paraexpress {

const char* name_of(Use use) {
  switch (use) {
    case Use::kMessage: return "send";
    case Use::kGather: return "gather";
    case Use::kScatter: return "scatter";
    case Use::kAllToAll: return "all_to_all";
  }
  return "?";
}

}  // namespace clustar::paraexpress
