//! Why a graph cannot be split.

/// A graph that is not valid, or that this crate does not split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// It has too many nodes or tensors.
    #[error("the graph has {count} {what}: expected at most {max}")]
    TooLarge {
        /// `nodes` or `tensors`.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A node reads a tensor that comes later or does not exist.
    #[error(
        "node `{node}` reads `{tensor}`, which nothing before it makes: expected nodes in topological order"
    )]
    Unmade {
        /// Node by name.
        node: String,
        /// Tensor by name.
        tensor: String,
    },
    /// Two nodes, inputs or constants make one tensor.
    #[error("tensor `{0}` is made twice: expected one node, input or constant")]
    MadeTwice(String),
    /// An output of the graph does not exist.
    #[error("output `{0}`: nothing makes it")]
    MissingOutput(String),
    /// An output of the graph is one of its inputs.
    #[error("output `{0}` is also an input: expected an output that a node makes")]
    OutputIsInput(String),
    /// The graph gives nothing that depends on its inputs.
    #[error("no output depends on a node that runs: expected a graph with nodes")]
    NothingRuns,
}

/// Split points that do not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A stage would have no node, no input or no output.
    #[error("stage {stage} would have no {what}: expected another position for the split points next to it")]
    EmptyStage {
        /// Number of the stage, from 1.
        stage: usize,
        /// `nodes`, `inputs` or `outputs`.
        what: &'static str,
    },
    /// Positions that do not rise, or lie outside of the graph.
    #[error("split point after node {position}: expected rising positions from 1 to {last}")]
    Position {
        /// The position.
        position: usize,
        /// The last one that a split point may have.
        last: usize,
    },
}

/// Why no split points can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BalanceError {
    /// There are fewer candidates than split points.
    #[error("{stages} stages need {} split points: only {candidates} are possible", stages - 1)]
    TooFewPoints {
        /// Number of stages that are wanted.
        stages: usize,
        /// Number of candidates.
        candidates: usize,
    },
    /// Too many candidates.
    #[error("{count} candidates: expected at most {max}")]
    TooManyCandidates {
        /// Their number.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A time, a speed or the slack is not a number that makes sense.
    #[error("{what}: expected a finite number {expected}, got {got}")]
    Number {
        /// Which number.
        what: &'static str,
        /// What would be right.
        expected: &'static str,
        /// The number.
        got: f64,
    },
    /// Positions of candidates do not rise.
    #[error("candidate at {0}: expected rising positions")]
    Order(usize),
}
