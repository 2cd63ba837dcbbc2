//! Operators that take indices, each with a model (`indices/make.py`).

/// Entries of the table of each model.
pub(crate) const ENTRIES: u16 = 16;

/// An operator that takes indices. Its model has a table with 1 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Looks entries up.
    Gather,
    /// Looks elements up along an axis.
    GatherElements,
    /// Looks slices up.
    GatherNd,
    /// Writes -1 to elements along an axis.
    ScatterElements,
    /// Writes -1 to slices.
    ScatterNd,
}

impl Operator {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Gather, Self::GatherElements, Self::GatherNd, Self::ScatterElements, Self::ScatterNd];

    /// Its name in facts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gather => "index_gather",
            Self::GatherElements => "index_gather_elements",
            Self::GatherNd => "index_gather_nd",
            Self::ScatterElements => "index_scatter_elements",
            Self::ScatterNd => "index_scatter_nd",
        }
    }

    /// The ONNX file of a model with the operator: input `x` has the index.
    pub(crate) fn model(self) -> &'static [u8] {
        match self {
            Self::Gather => include_bytes!("indices/gather.onnx"),
            Self::GatherElements => include_bytes!("indices/gather_elements.onnx"),
            Self::GatherNd => include_bytes!("indices/gather_nd.onnx"),
            Self::ScatterElements => include_bytes!("indices/scatter_elements.onnx"),
            Self::ScatterNd => include_bytes!("indices/scatter_nd.onnx"),
        }
    }
}
