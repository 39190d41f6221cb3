/* clustar.h must be C: this file is compiled as C11 with all warnings, and never run. */
#include "nccl_plugin/clustar.h"

int clustar_api_in_c(const clustarApi_v1_t* api);
int clustar_api_in_c(const clustarApi_v1_t* api) {
  clustarTotals_v1 totals = {sizeof totals, 0, 0, 0, 0, 0, 0};
  clustarCollective_v1 collective;
  clustarMissing_v1 missing;
  clustarMessage_v1 message;
  size_t count = 0;
  collective.size = sizeof collective;
  missing.size = sizeof missing;
  message.size = sizeof message;
  return api->getTotals(&totals) + api->listCollectives(&collective, 1, &count) +
         api->listMissing(1, 4, 0, 0, &missing, 1, &count) + api->listMissingFrom(1, 0, 0, &missing, 1, &count) +
         api->listLostTo(1, 0, 0, &missing, 1, &count) + (collective.sender < 0) + api->identify(0, 0, &message);
}

int clustar_api_v2_in_c(const clustarApi_v2_t* api, const void* gradients);
int clustar_api_v2_in_c(const clustarApi_v2_t* api, const void* gradients) {
  const uint8_t important[2] = {1, 0};
  clustarImportance_v1 marked = {sizeof marked, 0, 0, 0, 0};
  return api->markImportance(gradients, 5000, 4096, important, 2) + api->getImportance(&marked) +
         api->forgetImportance(gradients, 5000) + api->v1->setCritical(0);
}
