// The Python module _clustar_torch: makes process groups.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <string>
#include <utility>

#include "paraexpress/torch/backend.h"

// As PyTorch itself holds these objects (its own header for it compiles for seconds).
PYBIND11_DECLARE_HOLDER_TYPE(T, c10::intrusive_ptr<T>, true)

namespace clustar::torch_backend {
namespace {

namespace py = pybind11;

// Python drops a group with its lock, which the group's thread may wait for while it ends.
class PythonBackend final : public Backend {
 public:
  using Backend::Backend;
  ~PythonBackend() override {
    if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
      close();
    } else {
      const py::gil_scoped_release release;
      close();
    }
  }
};

c10::intrusive_ptr<Base> create(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                std::chrono::milliseconds timeout) {
  return c10::make_intrusive<PythonBackend>(std::move(store), rank, size, timeout);
}

Backend& ours(const c10::intrusive_ptr<Base>& group) {
  auto* const backend = dynamic_cast<Backend*>(group.get());
  TORCH_CHECK(backend != nullptr, "clustar: a process group of another backend; allowed: one of backend clustar");
  return *backend;
}

}  // namespace
}  // namespace clustar::torch_backend

PYBIND11_MODULE(_clustar_torch, module) {
  using namespace clustar::torch_backend;
  namespace py = pybind11;
  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "abort", [](const c10::intrusive_ptr<Base>& group, const std::string& why) { ours(group).abort_all(why); },
      py::arg("group"), py::arg("why"), py::call_guard<py::gil_scoped_release>());
  module.def(
      "close", [](const c10::intrusive_ptr<Base>& group) { ours(group).close(); }, py::arg("group"),
      py::call_guard<py::gil_scoped_release>());
  module.def("close_all", &close_all, py::call_guard<py::gil_scoped_release>());
  module.attr("__version__") = CLUSTAR_VERSION;
}
