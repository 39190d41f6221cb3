#include "bench/doctor/verbs_probe.h"

#include <fmt/format.h>

#include <filesystem>

#include "transport/base/own_folder.h"
#include "transport/io/verbs/dmabuf_probe.h"
#include "transport/module.h"

namespace clustar::bench::doctor {
namespace {

namespace verbs = transport::io::verbs;

// Modules are beside the plugin.
Result<verbs::DmaBufProbe> probe(const std::string& rdma_device) {
  const auto library = std::filesystem::path(installed_library("libclustar-verbs.so"));
  const auto module = transport::Module::open(library.parent_path().string(), "verbs");
  if (!module) return tl::unexpected(module.error());
  const auto found = reinterpret_cast<verbs::ProbeDmaBuf>(module->find(verbs::kProbeDmaBuf));
  if (found == nullptr) return fail(ErrorCode::kUnavailable, "libclustar-verbs.so does not know the question");
  return found(rdma_device);
}

}  // namespace

gdr::NicFacts ask_verbs(const std::string& rdma_device) {
  gdr::NicFacts facts{.data_direct_evidence = "not asked: this version does not call mlx5dv"};
  if (const auto answer = probe(rdma_device)) {
    facts.dma_buf = answer->supported ? gdr::Known::kYes : gdr::Known::kNo;
    facts.dma_buf_evidence = answer->text;
  } else {
    facts.dma_buf_evidence = fmt::format("{} was not asked: {}", rdma_device, answer.error().message);
  }
  return facts;
}

}  // namespace clustar::bench::doctor
