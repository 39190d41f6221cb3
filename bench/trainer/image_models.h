// AlexNet, VGG-16 and ResNet-50, with the layers and the parameters of torchvision (BSD licence; the structure was
// read in torchvision/models/{alexnet,vgg,resnet}.py): 224 x 224, three channels, 1,000 classes, unless told otherwise.
#pragma once

#include "bench/trainer/model.h"

namespace clustar::bench::trainer {

// Throw std::invalid_argument for images that are too small.
Model make_alexnet(const ModelOptions& options);
Model make_vgg16(const ModelOptions& options);
Model make_resnet50(const ModelOptions& options);

}  // namespace clustar::bench::trainer
