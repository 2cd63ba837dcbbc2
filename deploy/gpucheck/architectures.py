"""Eight well-known architectures in plain torch with random weights. They compute what their papers describe, and their speed
does not depend on the weights. Only torch is needed.

Each takes one input whose first dimension is the batch, and uses calls that export to few and common operators. All other
dimensions are constants, so no arithmetic on shapes remains for the CPU."""

import torch
from torch import nn


def lenet():
    """LeCun et al., 1998, with ReLU: 1 x 28 x 28."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )


def unit(inputs, outputs, kernel, stride=1, groups=1, activation=nn.ReLU):
    """Convolution, norm, activation."""
    parts = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*parts, *([activation()] if activation else []))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.way = nn.Sequential(
            unit(inputs, width, 1), unit(width, width, 3, stride), unit(width, 4 * width, 1, activation=None)
        )
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else unit(inputs, 4 * width, 1, stride, activation=None)

    def forward(self, x):
        return torch.relu(self.way(x) + self.shortcut(x))


def classifier(width, classes=1000):
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)


def resnet50():
    """He et al., 2015 (stride in the middle convolution): 3 x 224 x 224."""
    layers, inputs = [unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in (64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2):
        for number in range(count):
            layers.append(Bottleneck(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, *classifier(inputs))


def vgg16():
    """Simonyan and Zisserman, 2014, configuration D: 3 x 224 x 224."""
    layers, inputs = [], 3
    for width, count in (64, 2), (128, 2), (256, 3), (512, 3), (512, 3):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    full = nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)
    return nn.Sequential(*layers, nn.Flatten(), *full)


class Inverted(nn.Module):
    def __init__(self, inputs, outputs, stride, widening):
        super().__init__()
        width = inputs * widening
        wide = [] if widening == 1 else [unit(inputs, width, 1, activation=nn.ReLU6)]
        self.way = nn.Sequential(
            *wide, unit(width, width, 3, stride, groups=width, activation=nn.ReLU6),
            unit(width, outputs, 1, activation=None),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.way(x) if self.adds else self.way(x)


def mobilenet_v2():
    """Sandler et al., 2018: 3 x 224 x 224."""
    layers, inputs = [unit(3, 32, 3, 2, activation=nn.ReLU6)], 32
    blocks = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    for widening, outputs, count, stride in blocks:
        for number in range(count):
            layers.append(Inverted(inputs, outputs, stride if number == 0 else 1, widening))
            inputs = outputs
    return nn.Sequential(*layers, unit(inputs, 1280, 1, activation=nn.ReLU6), *classifier(1280))


class Inception(nn.Module):
    def __init__(self, inputs, one, three_in, three, five_in, five, pooled):
        super().__init__()
        self.ways = nn.ModuleList([
            unit(inputs, one, 1),
            nn.Sequential(unit(inputs, three_in, 1), unit(three_in, three, 3)),
            nn.Sequential(unit(inputs, five_in, 1), unit(five_in, five, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), unit(inputs, pooled, 1)),
        ])

    def forward(self, x):
        return torch.cat([way(x) for way in self.ways], 1)


def googlenet():
    """Szegedy et al., 2014, with norms and without the heads that are only used in training: 3 x 224 x 224."""
    pool = nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(
        unit(3, 64, 7, 2), pool, unit(64, 64, 1), unit(64, 192, 3), pool,
        Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64), pool,
        Inception(480, 192, 96, 208, 16, 48, 64), Inception(512, 160, 112, 224, 24, 64, 64),
        Inception(512, 128, 128, 256, 24, 64, 64), Inception(512, 112, 144, 288, 32, 64, 64),
        Inception(528, 256, 160, 320, 32, 128, 128), pool,
        Inception(832, 256, 160, 320, 32, 128, 128), Inception(832, 384, 192, 384, 48, 128, 128), *classifier(1024),
    )


def normed(inputs, outputs, kernel):
    """Norm, activation, convolution."""
    return nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)


class Dense(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.way = nn.Sequential(*normed(inputs, 4 * growth, 1), *normed(4 * growth, growth, 3))

    def forward(self, x):
        return torch.cat([x, self.way(x)], 1)


def densenet161():
    """Huang et al., 2016, growth 48: 3 x 224 x 224."""
    layers, inputs, growth, blocks = [unit(3, 96, 7, 2), nn.MaxPool2d(3, 2, 1)], 96, 48, (6, 12, 36, 24)
    for place, count in enumerate(blocks):
        for _ in range(count):
            layers.append(Dense(inputs, growth))
            inputs += growth
        if place + 1 < len(blocks):
            layers += [*normed(inputs, inputs // 2, 1), nn.AvgPool2d(2)]
            inputs //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(), *classifier(inputs))


class SsdMobilenet(nn.Module):
    """Liu et al., 2015, on MobileNet (Howard et al., 2017), up to its heads; boxes are selected on the host.
    3 x 300 x 300; 1,917 boxes and 91 classes."""

    def __init__(self):
        super().__init__()

        def separable(inputs, outputs, stride=1):
            return unit(inputs, inputs, 3, stride, groups=inputs), unit(inputs, outputs, 1)

        self.stages = nn.ModuleList([
            nn.Sequential(
                unit(3, 32, 3, 2), *separable(32, 64), *separable(64, 128, 2), *separable(128, 128), *separable(128, 256, 2),
                *separable(256, 256), *separable(256, 512, 2), *(part for _ in range(5) for part in separable(512, 512)),
            ),
            nn.Sequential(*separable(512, 1024, 2), *separable(1024, 1024)),
            nn.Sequential(unit(1024, 256, 1), unit(256, 512, 3, 2)),
            nn.Sequential(unit(512, 128, 1), unit(128, 256, 3, 2)),
            nn.Sequential(unit(256, 128, 1), unit(128, 256, 3, 2)),
            nn.Sequential(unit(256, 64, 1), unit(64, 128, 3, 2)),
        ])
        widths, boxes = (512, 1024, 512, 256, 256, 128), (3, 6, 6, 6, 6, 6)
        self.places = nn.ModuleList([nn.Conv2d(width, 4 * count, 1) for width, count in zip(widths, boxes)])
        self.classes = nn.ModuleList([nn.Conv2d(width, 91 * count, 1) for width, count in zip(widths, boxes)])

    def forward(self, x):
        places, classes = [], []
        for stage, place, kind in zip(self.stages, self.places, self.classes):
            x = stage(x)
            # The batch is inferred: image sizes are constants.
            boxes = int(x.shape[2]) * int(x.shape[3]) * (place.out_channels // 4)
            places.append(place(x).permute(0, 2, 3, 1).reshape(-1, boxes, 4))
            classes.append(kind(x).permute(0, 2, 3, 1).reshape(-1, boxes, 91))
        return torch.cat(places, 1), torch.cat(classes, 1)


class Layer(nn.Module):
    """A layer of BERT."""

    def __init__(self, words, width, heads):
        super().__init__()
        self.words, self.width, self.heads = words, width, heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x):
        def heads(tensor):
            return tensor.reshape(-1, self.words, self.heads, self.width // self.heads).permute(0, 2, 1, 3)

        query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        weights = torch.softmax(query @ key.transpose(2, 3) / (self.width // self.heads) ** 0.5, -1)
        seen = (weights @ value).permute(0, 2, 1, 3).reshape(-1, self.words, self.width)
        x = self.first(x + self.out(seen))
        return self.second(x + self.narrow(nn.functional.gelu(self.widen(x))))


class Bert(nn.Module):
    """Devlin et al., 2018, base: the last hidden state of 128 words."""

    VOCABULARY = 30_522

    def __init__(self, words=128, width=768, layers=12, heads=12):
        super().__init__()
        self.word, self.norm = nn.Embedding(self.VOCABULARY, width), nn.LayerNorm(width, eps=1e-12)
        self.place = nn.Parameter(torch.randn(1, words, width))
        self.layers = nn.Sequential(*(Layer(words, width, heads) for _ in range(layers)))

    def forward(self, x):
        return self.layers(self.norm(self.word(x) + self.place))


# Constructor and shape of a row; a tuple that starts with "words" has integers.
MODELS = {
    "lenet": (lenet, (1, 28, 28)),
    "resnet50": (resnet50, (3, 224, 224)),
    "mobilenet_v2": (mobilenet_v2, (3, 224, 224)),
    "googlenet": (googlenet, (3, 224, 224)),
    "vgg16": (vgg16, (3, 224, 224)),
    "densenet161": (densenet161, (3, 224, 224)),
    "ssd_mobilenet": (SsdMobilenet, (3, 300, 300)),
    "bert_base": (Bert, ("words", 128)),
}
