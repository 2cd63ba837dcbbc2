//! What a network consists of: operators with the work that one row of a batch costs each of them.

/// Class of an operator. Operators of one class do the same work in about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorClass {
    /// Convolution in which every output channel reads several input channels.
    Convolution,
    /// Convolution in which every output channel reads one input channel (depthwise).
    Depthwise,
    /// Product of matrices, and fully connected layers.
    MatrixProduct,
    /// Recurrent layers, which run step by step.
    Recurrent,
    /// Normalisation over channels or features.
    Normalisation,
    /// Normalisation over several channels, with a power of each element (LRN).
    LocalResponse,
    /// Functions of single elements, and sums and products of tensors.
    Elementwise,
    /// Pooling, reductions and softmax.
    Reduction,
    /// Copies: concatenation, transposition, padding, resizing, gathering.
    Movement,
    /// Everything else.
    Other,
}

impl OperatorClass {
    /// All classes, in the order in which features are listed.
    pub const ALL: [Self; 10] = [
        Self::Convolution,
        Self::Depthwise,
        Self::MatrixProduct,
        Self::Recurrent,
        Self::Normalisation,
        Self::LocalResponse,
        Self::Elementwise,
        Self::Reduction,
        Self::Movement,
        Self::Other,
    ];

    /// Its name in profile files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Convolution => "convolution",
            Self::Depthwise => "depthwise",
            Self::MatrixProduct => "matrix_product",
            Self::Recurrent => "recurrent",
            Self::Normalisation => "normalisation",
            Self::LocalResponse => "local_response",
            Self::Elementwise => "elementwise",
            Self::Reduction => "reduction",
            Self::Movement => "movement",
            Self::Other => "other",
        }
    }

    /// The class with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The class of an operator of ONNX, by its name.
    pub fn of_onnx(operator: &str, is_depthwise: bool) -> Self {
        match operator {
            _ if is_depthwise => Self::Depthwise,
            "Conv" | "ConvInteger" | "ConvTranspose" | "FusedConv" | "QLinearConv" => Self::Convolution,
            "MatMul"
            | "MatMulInteger"
            | "QLinearMatMul"
            | "FusedMatMul"
            | "DynamicQuantizeMatMul"
            | "MatMulNBits"
            | "Gemm"
            | "FusedGemm"
            | "QGemm"
            | "Einsum"
            | "Attention"
            | "MultiHeadAttention" => Self::MatrixProduct,
            "LSTM" | "GRU" | "RNN" | "Scan" | "Loop" => Self::Recurrent,
            "BatchNormalization"
            | "LayerNormalization"
            | "InstanceNormalization"
            | "GroupNormalization"
            | "LpNormalization"
            | "SimplifiedLayerNormalization"
            | "SkipLayerNormalization" => Self::Normalisation,
            "LRN" => Self::LocalResponse,
            "MaxPool" | "AveragePool" | "GlobalAveragePool" | "GlobalMaxPool" | "LpPool" | "Softmax"
            | "LogSoftmax" | "ArgMax" | "ArgMin" | "TopK" => Self::Reduction,
            "Concat" | "Transpose" | "Pad" | "Resize" | "Upsample" | "Gather" | "GatherElements"
            | "GatherND" | "Slice" | "Split" | "Expand" | "Tile" | "SpaceToDepth" | "DepthToSpace"
            | "ScatterND" | "ScatterElements" => Self::Movement,
            "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" | "Shape" | "Size" | "Dropout"
            | "If" | "Constant" | "ConstantOfShape" | "NonZero" | "Range" | "OneHot" => Self::Other,
            reduction if reduction.starts_with("Reduce") => Self::Reduction,
            // Most of the others compute each element by itself: activations, arithmetic, comparisons, casts, quantisation.
            _ => Self::Elementwise,
        }
    }
}

/// One operator that runs once for each batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operator {
    /// Its class.
    pub class: OperatorClass,
    /// Multiply-accumulate operations for one row; 0 if it has none.
    pub macs: f64,
    /// Bytes of weights, read once for each batch.
    pub weight_bytes: f64,
    /// Bytes of activations that it reads and writes for one row.
    pub activation_bytes: f64,
    /// Elements that it can compute at the same time for one row: the elements of its output. At least 1.
    pub width: f64,
}

/// Largest number of operators that are read; the decoders of models have lower limits.
pub const OPERATORS_MAX: usize = 200_000;

/// Largest quantity of an operator that counts: far above what any device computes in an hour.
const WORK_MAX: f64 = 1e18;

/// The operators of a network, added up by class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    work: [Work; OperatorClass::ALL.len()],
}

/// Work of all operators of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Number of operators.
    pub operators: f64,
    /// Multiply-accumulate operations for one row.
    pub macs: f64,
    /// Bytes of weights.
    pub weight_bytes: f64,
    /// Bytes of activations for one row.
    pub activation_bytes: f64,
    /// Sum of the operations that each element of an output takes one after the other: what no wider device makes faster.
    pub path: f64,
}

fn sane(quantity: f64) -> f64 {
    if quantity.is_finite() { quantity.clamp(0.0, WORK_MAX) } else { 0.0 }
}

impl Network {
    /// Adds up operators. Those after the first [`OPERATORS_MAX`] are left out. Quantities that are negative or not finite count as 0.
    pub fn new(operators: impl IntoIterator<Item = Operator>) -> Self {
        let mut network = Self::default();
        for operator in operators.into_iter().take(OPERATORS_MAX) {
            let place = OperatorClass::ALL.iter().position(|class| *class == operator.class);
            let Some(work) = place.and_then(|place| network.work.get_mut(place)) else { continue };
            work.operators += 1.0;
            work.macs += sane(operator.macs);
            work.weight_bytes += sane(operator.weight_bytes);
            work.activation_bytes += sane(operator.activation_bytes);
            work.path += sane(operator.macs) / sane(operator.width).max(1.0);
        }
        network
    }

    /// A network with this work by class; a class that comes twice has the later one. Quantities as in [`Network::new`].
    pub fn of_work(classes: impl IntoIterator<Item = (OperatorClass, Work)>) -> Self {
        let mut network = Self::default();
        for (class, work) in classes {
            let place = OperatorClass::ALL.iter().position(|known| *known == class);
            let Some(own) = place.and_then(|place| network.work.get_mut(place)) else { continue };
            *own = Work {
                operators: sane(work.operators),
                macs: sane(work.macs),
                weight_bytes: sane(work.weight_bytes),
                activation_bytes: sane(work.activation_bytes),
                path: sane(work.path),
            };
        }
        network
    }

    /// Work by class, in the order of [`OperatorClass::ALL`].
    pub fn work(&self) -> &[Work] {
        &self.work
    }

    /// Work of all classes together.
    pub fn total(&self) -> Work {
        self.work.iter().fold(Work::default(), |sum, work| Work {
            operators: sum.operators + work.operators,
            macs: sum.macs + work.macs,
            weight_bytes: sum.weight_bytes + work.weight_bytes,
            activation_bytes: sum.activation_bytes + work.activation_bytes,
            path: sum.path + work.path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_names_and_operators_of_onnx_have_classes() {
        for class in OperatorClass::ALL {
            assert_eq!(OperatorClass::named(class.name()), Some(class));
        }
        assert_eq!(OperatorClass::named("convolutions"), None);
        for (operator, class) in [
            ("Conv", OperatorClass::Convolution),
            ("Gemm", OperatorClass::MatrixProduct),
            ("BatchNormalization", OperatorClass::Normalisation),
            ("LRN", OperatorClass::LocalResponse),
            ("ReduceMean", OperatorClass::Reduction),
            ("Relu", OperatorClass::Elementwise),
            ("Reshape", OperatorClass::Other),
        ] {
            assert_eq!(OperatorClass::of_onnx(operator, false), class);
        }
        assert_eq!(OperatorClass::of_onnx("Conv", true), OperatorClass::Depthwise);
    }

    #[test]
    fn a_network_is_the_same_from_its_work() {
        let network = Network::new([Operator {
            class: OperatorClass::Recurrent,
            macs: 6.0,
            weight_bytes: 5.0,
            activation_bytes: 4.0,
            width: 3.0,
        }]);
        let work = OperatorClass::ALL.into_iter().zip(network.work().iter().copied());
        assert_eq!(Network::of_work(work), network);
        let nonsense = Work { macs: f64::NAN, path: -1.0, ..Work::default() };
        assert_eq!(Network::of_work([(OperatorClass::Other, nonsense)]), Network::default());
    }

    #[test]
    fn work_adds_up_by_class_and_nonsense_counts_as_nothing() {
        let operator =
            |class, macs| Operator { class, macs, weight_bytes: 8.0, activation_bytes: 4.0, width: 2.0 };
        let network = Network::new([
            operator(OperatorClass::Convolution, 10.0),
            operator(OperatorClass::Convolution, f64::NAN),
            Operator {
                weight_bytes: -1.0,
                activation_bytes: f64::INFINITY,
                width: 0.0,
                ..operator(OperatorClass::Other, 3.0)
            },
        ]);
        let convolutions = network.work()[0];
        assert_eq!((convolutions.operators, convolutions.macs, convolutions.path), (2.0, 10.0, 5.0));
        assert_eq!((convolutions.weight_bytes, convolutions.activation_bytes), (16.0, 8.0));
        let all = network.total();
        assert_eq!((all.operators, all.macs, all.weight_bytes, all.path), (3.0, 13.0, 16.0, 8.0));
    }
}
