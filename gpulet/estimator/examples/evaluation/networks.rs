//! The networks of the public data sets, layer by layer, from the papers that describe them and from torchvision's definitions.

use estimator::{Network, Operator, OperatorClass};

/// Bytes of a number.
const BYTES: f64 = 4.0;

/// A network under construction: what the last layer makes, and all layers so far.
struct Builder {
    channels: f64,
    size: f64,
    operators: Vec<Operator>,
}

impl Builder {
    fn new(size: f64) -> Self {
        Self { channels: 3.0, size, operators: Vec::new() }
    }

    fn elements(&self) -> f64 {
        self.channels * self.size * self.size
    }

    fn add(&mut self, class: OperatorClass, macs: f64, weights: f64, read: f64) {
        let made = self.elements();
        self.operators.push(Operator {
            class,
            macs,
            weight_bytes: BYTES * weights,
            activation_bytes: BYTES * (read + made),
            width: made,
        });
    }

    /// A convolution with a kernel of `kernel` elements that makes `size` x `size` elements of each channel.
    fn convolution(&mut self, channels: f64, kernel: f64, size: f64) {
        let (read, before) = (self.elements(), self.channels);
        (self.channels, self.size) = (channels, size);
        let weights = before * channels * kernel;
        self.add(OperatorClass::Convolution, weights * size * size, weights, read);
    }

    fn depthwise(&mut self, size: f64) {
        let read = self.elements();
        self.size = size;
        let weights = 9.0 * self.channels;
        self.add(OperatorClass::Depthwise, weights * size * size, weights, read);
    }

    fn normalisation(&mut self) {
        self.add(OperatorClass::Normalisation, 0.0, 2.0 * self.channels, self.elements());
    }

    fn relu(&mut self) {
        self.add(OperatorClass::Elementwise, 0.0, 0.0, self.elements());
    }

    /// A sum of two tensors of the present size.
    fn sum(&mut self) {
        self.add(OperatorClass::Elementwise, 0.0, 0.0, 2.0 * self.elements());
    }

    fn pool(&mut self, size: f64) {
        let read = self.elements();
        self.size = size;
        self.add(OperatorClass::Reduction, 0.0, 0.0, read);
    }

    fn concatenation(&mut self, channels: f64) {
        self.channels = channels;
        self.add(OperatorClass::Movement, 0.0, 0.0, self.elements());
    }

    fn connected(&mut self, features: f64) {
        let read = self.elements();
        (self.channels, self.size) = (features, 1.0);
        self.add(OperatorClass::MatrixProduct, read * features, read * features, read);
    }

    /// Convolution, normalisation and activation.
    fn unit(&mut self, channels: f64, kernel: f64, size: f64) {
        self.convolution(channels, kernel, size);
        self.normalisation();
        self.relu();
    }

    fn done(self) -> Network {
        Network::new(self.operators)
    }
}

/// Krizhevsky et al., NeurIPS 2012, as in torchvision.
fn alexnet() -> Network {
    let mut net = Builder::new(224.0);
    for (channels, kernel, size, pooled) in [
        (64.0, 121.0, 55.0, Some(27.0)),
        (192.0, 25.0, 27.0, Some(13.0)),
        (384.0, 9.0, 13.0, None),
        (256.0, 9.0, 13.0, None),
        (256.0, 9.0, 13.0, Some(6.0)),
    ] {
        net.convolution(channels, kernel, size);
        net.relu();
        if let Some(size) = pooled {
            net.pool(size);
        }
    }
    connected_end(&mut net);
    net.done()
}

/// The three fully connected layers of AlexNet and VGG.
fn connected_end(net: &mut Builder) {
    for features in [4096.0, 4096.0] {
        net.connected(features);
        net.relu();
    }
    net.connected(1000.0);
}

/// The convolutions of VGG (Simonyan and Zisserman, ICLR 2015) for pictures of this size, with the numbers of them in each stage.
fn vgg_body(net: &mut Builder, stages: [usize; 5]) {
    let mut size = net.size;
    for (channels, count) in [64.0, 128.0, 256.0, 512.0, 512.0].into_iter().zip(stages) {
        for _ in 0..count {
            net.convolution(channels, 9.0, size);
            net.relu();
        }
        size = (size / 2.0).floor();
        net.pool(size);
    }
}

fn vgg(stages: [usize; 5]) -> Network {
    let mut net = Builder::new(224.0);
    vgg_body(&mut net, stages);
    connected_end(&mut net);
    net.done()
}

/// SSD300 on VGG-16 (Liu et al., ECCV 2016).
fn ssd() -> Network {
    let mut net = Builder::new(300.0);
    let heads = |net: &mut Builder, boxes: f64| {
        let (channels, size) = (net.channels, net.size);
        for outputs in [4.0, 21.0] {
            net.convolution(boxes * outputs, 9.0, size);
            net.channels = channels;
        }
    };
    vgg_body(&mut net, [2, 2, 3, 3, 3]);
    (net.channels, net.size) = (512.0, 38.0);
    heads(&mut net, 4.0);
    (net.channels, net.size) = (512.0, 19.0);
    for (channels, kernel) in [(1024.0, 9.0), (1024.0, 1.0)] {
        net.convolution(channels, kernel, 19.0);
        net.relu();
    }
    heads(&mut net, 6.0);
    for (narrow, wide, size, boxes) in [
        (256.0, 512.0, 10.0, 6.0),
        (128.0, 256.0, 5.0, 6.0),
        (128.0, 256.0, 3.0, 4.0),
        (128.0, 256.0, 1.0, 4.0),
    ] {
        let before = net.size;
        net.convolution(narrow, 1.0, before);
        net.relu();
        net.convolution(wide, 9.0, size);
        net.relu();
        heads(&mut net, boxes);
    }
    net.done()
}

/// He et al., CVPR 2016, with bottlenecks.
fn resnet(stages: [usize; 4]) -> Network {
    let mut net = Builder::new(224.0);
    net.unit(64.0, 49.0, 112.0);
    net.pool(56.0);
    let sizes = [56.0, 28.0, 14.0, 7.0];
    for ((count, size), narrow) in stages.into_iter().zip(sizes).zip([64.0, 128.0, 256.0, 512.0]) {
        for block in 0..count {
            let (channels, before) = (net.channels, net.size);
            net.unit(narrow, 1.0, before);
            net.unit(narrow, 9.0, size);
            net.convolution(4.0 * narrow, 1.0, size);
            net.normalisation();
            if block == 0 {
                (net.channels, net.size) = (channels, before);
                net.convolution(4.0 * narrow, 1.0, size);
                net.normalisation();
            }
            net.sum();
            net.relu();
        }
    }
    net.pool(1.0);
    net.connected(1000.0);
    net.done()
}

/// Huang et al., CVPR 2017, with a growth of 32 channels.
fn densenet(stages: [usize; 4]) -> Network {
    let mut net = Builder::new(224.0);
    net.unit(64.0, 49.0, 112.0);
    net.pool(56.0);
    let mut size = 56.0;
    for (stage, count) in stages.into_iter().enumerate() {
        for _ in 0..count {
            let channels = net.channels;
            net.concatenation(channels);
            net.normalisation();
            net.relu();
            net.unit(128.0, 1.0, size);
            net.convolution(32.0, 9.0, size);
            net.channels = channels + 32.0;
        }
        net.normalisation();
        net.relu();
        if stage < 3 {
            let channels = net.channels;
            net.convolution((channels / 2.0).floor(), 1.0, size);
            size /= 2.0;
            net.pool(size);
        }
    }
    net.pool(1.0);
    net.connected(1000.0);
    net.done()
}

/// MobileNetV2 (Sandler et al., CVPR 2018).
fn mobilenet() -> Network {
    let mut net = Builder::new(224.0);
    net.unit(32.0, 9.0, 112.0);
    for (expansion, channels, count, size) in [
        (1.0, 16.0, 1, 112.0),
        (6.0, 24.0, 2, 56.0),
        (6.0, 32.0, 3, 28.0),
        (6.0, 64.0, 4, 14.0),
        (6.0, 96.0, 3, 14.0),
        (6.0, 160.0, 3, 7.0),
        (6.0, 320.0, 1, 7.0),
    ] {
        for block in 0..count {
            let (wide, before) = (expansion * net.channels, net.size);
            if expansion > 1.0 {
                net.unit(wide, 1.0, before);
            }
            net.depthwise(size);
            net.normalisation();
            net.relu();
            net.convolution(channels, 1.0, size);
            net.normalisation();
            if block > 0 {
                net.sum();
            }
        }
    }
    net.unit(1280.0, 1.0, 7.0);
    net.pool(1.0);
    net.connected(1000.0);
    net.done()
}

/// Inception v3 (Szegedy et al., CVPR 2016), as in torchvision, for pictures of 299 x 299.
fn inception() -> Network {
    let mut net = Builder::new(299.0);
    for (channels, kernel, size) in [(32.0, 9.0, 149.0), (32.0, 9.0, 147.0), (64.0, 9.0, 147.0)] {
        net.unit(channels, kernel, size);
    }
    net.pool(73.0);
    net.unit(80.0, 1.0, 73.0);
    net.unit(192.0, 9.0, 71.0);
    net.pool(35.0);
    for pooled in [32.0, 64.0, 64.0] {
        let branches: [&[(f64, f64)]; 4] = [
            &[(64.0, 1.0)],
            &[(48.0, 1.0), (64.0, 25.0)],
            &[(64.0, 1.0), (96.0, 9.0), (96.0, 9.0)],
            &[(pooled, 1.0)],
        ];
        mixed(&mut net, 35.0, 35.0, &branches, true);
    }
    mixed(&mut net, 35.0, 17.0, &[&[(384.0, 9.0)], &[(64.0, 1.0), (96.0, 9.0), (96.0, 9.0)]], false);
    for narrow in [128.0, 160.0, 160.0, 192.0] {
        let long = [(narrow, 1.0), (narrow, 7.0), (narrow, 7.0), (narrow, 7.0), (192.0, 7.0)];
        let branches: [&[(f64, f64)]; 4] =
            [&[(192.0, 1.0)], &[(narrow, 1.0), (narrow, 7.0), (192.0, 7.0)], &long, &[(192.0, 1.0)]];
        mixed(&mut net, 17.0, 17.0, &branches, true);
    }
    let branches: [&[(f64, f64)]; 2] =
        [&[(192.0, 1.0), (320.0, 9.0)], &[(192.0, 1.0), (192.0, 7.0), (192.0, 7.0), (192.0, 9.0)]];
    mixed(&mut net, 17.0, 8.0, &branches, false);
    for _ in 0..2 {
        // The two halves of a pair of 1x3 and 3x1 kernels read the same tensor, and are counted as one of twice the channels.
        let branches: [&[(f64, f64)]; 4] = [
            &[(320.0, 1.0)],
            &[(384.0, 1.0), (768.0, 3.0)],
            &[(448.0, 1.0), (384.0, 9.0), (768.0, 3.0)],
            &[(192.0, 1.0)],
        ];
        mixed(&mut net, 8.0, 8.0, &branches, true);
    }
    net.pool(1.0);
    net.connected(1000.0);
    net.done()
}

/// Branches that read one tensor, and their concatenation. The last convolution of a branch makes the new size; where the size stays, the
/// last branch has a pool before it, otherwise a pool of its own.
fn mixed(net: &mut Builder, before: f64, size: f64, branches: &[&[(f64, f64)]], keeps_size: bool) {
    let channels = net.channels;
    let mut made = 0.0;
    for (at, branch) in branches.iter().enumerate() {
        (net.channels, net.size) = (channels, before);
        if keeps_size && at + 1 == branches.len() {
            net.pool(size);
        }
        for (place, (wide, kernel)) in branch.iter().enumerate() {
            let last = place + 1 == branch.len();
            net.unit(*wide, *kernel, if last { size } else { before });
        }
        made += net.channels;
    }
    if !keeps_size {
        (net.channels, net.size) = (channels, before);
        net.pool(size);
        made += channels;
    }
    net.size = size;
    net.concatenation(made);
}

/// The network of a model of the data sets.
pub fn network(model: &str) -> Option<Network> {
    Some(match model {
        "alexnet" => alexnet(),
        "ssd" => ssd(),
        "vgg16" => vgg([2, 2, 3, 3, 3]),
        "vgg19" => vgg([2, 2, 4, 4, 4]),
        "resnet50" => resnet([3, 4, 6, 3]),
        "resnet101" => resnet([3, 4, 23, 3]),
        "resnet152" => resnet([3, 8, 36, 3]),
        "densenet121" => densenet([6, 12, 24, 16]),
        "densenet169" => densenet([6, 12, 32, 32]),
        "densenet201" => densenet([6, 12, 48, 32]),
        "inception" => inception(),
        "mobilenet" => mobilenet(),
        _ => return None,
    })
}
